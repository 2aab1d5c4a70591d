/** Python's exceptions, objects, classes, calls with keyword arguments, and the text of values. */

import * as errors from "../errors.js";
import { Dict } from "./values.js";

// Exceptions

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

// Objects

/** The base of all translated classes. Its own enumerable properties are the fields. */
export class PyObject {
  /** @param {...any} args in the order of a dataclass's fields, keyword-only ones last */
  constructor(...args) {
    const { __fields__: fields, __parameters__: names, __name__: cls } = /** @type {any} */ (new.target);
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

  /** @type {Field[]} */ static __fields__ = [];
  /** @type {any[]} */ static __mro__ = [PyObject];
  /** @type {any} */ static __own__ = { methods: {}, statics: {} }; // what its subclasses inherit

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

// Classes

/** A field of a dataclass. @param {string} name @param {any} [value] its default, undefined if it is required @param {Record<string, any>} [metadata] @param {{keyword?: boolean, init?: boolean, hint?: any, factory?: () => any}} [more] `hint` is what its annotation says besides the type */
export function field(name, value, metadata = {}, more = {}) {
  const described = new Dict(Object.entries(metadata));
  const place = 0; // among the constructor's arguments, which a class numbers
  return { name, default: value, metadata: described, keyword: false, init: true, place, ...more };
}
/** @typedef {ReturnType<typeof field>} Field */

/**
 * Finish a translated class: its inherited members in Python's method resolution order, its attributes and its fields.
 * @param {any} cls @param {string} name @param {any[]} bases those of that order up to one whose own bases are the rest
 * @param {{attributes?: Record<string, any>, fields?: Parameters<typeof field>[], order?: boolean, identity?: boolean}} more
 */
export function define(cls, name, bases, { attributes = {}, fields = [], order = false, identity = false } = {}) {
  const { constructor: _, ...methods } = Object.getOwnPropertyDescriptors(cls.prototype);
  const { prototype: _of, length: _count, name: _name, ...statics } = Object.getOwnPropertyDescriptors(cls);
  const values = Object.getOwnPropertyDescriptors(attributes);
  const own = { methods: { ...methods, ...values }, statics: { ...statics, ...values } };
  const mro = [cls, ...bases.slice(0, -1), ...(bases.at(-1) ?? PyObject).__mro__];
  /** @type {Map<string, Field>} */
  const every = new Map();
  for (const { __own__: inherited, __fields__ } of mro.slice(1).reverse()) {
    Object.defineProperties(cls.prototype, inherited.methods);
    Object.defineProperties(cls, inherited.statics);
    for (const field of __fields__) every.set(field.name, field);
  }
  Object.defineProperties(cls.prototype, own.methods);
  Object.defineProperties(cls, own.statics);
  for (const row of fields) every.set(row[0], field(...row));
  const parameters = [...every.values()].filter((field) => field.init);
  parameters.sort((a, b) => Number(a.keyword) - Number(b.keyword));
  return Object.assign(cls, {
    ...{ __name__: name, __mro__: mro, __own__: own, __order__: order, __identity__: identity },
    __fields__: [...every.values()].map((field) => ({ ...field, place: parameters.indexOf(field) })),
    __parameters__: parameters.map((field) => field.name),
  });
}

/** `super().name` in a method of `cls`. @param {any} cls @param {any} self @param {string} name */
export function parent(cls, self, name) {
  const [{ __mro__: mro }, kind] = typeof self === "function" ? [self, "statics"] : [self.constructor, "methods"];
  for (const { __own__: own } of mro.slice(mro.indexOf(cls) + 1)) {
    if (!Object.hasOwn(own[kind], name)) continue;
    const { get, value } = own[kind][name];
    if (get) return get.call(self);
    return typeof value === "function" ? value.bind(self) : value;
  }
  throw new AttributeError(`no base of ${cls.__name__} has ${name}`);
}

/** A cached property. @param {any} self @param {string} name @param {() => any} compute */
export const cached = (self, name, compute) => Object.defineProperty(self, name, { value: compute() })[name];

// Calls

/** Declare the parameter names of a function that is called with keywords. @template {Function} F @param {F} f @param {string} names separated by spaces @returns {F} */
export const signed = (f, names) => Object.assign(f, { __parameters__: names.split(" ").filter(Boolean) });

/** @param {Dict | Record<string, any>} named @returns {[any, any][]} */
const entries = (named) => (named instanceof Dict ? [...named] : Object.entries(named));

/** @param {any} f @param {any[]} args @param {Dict | Record<string, any>} kwargs @returns {any[]} all of them in the order of f's parameters */
export function placed(f, args, kwargs) {
  const all = [...args];
  /** @type {string[]} */
  const names = f.__parameters__ ?? [];
  for (const [name, value] of entries(kwargs)) {
    const at = names.indexOf(name);
    if (at < 0 || at < args.length)
      throw new TypeError_(`${f.__name__ ?? f.name}() takes no ${name}${at < 0 ? "" : " besides"}`);
    all[at] = value;
  }
  return all;
}

/** Call f(*args, **kwargs). @param {any} f a function or a class @param {any[]} [args] @param {Dict | Record<string, any>} [kwargs] */
export function call(f, args = [], kwargs = {}) {
  const all = placed(f, args, kwargs);
  return "__mro__" in f ? new f(...all) : f(...all);
}
export const make = call;

/** Call a method with keywords. @param {any} x @param {string} name @param {any[]} args @param {Dict | Record<string, any>} kwargs */
export const invoke = (x, name, args, kwargs) => x[name](...placed(x[name], args, kwargs));

/** @param {...(Dict | Record<string, any>)} parts @returns {Dict} */
export const kwargs = (...parts) => new Dict(parts.flatMap(entries));

/** @type {Map<string, Function>} JavaScript's versions of functions that cannot be translated */
const provided = new Map();

/** A function that cannot be translated: calls JavaScript's version, or throws if there is none. @param {string} name @returns {(...args: any[]) => any} */
export function host(name) {
  return (...args) => {
    const f = provided.get(name);
    if (!f) throw new errors.WebmmError(`${name} is available in Python only`);
    return f(...args);
  };
}

/** A class that JavaScript has of its own, for isinstance(): what it provides tells whether an object is of that class. @param {string} name */
export const hostClass = (name) => ({ [Symbol.hasInstance]: host(name) });

/** Provide JavaScript's version of a function that cannot be translated. @param {string} name @param {(...args: any[]) => any} f */
export const provide = (name, f) => void provided.set(name, f);

/** @param {(...args: any[]) => any} f @returns {(...args: any[]) => any} as Python's functools.cache: results are cached by the values of the arguments */
export function remembered(f) {
  const known = new Dict();
  return (...args) => {
    const key = args.length === 1 ? args[0] : args;
    if (!known.has(key)) {
      if (known.size >= 4096) known.clear();
      known.set(key, f(...args));
    }
    return known.get(key);
  };
}

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
