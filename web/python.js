// @ts-check
/**
 * What translated Python stands on: values that compare by value, dataclasses, and the builtins and modules of the subset
 * of Python that `webmm.page.script` translates.
 *
 * None is null; int and float are numbers, tuple and list arrays, dict is a `Dict`, set and frozenset a `PySet`, bytes a
 * Uint8Array. Keyword arguments go through `call(f, [args], {kwargs})`, for classes as well.
 */

import * as errors from "./errors.js";

/** @typedef {any} Any */

export class PythonError extends Error {
  /** @param {Any} [message] */
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

/** What a name or an attribute is that there is not: asking anything of it is an error. */
export class Undefined {
  /** @param {() => string} message */
  constructor(message) {
    this.message = message;
  }

  /** @returns {never} */
  fail() {
    throw new AttributeError(this.message());
  }
}

// Values: equality, order, hashing

/** @param {Any} x @returns {boolean} */
const isObject = (x) => x instanceof PyObject;

/** The text by which equal values are known: what stands in for a hash. @param {Any} x @returns {Any} */
function hashed(x) {
  if (typeof x === "boolean") return Number(x);
  if (typeof x !== "object" || x === null) return x;
  if (Array.isArray(x)) return `(${x.map(hashedText).join(",")})`;
  if (x instanceof PySet) return `{${[...x].map(hashedText).sort().join(",")}}`;
  if (!isObject(x) || !x.constructor.__fields__ || x.constructor.__identity__) return x;
  const known = hashes.get(x);
  if (known) return known;
  const text = `${numberOf(x.constructor)}(${fieldNames(x).map((name) => hashedText(x[name])).join(",")})`;
  hashes.set(x, text);
  return text;
}

/** @type {WeakMap<object, string>} */
const hashes = new WeakMap();
/** @type {WeakMap<object, number>} */
const numbers = new WeakMap();
let counted = 0;

/** @param {object} x @returns {number} the same for the same object */
function numberOf(x) {
  const known = numbers.get(x);
  if (known) return known;
  numbers.set(x, ++counted);
  return counted;
}

/** @param {Any} x */
function hashedText(x) {
  const value = hashed(x);
  if (typeof value === "string") return typeof x === "string" ? JSON.stringify(x) : value;
  return typeof value === "object" && value !== null || typeof value === "function" ? `#${numberOf(value)}` : String(value);
}

/** @param {Any} key @returns {Any} what a Map keeps the key by */
const place = (key) => (typeof key === "object" && key !== null ? hashedText(key) : typeof key === "string" ? `'${key}` : typeof key === "boolean" ? Number(key) : key);

/** A dict: a Map whose keys compare by value, and which iterates as a Map does. */
export class Dict extends Map {
  /** @type {Map<Any, Any>} keys as they were given, by what stands for their hash */
  #keys = new Map();

  /** @param {Iterable<[Any, Any]>} [entries] */
  constructor(entries = []) {
    super();
    for (const [key, value] of entries) this.set(key, value);
  }

