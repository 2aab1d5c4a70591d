/** Python's builtin functions, and the methods of its builtin types. */

import { AttributeError, Dict, HashTable, KeyError, PySet, PythonError, TypeError_, ValueError } from "./values.js";
import { add, compare, eq, floordiv, isObject, mod, mul, repr, truth } from "./values.js";

// Types

/** @param {number} x @returns {number} the nearest integer, halves to even */
export function round(x) {
  const low = Math.floor(x);
  const rest = x - low;
  return rest < 0.5 || (rest === 0.5 && low % 2 === 0) ? low : low + 1;
}
/** @type {Record<string, (...x: any[]) => any>} */
export const { int, float, bool, abs, divmod, bytearray, bytes, type, issubclass, hasattr, vars } = {
  int(x = 0) {
    if (typeof x !== "string") return Math.trunc(Number(x));
    if (!/^\s*[+-]?\d+(_\d+)*\s*$/.test(x)) throw new ValueError(`invalid literal for int() with base 10: ${repr(x)}`);
    return Number(x.replaceAll("_", ""));
  },
  float: (x = 0) => Number(x === "inf" ? Infinity : x === "-inf" ? -Infinity : x),
  bool: (x = false) => truth(x),
  abs: (x) => Math.abs(x),
  divmod: (a, b) => [floordiv(a, b), mod(a, b)],
  bytearray: (size) => new Uint8Array(size),
  bytes: (x) => Uint8Array.from(x),
  type: (x) => x.constructor,
  issubclass: (cls, types) => (Array.isArray(types) ? types : [types]).some((each) => cls.__mro__.includes(each)),
  hasattr: (x, name) => x !== null && typeof x === "object" && name in x,
  vars: (x) => new Dict(Object.entries(x)),
};

/** @param {any} x @param {string} name @param {any} [other] */
export function getattr(x, name, other) {
  if (x !== null && x !== undefined && (typeof x === "object" || typeof x === "function") && name in x) return x[name];
  if (other === undefined) throw new AttributeError(`${repr(x)} has no ${name}`);
  return other;
}

// Iteration, indexing and slicing

/** @param {any} x @returns {Iterable<any>} the values of a for loop over it; a dict's keys */
export function iter(x) {
  if (x instanceof Dict) return x.keys();
  if (x === null || x === undefined || typeof x[Symbol.iterator] !== "function")
    throw new TypeError_(`${repr(x)} is not iterable`);
  return x;
}

/** @param {any} [x] @returns {any[]} */
export const list = (x = []) => [...iter(x)];
export const tuple = list;
/** @param {any} [x] */
export const frozenset = (x = []) => new PySet(iter(x));
export const set = frozenset;
/** @param {any} [x] @param {Record<string, any>} [named] */
export const dict = (x = [], named = {}) =>
  new Dict(/** @type {[any, any][]} */ ([...(x instanceof Dict ? x : list(x).map(list)), ...Object.entries(named)]));
/** @param {Iterable<any>} keys @param {any} [value] */
dict.fromkeys = (keys, value = null) => new Dict(list(keys).map((key) => [key, value]));

/** @param {any} x @returns {number} */
export function len(x) {
  if (typeof x === "string" || Array.isArray(x) || x instanceof Uint8Array) return x.length;
  if (x instanceof HashTable) return x.size;
  throw new TypeError_(`${repr(x)} has no length`);
}

/** @param {number} start @param {number} [stop] @param {number} [step] @returns {number[]} */
export function range(start, stop, step = 1) {
  if (stop === undefined) [start, stop] = [0, start];
  return Array.from({ length: Math.max(0, Math.ceil((stop - start) / step)) }, (_, i) => start + i * step);
}

/** @type {Record<string, (...x: any[]) => any>} */
export const { enumerate, reversed, zip, map, sum, prod, next, iterator, any, all, max, min } = {
  enumerate: (x, start = 0) => list(x).map((each, i) => [i + start, each]),
  reversed: (x) => list(x).reverse(),
  zip: (...columns) => zipped(false, columns),
  map: (f, x) => list(x).map((each) => f(each)),
  sum: (x, start = 0) => list(x).reduce(add, start),
  prod: (x) => list(x).reduce(mul, 1),
  next(x, other) {
    const step = x[Symbol.iterator]().next();
    if (!step.done) return step.value;
    if (other === undefined) throw new PythonError("next() found no value");
    return other;
  },
  iterator: (x) => iter(x)[Symbol.iterator](),
  any(x) {
    for (const each of iter(x)) if (truth(each)) return true;
    return false;
  },
  all(x) {
    for (const each of iter(x)) if (!truth(each)) return false;
    return true;
  },
  max: (...x) => best(true, x.length === 1 ? list(x[0]) : x),
  min: (...x) => best(false, x.length === 1 ? list(x[0]) : x),
};

/** @param {boolean} strict @param {any[]} columns @returns {any[][]} */
export function zipped(strict, columns) {
  const lists = columns.map(list);
  const length = Math.min(...lists.map((each) => each.length));
  if (strict && lists.some((each) => each.length !== length))
    throw new ValueError("zip() needs arguments of equal length");
  return Array.from({ length }, (_, i) => lists.map((each) => each[i]));
}

