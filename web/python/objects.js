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

/** The base of all translated classes. Its own enumerable properties are the fields. */
export class PyObject {
  /** @param {...any} args in the order of a dataclass's fields, keyword-only ones last */
  constructor(...args) {
    const { __fields__: fields, __parameters__: names, __name__: cls } = new.target;
    if (args.length > names.length) throw new TypeError_(`${cls}() takes ${names.length} values, not ${args.length}`);
    for (const field of fields) {
      let value = args[field.place];
      if (value === undefined) value = field.factory ? field.factory() : field.default;
      if (value === undefined) throw new TypeError_(`${cls}() needs ${field.name}`);
      if (field.name in this)
        Object.defineProperty(this, field.name, { value, enumerable: true }); // overrides a property of a base
      else /** @type {any} */ (this)[field.name] = value;
    }
    /** @type {any} */ (this).__post_init__?.();
  }

  /** @type {import("./classes.js").Field[]} */ static __fields__ = [];
  /** @type {string[]} */ static __parameters__ = []; // the names of the fields in the order of the constructor's arguments
  /** @type {any[]} */ static __mro__ = [PyObject];
  /** @type {any} */ static __own__ = { methods: {}, statics: {} }; // what its subclasses inherit
  static __name__ = "object";
  static __identity__ = true; // whether objects compare by identity
  static __order__ = false;

  /** @param {any} x */
  static [Symbol.hasInstance](x) {
    return typeof x === "object" && x !== null && (x.constructor?.__mro__?.includes(this) ?? false);
  }

  toString() {
    return str(this);
  }
}

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
  if (isObject(x)) {
    const fields = Object.entries(x).map(([name, value]) => `${name}=${repr(value)}`);
    return `${x.constructor.__name__}(${fields.join(", ")})`;
  }
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