  /** @param {Any} key */
  get(key) {
    return super.get(this.#known(key));
  }

  /** @param {Any} key */
  has(key) {
    return super.has(this.#known(key));
  }

  /** @param {Any} key @param {Any} value */
  set(key, value) {
    const at = place(key);
    if (!this.#keys.has(at)) this.#keys.set(at, key);
    return super.set(this.#keys.get(at), value);
  }

  /** @param {Any} key */
  delete(key) {
    const gone = super.delete(this.#known(key));
    this.#keys.delete(place(key));
    return gone;
  }

  clear() {
    this.#keys.clear();
    super.clear();
  }

  /** @param {Any} key */
  #known(key) {
    const at = place(key);
    return this.#keys.has(at) ? this.#keys.get(at) : undefined;
  }
}

/** A set or frozenset: elements compare by value. */
export class PySet extends Set {
  /** @type {Set<Any>} */
  #places = new Set();

  /** @param {Iterable<Any>} [elements] */
  constructor(elements = []) {
    super();
    for (const element of elements) this.add(element);
  }

  /** @param {Any} element */
  has(element) {
    return this.#places.has(place(element));
  }

  /** @param {Any} element */
  add(element) {
    if (this.has(element)) return this;
    this.#places.add(place(element));
    return super.add(element);
  }
}

/** @param {Any} a @param {Any} b @returns {boolean} */
export function eq(a, b) {
  if (a === b) return true;
  if (typeof a === "boolean" || typeof b === "boolean") return typeof a !== "object" && typeof b !== "object" && Number(a) === Number(b) && typeof a !== "string" && typeof b !== "string";
  for (const x of [a, b]) if (x instanceof Undefined) x.fail();
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a)) return Array.isArray(b) && a.length === b.length && a.every((x, i) => eq(x, b[i]));
  if (a instanceof PySet) return b instanceof PySet && a.size === b.size && [...a].every((x) => b.has(x));
  if (a instanceof Dict) return b instanceof Dict && a.size === b.size && [...a].every(([key, x]) => b.has(key) && eq(x, b.get(key)));
  if (a instanceof Uint8Array) return b instanceof Uint8Array && a.length === b.length && a.every((x, i) => x === b[i]);
  if (!isObject(a) || a.constructor !== b.constructor || !a.constructor.__fields__ || a.constructor.__identity__) return false;
  return fieldNames(a).every((name) => eq(a[name], b[name]));
}

/** @param {Any} a @param {Any} b @returns {number} below, at or above 0; raises where there is no order */
function compare(a, b) {
  if (typeof a === "boolean") a = Number(a);
  if (typeof b === "boolean") b = Number(b);
  if (typeof a === typeof b && (typeof a === "number" || typeof a === "string")) return a < b ? -1 : a > b ? 1 : a === b ? 0 : NaN;
  if (Array.isArray(a) && Array.isArray(b)) {
    for (let i = 0; i < Math.min(a.length, b.length); i++) if (!eq(a[i], b[i])) return compare(a[i], b[i]);
    return a.length - b.length;
  }
  if (isObject(a) && a.constructor === b?.constructor && a.constructor.__order__) {
    return compare(fieldNames(a).map((name) => a[name]), fieldNames(b).map((name) => b[name]));
  }
  throw new TypeError_(`${repr(a)} and ${repr(b)} have no order`);
}

/** @param {PySet} a @param {PySet} b */
const within = (a, b) => [...a].every((x) => b.has(x));
/** @param {Any} a @param {Any} b @returns {boolean} */
export const le = (a, b) => (a instanceof PySet ? within(a, b) : compare(a, b) <= 0);
/** @param {Any} a @param {Any} b @returns {boolean} */
export const lt = (a, b) => (a instanceof PySet ? within(a, b) && a.size < b.size : compare(a, b) < 0);
/** @param {Any} a @param {Any} b @returns {boolean} */
export const ge = (a, b) => le(b, a);
/** @param {Any} a @param {Any} b @returns {boolean} */
export const gt = (a, b) => lt(b, a);

/** @param {Any} x @param {Any} container @returns {boolean} */
export function contains(x, container) {
  if (typeof container === "string") return container.includes(x);
  if (container instanceof Dict || container instanceof PySet) return container.has(x);
  for (const each of iter(container)) if (eq(each, x)) return true;
  return false;
}

/** @param {Any} x @returns {boolean} whether it counts as true */
export function truth(x) {
  if (typeof x !== "object" || x === null) return Boolean(x);
  if (Array.isArray(x) || x instanceof Uint8Array) return x.length > 0;
  if (x instanceof Dict || x instanceof PySet) return x.size > 0;
  return !(x instanceof Undefined) || x.fail();
}

/** @param {Any} x @param {() => Any} other */
export const or = (x, other) => (truth(x) ? x : other());
/** @param {Any} x @param {() => Any} other */
export const and = (x, other) => (truth(x) ? other() : x);

// Arithmetic

/** @param {Any} a @param {Any} b @returns {Any} */
export function add(a, b) {
  if (typeof a === "number" && typeof b === "number") return a + b;
  if (typeof a === "string" && typeof b === "string") return a + b;
  if (Array.isArray(a) && Array.isArray(b)) return [...a, ...b];
  return binary("+", a, b, (x, y) => x + y);
}

/** @param {Any} a @param {Any} b @returns {Any} */
export function sub(a, b) {
  if (a instanceof PySet) return new PySet([...a].filter((x) => !b.has(x)));
  return binary("-", a, b, (x, y) => x - y);
}

/** @param {Any} a @param {Any} b @returns {Any} */
export function mul(a, b) {
  if (typeof a === "string") return a.repeat(Math.max(0, Number(b)));
  if (Array.isArray(a)) return Array.from({ length: Math.max(0, Number(b)) }, () => a).flat(1);
  if (typeof b === "string" || Array.isArray(b)) return mul(b, a);
  return binary("*", a, b, (x, y) => x * y);
}

/** @param {Any} a @param {Any} b @returns {Any} */
export const div = (a, b) => binary("/", a, b, (x, y) => x / nonzero(y));
/** @param {Any} a @param {Any} b @returns {Any} */
export const floordiv = (a, b) => binary("//", a, b, (x, y) => (x - modulo(x, y)) / y);
/** @param {Any} a @param {Any} b @returns {Any} */
export const mod = (a, b) => (typeof a === "string" ? percent(a, b) : binary("%", a, b, modulo));
/** @param {Any} a @param {Any} b @returns {Any} */
export const pow = (a, b) => binary("**", a, b, (x, y) => x ** y);
/** @param {Any} a @param {Any} b @returns {Any} */
export const lshift = (a, b) => binary("<<", a, b, (x, y) => x * 2 ** y);
/** @param {Any} a @param {Any} b @returns {Any} */
export const rshift = (a, b) => binary(">>", a, b, (x, y) => Math.floor(x / 2 ** y));
/** @param {Any} a @param {Any} b @returns {Any} */
export const bitand = (a, b) => (a instanceof PySet ? new PySet([...a].filter((x) => b.has(x))) : binary("&", a, b, (x, y) => Number(BigInt(x) & BigInt(y))));

/** @param {Any} a @param {Any} b @returns {Any} */
export function bitor(a, b) {
  if (a instanceof PySet) return new PySet([...a, ...b]);
  if (a instanceof Dict) return new Dict([...a, ...b]);
  return binary("|", a, b, (x, y) => Number(BigInt(x) | BigInt(y)));
}

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

/**
 * @param {string} sign @param {Any} a @param {Any} b @param {(x: number, y: number) => number} operation
 * @returns {Any} of numbers, and of arrays of numbers where one stands in for NumPy's
 */
function binary(sign, a, b, operation) {
  if (typeof a === "number" && typeof b === "number") return operation(a, b);
  for (const x of [a, b]) if (x !== null && typeof x === "object" && x.__binary__) return x.__binary__(a, b, operation);
  if (isNumber(a) && isNumber(b)) return operation(Number(a), Number(b));
  throw new TypeError_(`${repr(a)} ${sign} ${repr(b)} is not defined`);
}

/** @param {Any} x */
const isNumber = (x) => typeof x === "number" || typeof x === "boolean";

// Text

/** @param {Any} x @returns {string} */
export function str(x) {
  if (typeof x === "string") return x;
  if (x instanceof Error) return x.message;
  return isObject(x) && "__str__" in x ? /** @type {Any} */ (x).__str__() : repr(x);
}

/** @param {Any} x @returns {string} */
export function repr(x) {
  if (x === null) return "None";
  if (x === undefined) throw new AttributeError("an undefined value has no text");
  if (typeof x === "boolean") return x ? "True" : "False";
  if (typeof x === "number") return Number.isFinite(x) ? String(x) : Number.isNaN(x) ? "nan" : x > 0 ? "inf" : "-inf";
  if (typeof x === "string") return quoted(x);
  if (Array.isArray(x)) return `(${x.map(repr).join(", ")}${x.length === 1 ? "," : ""})`;
  if (x instanceof Dict) return `{${[...x].map(([key, value]) => `${repr(key)}: ${repr(value)}`).join(", ")}}`;
  if (typeof x === "function") return `<class '${x.__name__ ?? x.name}'>`;
  if (isObject(x)) return `${x.constructor.__name__}(${fieldNames(x).map((name) => `${name}=${repr(x[name])}`).join(", ")})`;
  return x instanceof Undefined ? x.fail() : String(x);
}

/** @param {string} text */
function quoted(text) {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  return mark + text.replaceAll("\\", "\\\\").replaceAll(mark, `\\${mark}`).replaceAll("\n", "\\n") + mark;
}

/** @param {Any} x @param {string} spec "", ",", ".1f" or both @returns {string} */
export function format(x, spec) {
  const parts = /^(,?)(?:\.(\d+)f)?$/.exec(spec);
  if (!parts) throw new ValueError(`the format ${spec} is not known`);
  if (spec === "") return str(x);
  const text = parts[2] === undefined ? String(Number(x)) : Number(x).toFixed(Number(parts[2]));
  return parts[1] ? text.replace(/\B(?<!\.\d*)(?=(\d{3})+(?!\d))/g, ",") : text;
}

/** @param {string} pattern @param {Any} values @returns {string} `pattern % values`, of %d and %s */
function percent(pattern, values) {
  const rest = Array.isArray(values) ? [...values] : [values];
  return pattern.replace(/%(.)/g, (all, kind) => {
    if (kind === "%") return "%";
    if (kind === "d") return String(Math.trunc(rest.shift()));
    if (kind === "s") return str(rest.shift());
    throw new ValueError(`${all} is not known`);
  });
}

/** What methods of strings, lists, dicts, sets and numbers do, by name. @type {Record<string, (x: Any, ...args: Any[]) => Any>} */
const METHODS = {
  add: (x, value) => void x.add(value),
  append: (x, value) => void x.push(value),
  bit_length: (x) => (x === 0 ? 0 : Math.floor(Math.log2(Math.abs(x))) + 1),
  capitalize: (x) => x.slice(0, 1).toUpperCase() + x.slice(1).toLowerCase(),
  count: (x, value) => (typeof x === "string" ? occurrences(x, value) : x.filter((/** @type {Any} */ each) => eq(each, value)).length),
  endswith: (x, end) => x.endsWith(end),
  extend: (x, values) => void x.push(...iter(values)),
  get: (x, key, other = null) => (x.has(key) ? x.get(key) : other),
  index: (x, value) => x.findIndex((/** @type {Any} */ each) => eq(each, value)),
  isdecimal: (x) => /^\d+$/.test(x),
  items: (x) => [...x.entries()],
  join: (x, values) => list(values).join(x),
  keys: (x) => [...x.keys()],
  lower: (x) => x.toLowerCase(),
  lstrip: (x, characters = " \t\n\r") => x.slice(leading(x, characters)),
  pop: (x, key) => (x instanceof Dict ? popped(x, key) : x.splice(key ?? -1, 1)[0]),
  removeprefix: (x, start) => (x.startsWith(start) ? x.slice(start.length) : x),
  replace: (x, from, to) => x.replaceAll(from, () => to),
  rstrip: (x) => x.trimEnd(),
  setdefault: (x, key, value) => (x.has(key) ? x.get(key) : (x.set(key, value), value)),
  split: (x, by) => (by === undefined ? x.trim().split(/\s+/).filter(Boolean) : x.split(by)),
  splitlines: (x) => (x === "" ? [] : x.replace(/\n$/, "").split("\n")),
  startswith: (x, start) => (Array.isArray(start) ? start.some((each) => x.startsWith(each)) : x.startsWith(start)),
  strip: (x) => x.trim(),
  union: (x, ...others) => new PySet([...x, ...others.flatMap((other) => list(other))]),
  update: (x, other) => void [...other].forEach(([key, value]) => x.set(key, value)),
  upper: (x) => x.toUpperCase(),
  values: (x) => [...x.values()],
};

/** @param {string} x @param {string} part @returns {number} how often it occurs, without overlaps */
function occurrences(x, part) {
  let count = 0;
  for (let at = x.indexOf(part); at >= 0; at = x.indexOf(part, at + part.length)) count++;
  return count;
}

/** @param {string} x @param {string} characters @returns {number} how many of them it starts with */
function leading(x, characters) {
  let count = 0;
  while (count < x.length && characters.includes(x[count])) count++;
  return count;
}

/** @param {Dict} x @param {Any} key */
function popped(x, key) {
  const value = item(x, key);
  x.delete(key);
  return value;
}

/** Call a method that strings, lists and dicts have, or an object's own of that name. @param {string} name @param {Any} x @param {...Any} args */
export function method(name, x, ...args) {
  if (x === null || x === undefined) throw new AttributeError(`${x} has no ${name}()`);
  if (isObject(x) || (x.__host__ && typeof x[name] === "function")) return /** @type {Any} */ (x)[name](...args);
  return METHODS[name](x, ...args);
}

/** @param {string} name @returns {(x: Any, ...args: Any[]) => Any} such as `str.strip` */
export const unbound = (name) => (x, ...args) => method(name, x, ...args);
/** @param {string} name @param {Any} x @returns {(...args: Any[]) => Any} such as `code.count` */
export const bound = (name, x) => (...args) => method(name, x, ...args);

// Iteration

/** @param {Any} x @returns {Iterable<Any>} what a for loop walks over: of a dict, its keys */
export function iter(x) {
  if (x instanceof Dict) return x.keys();
  if (x === null || x === undefined || typeof x[Symbol.iterator] !== "function") throw new TypeError_(`${repr(x)} is no iterable`);
  return x;
}

/** @param {Any} [x] @returns {Any[]} */
export const list = (x = []) => [...iter(x)];
export const tuple = list;
/** @param {Any} [x] */
export const frozenset = (x = []) => new PySet(iter(x));
export const set = frozenset;
/** @param {Any} [x] @param {Record<string, Any>} [named] */
export const dict = (x = [], named = {}) => new Dict(/** @type {[Any, Any][]} */ ([...(x instanceof Dict ? x : list(x).map(list)), ...Object.entries(named)]));
/** @param {Iterable<Any>} keys @param {Any} [value] */
dict.fromkeys = (keys, value = null) => new Dict(list(keys).map((key) => [key, value]));

/** @param {Any} x @returns {number} */
export function len(x) {
  if (typeof x === "string" || Array.isArray(x) || x instanceof Uint8Array) return x.length;
  if (x instanceof Dict || x instanceof PySet) return x.size;
  throw new TypeError_(`${repr(x)} has no length`);
}

/** @param {number} start @param {number} [stop] @param {number} [step] @returns {number[]} */
export function range(start, stop, step = 1) {
  if (stop === undefined) [start, stop] = [0, start];
  return Array.from({ length: Math.max(0, Math.ceil((stop - start) / step)) }, (_, i) => start + i * step);
}

/** @param {Any} x @param {number} [start] @returns {[number, Any][]} */
export const enumerate = (x, start = 0) => list(x).map((each, i) => [i + start, each]);
/** @param {Any} x */
export const reversed = (x) => list(x).reverse();

/** @param {...Any} columns */
export const zip = (...columns) => zipped(false, columns);

/** @param {boolean} strict @param {Any[]} columns @returns {Any[][]} */
export function zipped(strict, columns) {
  const lists = columns.map(list);
  const length = Math.min(...lists.map((each) => each.length));
  if (strict && lists.some((each) => each.length !== length)) throw new ValueError("zip() of different lengths");
  return Array.from({ length }, (_, i) => lists.map((each) => each[i]));
}

/** @param {Any} f @param {Any} x */
export const map = (f, x) => list(x).map((each) => f(each));
/** @param {Any} f @param {Any} x */
export const filter = function* (f, x) {
  for (const each of iter(x)) if (truth(f === null ? each : f(each))) yield each;
};
/** @param {Any} x */
export function any(x) {
  for (const each of iter(x)) if (truth(each)) return true;
  return false;
}
/** @param {Any} x */
export function all(x) {
  for (const each of iter(x)) if (!truth(each)) return false;
  return true;
}
/** @param {Any} x @param {Any} [start] */
export const sum = (x, start = 0) => list(x).reduce(add, start);

/** @param {Any} x @param {Any} [other] */
export function next(x, other) {
  const step = x[Symbol.iterator]().next();
  if (!step.done) return step.value;
  if (other === undefined) throw new StopIteration();
  return other;
}

/** @param {Any} x @returns {Iterator<Any>} */
export const iterator = (x) => iter(x)[Symbol.iterator]();

/** @param {boolean} greatest */
const extreme = (greatest) => (/** @type {Any[]} */ ...args) => best(greatest, args.length === 1 ? list(args[0]) : args);

/** @param {boolean} greatest @param {Any[]} values @param {Any} [key] @param {Any} [other] */
export function best(greatest, values, key, other) {
  if (values.length === 0) {
    if (other === undefined) throw new ValueError("there is no greatest or least of nothing");
    return other;
  }
  const keyed = values.map((x) => (key ? key(x) : x));
  let at = 0;
  for (let i = 1; i < keyed.length; i++) if (greatest ? compare(keyed[i], keyed[at]) > 0 : compare(keyed[i], keyed[at]) < 0) at = i;
  return values[at];
}
export const max = extreme(true);
export const min = extreme(false);

/** @param {Any} x @param {((x: Any) => Any) | null} [key] @param {boolean} [reverse] */
export function sorted(x, key = null, reverse = false) {
  const rows = list(x).map((each) => [key ? key(each) : each, each]);
  rows.sort(reverse ? (a, b) => compare(b[0], a[0]) : (a, b) => compare(a[0], b[0]));
  return rows.map((row) => row[1]);
}

/** @param {Any} x @param {Any} key @returns {Any} x[key] */
export function item(x, key) {
  if (Array.isArray(x) || typeof x === "string" || x instanceof Uint8Array) {
    const found = x[key < 0 ? x.length + key : key];
    if (found === undefined) throw new KeyError(`there is no element ${repr(key)}`);
    return found;
  }
  if (x instanceof Dict) {
    if (!x.has(key)) throw new KeyError(repr(key));
    return x.get(key);
  }
  if (x?.__item__) return x.__item__(key);
  if (isObject(x)) return item(list(x), key);
  throw new TypeError_(`${repr(x)} has no elements`);
}

/** @param {Any} x @param {Any} key @param {Any} value */
export function setItem(x, key, value) {
  if (x instanceof Dict) x.set(key, value);
  else if (x?.__set_item__) x.__set_item__(key, value);
  else x[key < 0 ? x.length + key : key] = value;
}

/** A range among several indices: x[:, 1:]. */
export class Slice {
  /** @param {number | null} start @param {number | null} stop */
  constructor(start, stop) {
    this.start = start ?? 0;
    this.stop = stop;
  }
}

/** @param {Any} x @param {number | null} start @param {number | null} stop @param {number | null} step */
export function slice(x, start, stop, step) {
  if (step !== null && step !== 1) throw new ValueError("slices have a step of 1");
  return x.slice(start ?? 0, stop ?? undefined);
}

/**
 * What an assignment takes apart.
 * @param {Any} x @param {number} count how many targets there are @param {number} [star] which of them takes all that the others leave
 * @returns {Any[]}
 */
export function unpacked(x, count, star) {
  const values = Array.isArray(x) ? x : list(x);
  if (star === undefined ? values.length !== count : values.length < count - 1) {
    throw new ValueError(`${values.length} values to unpack, ${count} expected`);
  }
  if (star === undefined) return values;
  const rest = values.length - count + 1;
  return [...values.slice(0, star), values.slice(star, star + rest), ...values.slice(star + rest)];
}

/** The result of `x += y`: lists, which would be lengthened in place, have none. @param {Any} x */
export function rebound(x) {
  if (Array.isArray(x) || x instanceof Dict) throw new TypeError_("lists and dicts are not added to in place");
  return x;
}

// Types

/** @param {Any} [x] @returns {number} */
export function int(x = 0) {
  if (typeof x !== "string") return Math.trunc(Number(x));
  if (!/^\s*[+-]?\d+(_\d+)*\s*$/.test(x)) throw new ValueError(`invalid literal for int() with base 10: ${repr(x)}`);
  return Number(x.replaceAll("_", ""));
}
/** @param {Any} [x] */
export const float = (x = 0) => Number(x === "inf" ? Infinity : x === "-inf" ? -Infinity : x);
/** @param {Any} [x] */
export const bool = (x = false) => truth(x);
/** @param {number} x */
export const abs = (x) => Math.abs(x);
/** @param {number} x @returns {number} halves to even */
export function round(x) {
  const low = Math.floor(x);
  const rest = x - low;
  return rest < 0.5 || (rest === 0.5 && low % 2 === 0) ? low : low + 1;
}
/** @param {number} a @param {number} b */
export const divmod = (a, b) => [floordiv(a, b), mod(a, b)];
/** @param {number} size */
export const bytearray = (size) => new Uint8Array(size);
/** @param {Uint8Array} x */
export const bytes = (x) => Uint8Array.from(x);
/** @param {Any} x */
export const type = (x) => x.constructor;
/** @param {Any} x */
export const callable = (x) => typeof x === "function";

/** @param {Any} x @param {Any} types @returns {boolean} */
export function isinstance(x, types) {
  if (Array.isArray(types)) return types.some((each) => isinstance(x, each));
  if (types === int) return Number.isInteger(x) || typeof x === "boolean";
  if (types === float) return typeof x === "number";
  if (types === bool) return typeof x === "boolean";
  if (types === str) return typeof x === "string";
  if (types === list) return Array.isArray(x);
  if (types === dict) return x instanceof Dict;
  if (types === frozenset) return x instanceof PySet;
  if (types === type) return isClass(x);
  return x instanceof types;
}

/** @param {Any} x */
const isClass = (x) => typeof x === "function" && x.prototype instanceof PyObject;
/** @param {Any} cls @param {Any} types @returns {boolean} */
export const issubclass = (cls, types) => (Array.isArray(types) ? types : [types]).some((each) => cls.__mro__.includes(each));
/** @param {Any} x @param {string} name */
export const hasattr = (x, name) => x !== null && typeof x === "object" && name in x;

/** @param {Any} x @param {string} name @param {Any} [other] */
export function getattr(x, name, other) {
  if (x !== null && x !== undefined && (typeof x === "object" || typeof x === "function") && name in x) return x[name];
  if (other === undefined) throw new AttributeError(`${repr(x)} has no ${name}`);
  return other;
}

/** @param {Any} x @returns {Dict} */
export const vars = (x) => new Dict(fieldNames(x).map((name) => [name, x[name]]));

// Classes

/** What all translated classes come from. */
export class PyObject {
  /** @param {...Any} args in the order of a dataclass's fields, those that Python takes by keyword alone last */
  constructor(...args) {
    const { __fields__: fields = [], __arguments__: given = [], __places__: places = [] } = new.target;
    if (args.length > given.length) throw new TypeError_(`${new.target.__name__}() takes ${given.length} values, not ${args.length}`);
    for (let i = 0; i < fields.length; i++) {
      const field = fields[i];
      const value = args[places[i]] ?? (args[places[i]] === undefined ? field.make() : null);
      if (value === undefined) throw new TypeError_(`${new.target.__name__}() lacks ${field.name}`);
      if (field.name in this) Object.defineProperty(this, field.name, { value, enumerable: true }); // a property of a base gives way
      else /** @type {Any} */ (this)[field.name] = value;
    }
    /** @type {Any} */ (this).__post_init__?.();
  }

  /** @type {Field[] | undefined} */ static __fields__;
  /** @type {Field[] | undefined} */ static __arguments__; // what a call gives, in its order
  /** @type {number[] | undefined} */ static __places__; // of each field among them
  /** @type {Any[]} */ static __mro__ = [PyObject];
  static __name__ = "object";
  static __identity__ = false; // whether objects compare by identity
  static __order__ = false;

  /** @param {Any} x */
  static [Symbol.hasInstance](x) {
    return typeof x === "object" && x !== null && (x.constructor?.__mro__?.includes(this) ?? false);
  }

  toString() {
    return str(this);
  }
}

/** A field of a dataclass. */
export class Field {
  /** @param {string} name @param {Any} value its default, undefined for none @param {Any} more */
  constructor(name, value, { metadata = new Dict(), keyword = false, init = true, hint = null, factory = null } = {}) {
    this.name = name;
    this.default = value;
    this.metadata = metadata;
    this.keyword = keyword;
    this.init = init;
    this.hint = hint;
    this.factory = factory;
    this.__host__ = true;
  }

  make() {
    return this.factory ? this.factory() : this.default;
  }
}

/**
 * Finish a translated class: what it inherits, in Python's order, its attributes and its fields.
 * @param {Any} cls @param {string} name @param {Any[]} bases
 * @param {{attributes?: Record<string, Any>, fields?: Field[], order?: boolean, identity?: boolean, tuple?: boolean}} more
 */
export function define(cls, name, bases, { attributes = {}, fields, order = false, identity = false, tuple: iterable = false } = {}) {
  const mro = [cls, ...linearized(bases.length ? bases : [PyObject])];
  const own = { prototype: members(cls.prototype), cls: members(cls) };
  for (const [key, value] of Object.entries(attributes)) {
    own.prototype[key] = own.cls[key] = { value, configurable: true, writable: true };
  }
  inherit(cls.prototype, [own.prototype, ...mro.slice(1).map((base) => base.__own__?.prototype ?? {})]);
  inherit(cls, [own.cls, ...mro.slice(1).map((base) => base.__own__?.cls ?? {})]);
  const inherited = new Map();
  for (const base of mro.slice(1).reverse()) for (const field of base.__own__?.every ?? []) inherited.set(field.name, field);
  for (const field of fields ?? []) inherited.set(field.name, field);
  const every = [...inherited.values()];
  const given = [...every.filter((f) => !f.keyword), ...every.filter((f) => f.keyword)].filter((f) => f.init);
  const statics = {
    __name__: name, __mro__: mro, __own__: { ...own, every }, __identity__: identity,
    __order__: order, __fields__: fields || every.length ? every : undefined,
    __arguments__: given, __places__: every.map((field) => given.indexOf(field)),
  };
  for (const [key, value] of Object.entries(statics)) Object.defineProperty(cls, key, { value, configurable: true });
  if (iterable) {
    Object.defineProperty(cls.prototype, Symbol.iterator, { value() { return fieldNames(this).map((each) => this[each])[Symbol.iterator](); } });
    Object.defineProperty(cls, "_fields", { value: every.map((field) => field.name) });
  }
  return cls;
}

const RESERVED = new Set(["constructor", "prototype", "length", "name"]); // that JavaScript's classes have

/** @param {Any} target @param {Record<string, PropertyDescriptor>[]} owners the first that has a name gives it */
function inherit(target, owners) {
  const seen = new Set();
  for (const owner of owners) {
    for (const [name, descriptor] of Object.entries(owner)) if (!seen.has(name)) Object.defineProperty(target, name, descriptor), seen.add(name);
  }
}

/** @param {Any} from @returns {Record<string, PropertyDescriptor>} */
function members(from) {
  const kept = Object.entries(Object.getOwnPropertyDescriptors(from)).filter(([name]) => !RESERVED.has(name));
  return Object.fromEntries(kept);
}

/** @param {Any[]} bases @returns {Any[]} the C3 linearization of their orders */
function linearized(bases) {
  const queues = [...bases.map((base) => [...base.__mro__]), [...bases]];
  const order = [];
  for (;;) {
    const left = queues.filter((queue) => queue.length);
    if (!left.length) return order;
    const head = left.map((queue) => queue[0]).find((each) => !left.some((queue) => queue.indexOf(each) > 0));
    if (!head) throw new TypeError_("the bases have no order");
    order.push(head);
    for (const queue of left) if (queue[0] === head) queue.shift();
  }
}

/** `super().name` of a method of `cls`. @param {Any} cls @param {Any} self @param {string} name */
export function parent(cls, self, name) {
  const isStatic = typeof self === "function";
  const mro = (isStatic ? self : self.constructor).__mro__;
  for (const base of mro.slice(mro.indexOf(cls) + 1)) {
    const descriptor = base.__own__?.[isStatic ? "cls" : "prototype"][name];
    if (!descriptor) continue;
    if (descriptor.get) return descriptor.get.call(self);
    return typeof descriptor.value === "function" ? descriptor.value.bind(self) : descriptor.value;
  }
  throw new AttributeError(`no base of ${cls.__name__} has ${name}`);
}

/** @param {Any} x a dataclass or an object of one @returns {string[]} */
const fieldNames = (x) => (x.__fields__ ?? x.constructor.__fields__).map((/** @type {Field} */ field) => field.name);

/** A property that is computed once. @param {Any} self @param {string} name @param {() => Any} compute */
export function cached(self, name, compute) {
  const value = compute();
  Object.defineProperty(self, name, { value });
  return value;
}

// Calls

/** @type {WeakMap<Function, string[]>} names of parameters, where calls give them by keyword */
const parameters = new WeakMap();

/** @template {Function} F @param {F} f @param {string} names with blanks between, "**" where it takes all keywords as one object @returns {F} */
export function signed(f, names) {
  parameters.set(f, names.split(" ").filter(Boolean));
  return f;
}

/** Python's f(*args, **kwargs). @param {Any} f a function or a class @param {Any[]} [args] @param {Dict | Record<string, Any>} [kwargs] */
export function call(f, args = [], kwargs = {}) {
  const named = kwargs instanceof Dict ? [...kwargs] : Object.entries(kwargs);
  const all = [...args];
  if (named.length) {
    const names = isClass(f) ? f.__arguments__.map((/** @type {Field} */ each) => each.name) : parameters.get(f);
    if (names?.[0] === "**") return f(...args, Object.fromEntries(named));
    for (const [name, value] of named) {
      const at = names?.indexOf(name) ?? -1;
      if (at < 0 || at < args.length) throw new TypeError_(`${f.__name__ ?? f.name}() takes no ${name}${at < 0 ? "" : " besides"}`);
      all[at] = value;
    }
  }
  return isClass(f) ? new f(...all) : f(...all);
}
export const make = call;

/** A method with keywords. @param {Any} x @param {string} name @param {Any[]} args @param {Dict | Record<string, Any>} kwargs */
export function invoke(x, name, args, kwargs) {
  const f = x[name];
  const bindable = (/** @type {Any[]} */ ...all) => f.apply(x, all);
  const names = parameters.get(f);
  return call(names ? signed(bindable, names.join(" ")) : bindable, args, kwargs);
}

/** @param {...(Dict | Record<string, Any>)} parts @returns {Dict} */
export const kwargs = (...parts) => new Dict(parts.flatMap((part) => (part instanceof Dict ? [...part] : Object.entries(part))));

/** @type {Map<string, Function>} what stands in for functions that only Python has */
const provided = new Map();

/** A function that only Python has, unless `provide` gave another. @param {string} name @returns {(...args: Any[]) => Any} */
export function host(name) {
  return (...args) => {
    const f = provided.get(name);
    if (!f) throw new errors.WebmmError(`${name} is Python's alone`);
    return f(...args);
  };
}

/** Give JavaScript's version of a function that only Python has. @param {string} name @param {(...args: Any[]) => Any} f */
export const provide = (name, f) => void provided.set(name, f);

/** @template {(...args: Any[]) => Any} F @param {F} f @returns {F} which remembers its results by the values of its arguments */
export function remembered(f) {
  const known = new Dict();
  const remembering = (/** @type {Any[]} */ ...args) => {
    const key = args.length === 1 ? args[0] : args;
    if (!known.has(key)) {
      if (known.size >= 4096) known.clear();
      known.set(key, f(...args));
    }
    return known.get(key);
  };
  return /** @type {F} */ (remembering);
}

// Modules

export const dataclasses = {
  MISSING: undefined,
  /** @param {Any} x @returns {Field[]} */
  fields: (x) => x.__fields__ ?? x.constructor.__fields__,
  /** @param {Any} x @returns {Dict} */
  asdict: (x) => new Dict(fieldNames(x).map((name) => [name, plain(x[name])])),
  /** @param {Any} x @param {Dict | Record<string, Any>} [changes] */
  replace(x, changes = {}) {
    const changed = kwargs(changes);
    const fields = x.constructor.__arguments__;
    for (const name of changed.keys()) {
      if (!fields.some((/** @type {Field} */ field) => field.name === name)) throw new TypeError_(`${x.constructor.__name__}() takes no ${name}`);
    }
    return new x.constructor(...fields.map((/** @type {Field} */ { name }) => (changed.has(name) ? changed.get(name) : x[name])));
  },
};

/** @param {Any} x @returns {Any} */
function plain(x) {
  if (Array.isArray(x)) return x.map(plain);
  if (x instanceof Dict) return new Dict([...x].map(([key, value]) => [key, plain(value)]));
  return isObject(x) && x.constructor.__fields__ ? dataclasses.asdict(x) : x;
}

export const typing = {
  /** @param {Any} hint */
  get_args: (hint) => hint,
  /** @param {Any} cls */
  get_type_hints: (cls) => new Dict(dataclasses.fields(cls).map((field) => [field.name, field.hint])),
};

export const itertools = {
  /** @param {...Any} columns */
  product: (...columns) => columns.map(list).reduce((rows, column) => rows.flatMap((row) => column.map((x) => [...row, x])), [/** @type {Any[]} */ ([])]),
  /** @param {...Any} parts */
  chain: (...parts) => parts.flatMap(list),
};

export const functools = {
  /** @param {(a: Any, b: Any) => Any} f @param {Any} x */
  reduce: (f, x) => list(x).reduce((a, b) => f(a, b)),
};

export const math = {
  inf: Infinity,
  nan: NaN,
  sqrt: Math.sqrt,
  log2: Math.log2,
  ceil: Math.ceil,
  floor: Math.floor,
  isfinite: Number.isFinite,
  /** @param {Any} x */
  prod: (x) => list(x).reduce(mul, 1),
};

export const re = {
  /** @param {RegExp | string} pattern @param {string} by @param {string} text */
  sub: (pattern, by, text) => text.replace(typeof pattern === "string" ? new RegExp(pattern, "gu") : pattern, by.replaceAll("$", "$$$$").replace(/\\(\d)/g, "$$$1")),
};

/** A pattern's own methods. @param {RegExp} pattern @param {string} flags */
export function pattern(pattern, flags) {
  const compiled = new RegExp(pattern, flags);
  return Object.assign(compiled, { __host__: true, sub: (/** @type {string} */ by, /** @type {string} */ text) => re.sub(compiled, by, text) });
}

class StructError extends PythonError {}

const CODES = /** @type {Record<string, [number, string, number, number]>} */ ({
  I: [4, "setUint32", 0, 2 ** 32 - 1],
  i: [4, "setInt32", -(2 ** 31), 2 ** 31 - 1],
  f: [4, "setFloat32", -Infinity, Infinity],
  d: [8, "setFloat64", -Infinity, Infinity],
});

export const struct = {
  error: StructError,
  /** @param {string} format such as "<2I" @param {Uint8Array} data @param {number} offset @param {...number} values */
  pack_into(format, data, offset, ...values) {
    const [, count, code] = /** @type {RegExpExecArray} */ (/^<(\d*)([Iifd])$/.exec(format));
    const [size, setter, least, most] = CODES[code];
    const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    if (values.length !== Number(count || 1)) throw new StructError(`${format} takes ${count || 1} values, not ${values.length}`);
    values.forEach((value, i) => {
      if (!(value >= least && value <= most) && !Number.isNaN(value)) throw new StructError(`${value} is out of range`);
      if (code === "f" && Number.isFinite(value) && !Number.isFinite(Math.fround(value))) throw new OverflowError(`${value} is no float32`);
      /** @type {Any} */ (view)[setter](offset + i * size, value, true);
    });
  },
  /** @param {string} format @param {...number} values */
  pack(format, ...values) {
    const data = new Uint8Array(values.length * CODES[format.slice(-1)][0]);
    struct.pack_into(format, data, 0, ...values);
    return data;
  },
  /** @param {string} format of u32 alone @param {Uint8Array} data */
  unpack(format, data) {
    if (!/^<\d*I$/.test(format)) throw new StructError(`${format} is not unpacked`);
    const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    return Array.from({ length: data.byteLength / 4 }, (_, i) => view.getUint32(4 * i, true));
  },
};
