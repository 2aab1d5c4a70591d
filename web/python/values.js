/** Python's exceptions, objects and values: their text, equality, order, hashing and arithmetic. */

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

  /** @type {any[]} */ static __fields__ = []; // each a `Field` of classes.js
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
  if (spec === "" || !Number.isFinite(Number(x))) return str(x);
  const [, grouped, places, kind = parts[4]] = parts;
  const text = TEXTS[kind](Number(x), places && Number(places));
  return grouped ? text.replace(/\B(?<!\.\d*)(?=(\d{3})+(?!\d))/g, ",") : text;
}

// Equality, order, hashing

/** @type {WeakMap<object, string>} the hashes of objects */
const hashes = new WeakMap();
let identities = 0;

/** A stand-in for Python's hash. @param {any} x @returns {string} a text that only equal values have */
function hashed(x) {
  if (typeof x === "string") return JSON.stringify(x);
  if (typeof x === "boolean") return String(Number(x));
  if (Object.is(x, -0)) return "-0"; // a problem with another sign of zero is another problem, as in Python's Problem.identity
  if (x === null || (typeof x !== "object" && typeof x !== "function")) return String(x);
  if (Array.isArray(x)) return `(${x.map(hashed).join(",")})`;
  if (x instanceof PySet) return `{${[...x].map(hashed).sort().join(",")}}`;
  const known = hashes.get(x);
  if (known) return known;
  const byValue = isObject(x) && !x.constructor.__identity__;
  const made = byValue ? `${hashed(x.constructor)}${hashed(Object.values(x))}` : `#${++identities}`;
  hashes.set(x, made);
  return made;
}

/** @param {any} key @returns {any} a primitive or a function that only equal keys have */
function hashKey(key) {
  if (typeof key === "object" && key !== null) return hashed(key);
  if (typeof key === "string") return `'${key}`;
  return typeof key === "boolean" ? Number(key) : key;
}

/** A Map whose keys compare by value. */
export class HashTable extends Map {
  /** @type {Map<any, any>} the stored keys, by `hashKey()` */
  #keys = new Map();

  /** @param {Iterable<[any, any]>} [entries] */
  constructor(entries = []) {
    super();
    for (const [key, value] of entries) this.set(key, value);
  }