/** @param {any} x @param {any} container @returns {boolean} */
export function contains(x, container) {
  if (typeof container === "string") return container.includes(x);
  if (container instanceof HashTable) return container.has(x);
  for (const each of iter(container)) if (eq(each, x)) return true;
  return false;
}
/** @param {boolean} greatest @param {any[]} values @param {any} [key] @param {any} [other] */
export function best(greatest, values, key, other) {
  if (!values.length && other === undefined) throw new ValueError("max() and min() need at least one value");
  const [keys, sign] = [key ? values.map((x) => key(x)) : values, greatest ? 1 : -1];
  const at = keys.reduce((found, x, i) => (sign * compare(x, keys[found]) > 0 ? i : found), 0);
  return values.length ? values[at] : other;
}

/** @param {any} x @param {((x: any) => any) | null} [key] @param {boolean} [reverse] */
export function sorted(x, key = null, reverse = false) {
  const rows = list(x).map((each) => [key ? key(each) : each, each]);
  rows.sort(reverse ? (a, b) => compare(b[0], a[0]) : (a, b) => compare(a[0], b[0]));
  return rows.map((row) => row[1]);
}

/** @param {any} x @param {any} key @returns {any} x[key] */
export function item(x, key) {
  if (Array.isArray(x) || typeof x === "string" || x instanceof Uint8Array) {
    const found = x[key < 0 ? x.length + key : key];
    if (found === undefined) throw new KeyError(`index ${repr(key)} is out of range`);
    return found;
  }
  if (x instanceof Dict) {
    if (!x.has(key)) throw new KeyError(repr(key));
    return x.get(key);
  }
  if (isObject(x)) return item(list(x), key);
  throw new TypeError_(`${repr(x)} cannot be indexed`);
}

/** @param {any} x @param {any} key @param {any} value */
export function setItem(x, key, value) {
  if (x instanceof Dict) x.set(key, value);
  else x[key < 0 ? x.length + key : key] = value;
}

/** @param {any} x @param {number} count of the targets that it is assigned to @param {number} [after] if one is starred, how many follow it: it takes what comes last here @returns {any[]} */
export function unpacked(x, count, after) {
  const values = Array.isArray(x) ? x : list(x);
  if (after === undefined ? values.length !== count : values.length < count - 1)
    throw new ValueError(`${values.length} values to unpack, ${count} expected`);
  if (!after) return values;
  const first = count - 1 - after;
  return [...values.slice(0, first), ...values.slice(-after), ...values.slice(first, -after)];
}

/** Check the left operand of `x += y`, which is translated to `x = x + y`: lists and dicts would change in place. @param {any} x */
export function rebound(x) {
  if (Array.isArray(x) || x instanceof Dict) throw new TypeError_("+= is not supported for lists and dicts");
  return x;
}

/** @template T, U @param {Iterable<T>} values @param {(x: T) => Promise<U>} f @returns {Promise<U[]>} the results, each awaited before the next call */
export async function awaited(values, f) {
  const found = [];
  for (const each of values) found.push(await f(each));
  return found;
}

// Methods

/** The methods of strings, lists, dicts, sets and numbers that JavaScript has not; `pop` is a list's. @type {Record<string, (x: any, ...args: any[]) => any>} */
const METHODS = {
  add: (x, value) => void x.add(value),
  append: (x, value) => void x.push(value),
  bit_length: (x) => (x === 0 ? 0 : Math.floor(Math.log2(Math.abs(x))) + 1),
  count: (x, value) =>
    typeof x === "string" ? x.split(value).length - 1 : x.filter((/** @type {any} */ each) => eq(each, value)).length,
  extend: (x, values) => void x.push(...iter(values)),
  get: (x, key, other = null) => (x.has(key) ? x.get(key) : other),
  index: (x, value) => x.findIndex((/** @type {any} */ each) => eq(each, value)),
  items: (x) => (x.entries ? [...x.entries()] : Object.entries(x)), // a record's settings are a plain object
  keys: (x) => [...x.keys()],
  pop: (x, index = -1) => x.splice(index, 1)[0],
  removeprefix: (x, start) => (x.startsWith(start) ? x.slice(start.length) : x),
  replace: (x, from, to) => x.replaceAll(from, () => to),
  setdefault: (x, key, value) => (x.has(key) ? x.get(key) : (x.set(key, value), value)),
  split: (x, by) => (by === undefined ? x.trim().split(/\s+/).filter(Boolean) : x.split(by)),
  splitlines: (x) => (x === "" ? [] : x.replace(/\n$/, "").split("\n")),
  startswith: (x, start) => (Array.isArray(start) ? start.some((each) => x.startsWith(each)) : x.startsWith(start)),
  update: (x, other) => void [...other].forEach(([key, value]) => x.set(key, value)),
  values: (x) => [...x.values()],
};

/** Call a method of a builtin type, or of an object that defines it. @param {string} name @param {any} x @param {...any} args */
export function method(name, x, ...args) {
  if (x === null || x === undefined) throw new AttributeError(`${x} has no ${name}()`);
  return isObject(x) ? x[name](...args) : METHODS[name](x, ...args);
}
