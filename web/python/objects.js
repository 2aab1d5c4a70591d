/** Python's exceptions, the base of its objects, and their text. */

export class PythonError extends Error {
  /** @param {any} [message] */
  constructor(message = "") {
    super(str(message));
    this.name = new.target.name;
  }
}
export class TypeError_ extends PythonError {}
export class ValueError extends PythonError {}
export class KeyError extends PythonError {}
export class AttributeError extends PythonError {}
export class AssertionError extends PythonError {}
export class OverflowError extends PythonError {}
export class StopIteration extends PythonError {}

// Objects

/** The base of all translated classes. */
export class PyObject {
  /** @param {...any} args in the order of a dataclass's fields, keyword-only ones last */
  constructor(...args) {
    const { __fields__: fields = [], __arguments__: given = [], __places__: places = [] } = new.target;
    if (args.length > given.length)
      throw new TypeError_(`${new.target.__name__}() takes ${given.length} values, not ${args.length}`);
    for (let i = 0; i < fields.length; i++) {
      const field = fields[i];
      const value = args[places[i]] ?? (args[places[i]] === undefined ? field.make() : null);
      if (value === undefined) throw new TypeError_(`${new.target.__name__}() needs ${field.name}`);
      if (field.name in this)
        Object.defineProperty(this, field.name, { value, enumerable: true }); // overrides a property of a base
      else /** @type {any} */ (this)[field.name] = value;
    }
    /** @type {any} */ (this).__post_init__?.();
  }

  /** @type {any[] | undefined} */ static __fields__; // each a `Field` of classes.js
  /** @type {any[] | undefined} */ static __arguments__; // the fields in the order of the constructor's arguments
  /** @type {number[] | undefined} */ static __places__; // each field's index among the arguments
  /** @type {any[]} */ static __mro__ = [PyObject];
  /** @type {any} */ static __own__ = { prototype: {}, cls: {}, every: [] }; // what its subclasses inherit
  static __name__ = "object";
  static __identity__ = false; // whether objects compare by identity
  static __order__ = false;

  /** @param {any} x */
  static [Symbol.hasInstance](x) {
    return typeof x === "object" && x !== null && (x.constructor?.__mro__?.includes(this) ?? false);
  }

  toString() {
    return str(this);
  }
}

/** @param {any} x a dataclass or an instance of one @returns {string[]} */
export const fieldNames = (x) =>
  (x.__fields__ ?? x.constructor.__fields__).map((/** @type {{name: string}} */ field) => field.name);

/** @param {any} x a dataclass's instance @returns {any[]} the values of its fields */
export const valuesOf = (x) => fieldNames(x).map((name) => x[name]);

/** @param {any} x @returns {boolean} */
export const isObject = (x) => x instanceof PyObject;

// Text

/** @param {any} x @returns {string} */
export function str(x) {
  if (typeof x === "string") return x;
  if (x instanceof Error) return x.message;
  return isObject(x) && "__str__" in x ? /** @type {any} */ (x).__str__() : repr(x);
}

/** @param {any} x @returns {string} */
export function repr(x) {
  if (x === null) return "None";
  if (x === undefined) throw new AttributeError("an undefined value has no text");
  if (typeof x === "boolean") return x ? "True" : "False";
  if (typeof x === "number") return Number.isFinite(x) ? String(x) : Number.isNaN(x) ? "nan" : x > 0 ? "inf" : "-inf";
  if (typeof x === "string") return quoted(x);
  if (Array.isArray(x)) return `(${x.map(repr).join(", ")}${x.length === 1 ? "," : ""})`;
  if (x instanceof Map) return `{${[...x].map(([key, value]) => `${repr(key)}: ${repr(value)}`).join(", ")}}`;
  if (typeof x === "function") return `<class '${x.__name__ ?? x.name}'>`;
  if (isObject(x))
    return `${x.constructor.__name__}(${fieldNames(x)
      .map((name) => `${name}=${repr(x[name])}`)
      .join(", ")})`;
  return String(x);
}

/** @param {string} text */
function quoted(text) {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  return mark + text.replaceAll("\\", "\\\\").replaceAll(mark, `\\${mark}`).replaceAll("\n", "\\n") + mark;
}

/** Numbers by the last letter of a format. @type {Record<string, (x: number, places: any) => string>} */
const TEXTS = {
  "": String,
  e: (x, places) => x.toExponential(places).replace(/([+-])(\d)$/, "$10$2"),
  f: (x, places) => x.toFixed(places),
  g: (x, places = 6) => String(Number(x.toPrecision(places))), // from 0.0001 to a million; ties away from 0
};

/** @param {any} x @param {string} spec "", "g", ",", ".1e", ".1f", ".3g", or "," and one of these @returns {string} */
export function format(x, spec) {
  const parts = /^(,?)(?:\.(\d+)([efg])|(g?))$/.exec(spec);
  if (!parts) throw new ValueError(`the format ${spec} is not supported`);
  if (spec === "") return str(x);
  const [, grouped, places, kind = parts[4]] = parts;
  const text = TEXTS[kind](Number(x), places && Number(places));
  return grouped ? text.replace(/\B(?<!\.\d*)(?=(\d{3})+(?!\d))/g, ",") : text;
}