  /** @param {any} key */
  get(key) {
    return super.get(this.#keys.get(hashKey(key)));
  }

  /** @param {any} key */
  has(key) {
    return this.#keys.has(hashKey(key));
  }

  /** @param {any} key @param {any} value */
  set(key, value) {
    const hash = hashKey(key);
    if (!this.#keys.has(hash)) this.#keys.set(hash, key);
    return super.set(this.#keys.get(hash), value);
  }

  /** @param {any} key */
  delete(key) {
    const hash = hashKey(key);
    return super.delete(this.#keys.get(hash)) && this.#keys.delete(hash);
  }

  clear() {
    this.#keys.clear();
    super.clear();
  }
}

export class Dict extends HashTable {}

/** A set or frozenset: a table of its elements by themselves. */
export class PySet extends HashTable {
  /** @param {Iterable<any>} [elements] */
  constructor(elements = []) {
    super();
    for (const element of elements) this.add(element);
  }

  [Symbol.iterator]() {
    return this.keys();
  }

  /** @param {any} element */
  add(element) {
    return this.has(element) ? this : this.set(element, element);
  }
}

/** @param {any} a @param {any} b @returns {boolean} */
export function eq(a, b) {
  if (typeof a === "boolean") a = Number(a);
  if (typeof b === "boolean") b = Number(b);
  if (a === b) return true;
  if (typeof a !== "object" || a === null || a.constructor !== b?.constructor) return false;
  if (Array.isArray(a) || a instanceof Uint8Array) return a.length === b.length && a.every((x, i) => eq(x, b[i]));
  if (a instanceof HashTable)
    return a.size === b.size && [...a.keys()].every((key) => b.has(key) && eq(a.get(key), b.get(key)));
  return isObject(a) && !a.constructor.__identity__ && Object.keys(a).every((name) => eq(a[name], b[name]));
}

/** @param {any} a @param {any} b @returns {number} below, at or above 0; throws TypeError_ for values without an order */
export function compare(a, b) {
  if (typeof a === "boolean") a = Number(a);
  if (typeof b === "boolean") b = Number(b);
  if (typeof a === typeof b && (typeof a === "number" || typeof a === "string"))
    return a < b ? -1 : a > b ? 1 : a === b ? 0 : NaN;
  if (Array.isArray(a) && Array.isArray(b)) {
    for (let i = 0; i < Math.min(a.length, b.length); i++) if (!eq(a[i], b[i])) return compare(a[i], b[i]);
    return a.length - b.length;
  }
  if (isObject(a) && a.constructor === b?.constructor && a.constructor.__order__)
    return compare(Object.values(a), Object.values(b));
  throw new TypeError_(`${repr(a)} and ${repr(b)} cannot be ordered`);
}

/** @param {PySet} a @param {PySet} b */
const within = (a, b) => [...a].every((x) => b.has(x));
/** @type {Record<string, (a: any, b: any) => any>} */
export const { le, lt, ge, gt, or, and } = {
  le: (a, b) => (a instanceof PySet ? within(a, b) : compare(a, b) <= 0),
  lt: (a, b) => (a instanceof PySet ? within(a, b) && a.size < b.size : compare(a, b) < 0),
  ge: (a, b) => le(b, a),
  gt: (a, b) => lt(b, a),
  or: (x, other) => (truth(x) ? x : other()),
  and: (x, other) => (truth(x) ? other() : x),
};

/** @param {any} x @returns {boolean} its truth value */
export function truth(x) {
  if (typeof x === "number") return x !== 0; // NaN is true
  if (typeof x !== "object" || x === null) return Boolean(x);
  if (Array.isArray(x) || x instanceof Uint8Array) return x.length > 0;
  return !(x instanceof HashTable) || x.size > 0;
}

// Arithmetic

/** @typedef {(a: any, b: any) => any} Operator */

/** The operators of other values than two numbers, by the left one's kind and their sign. @type {Record<string, Record<string, Operator>>} */
const OTHERS = {
  number: { "*": (count, x) => mul(x, count) },
  string: { "+": (a, b) => a + b, "*": (x, count) => x.repeat(Math.max(0, count)) },
  list: { "+": (a, b) => [...a, ...b], "*": (x, count) => Array.from({ length: Math.max(0, count) }, () => x).flat(1) },
  set: { "-": (a, b) => new PySet([...a].filter((x) => !b.has(x))), "|": (a, b) => new PySet([...a, ...b]) },
  dict: { "|": (a, b) => new Dict([...a, ...b]) },
};

/** @param {any} x @returns {string} */
function kindOf(x) {
  if (typeof x !== "object") return typeof x === "boolean" ? "number" : typeof x;
  if (Array.isArray(x)) return "list";
  if (x instanceof Dict) return "dict";
  return x instanceof PySet ? "set" : "object";
}

/** @param {string} sign @param {(x: number, y: number) => number} ofNumbers @returns {Operator} of numbers, booleans included, and of OTHERS */
const operator = (sign, ofNumbers) => (a, b) => {
  if (typeof a === "number" && typeof b === "number") return ofNumbers(a, b);
  const kind = kindOf(a);
  if (kind === "number" && kindOf(b) === "number") return ofNumbers(Number(a), Number(b));
  const ofOthers = OTHERS[kind]?.[sign];
  if (ofOthers && (sign !== "+" || kind === kindOf(b))) return ofOthers(a, b);
  throw new TypeError_(`${repr(a)} ${sign} ${repr(b)} is not defined`);
};

export const add = operator("+", (x, y) => x + y);
export const sub = operator("-", (x, y) => x - y);
export const mul = operator("*", (x, y) => x * y);
export const div = operator("/", (x, y) => x / nonzero(y));
export const floordiv = operator("//", (x, y) => (x - modulo(x, y)) / y);
export const mod = operator("%", modulo);
export const pow = operator("**", (x, y) => x ** y);
export const lshift = operator("<<", (x, y) => x * 2 ** y);
export const bitand = operator("&", (x, y) => Number(BigInt(x) & BigInt(y)));
export const bitor = operator("|", (x, y) => Number(BigInt(x) | BigInt(y)));

/** @param {number} y */
function nonzero(y) {
  if (y === 0) throw new ValueError("division by zero");
  return y;
}

/** @param {number} x @param {number} y @returns {number} with the sign of y */
function modulo(x, y) {
  const rest = x % nonzero(y);
  return rest !== 0 && rest < 0 !== y < 0 ? rest + y : rest + 0;
}
