/** The methods of Python's builtin types. */

import { iter, list } from "./iteration.js";
import { AttributeError, isObject } from "./objects.js";
import { eq } from "./values.js";

/** The methods of strings, lists, dicts, sets and numbers, by name; `pop` is a list's. @type {Record<string, (x: any, ...args: any[]) => any>} */
const METHODS = {
  add: (x, value) => void x.add(value),
  append: (x, value) => void x.push(value),
  bit_length: (x) => (x === 0 ? 0 : Math.floor(Math.log2(Math.abs(x))) + 1),
  count: (x, value) =>
    typeof x === "string" ? x.split(value).length - 1 : x.filter((/** @type {any} */ each) => eq(each, value)).length,
  endswith: (x, end) => x.endsWith(end),
  extend: (x, values) => void x.push(...iter(values)),
  get: (x, key, other = null) => (x.has(key) ? x.get(key) : other),
  index: (x, value) => x.findIndex((/** @type {any} */ each) => eq(each, value)),
  isdecimal: (x) => /^\d+$/.test(x),
  items: (x) => [...x.entries()],
  join: (x, values) => list(values).join(x),
  keys: (x) => [...x.keys()],
  lower: (x) => x.toLowerCase(),
  pop: (x, index = -1) => x.splice(index, 1)[0],
  removeprefix: (x, start) => (x.startsWith(start) ? x.slice(start.length) : x),
  replace: (x, from, to) => x.replaceAll(from, () => to),
  rstrip: (x) => x.trimEnd(),
  setdefault: (x, key, value) => (x.has(key) ? x.get(key) : (x.set(key, value), value)),
  split: (x, by) => (by === undefined ? x.trim().split(/\s+/).filter(Boolean) : x.split(by)),
  splitlines: (x) => (x === "" ? [] : x.replace(/\n$/, "").split("\n")),
  startswith: (x, start) => (Array.isArray(start) ? start.some((each) => x.startsWith(each)) : x.startsWith(start)),
  strip: (x) => x.trim(),
  update: (x, other) => void [...other].forEach(([key, value]) => x.set(key, value)),
  upper: (x) => x.toUpperCase(),
  values: (x) => [...x.values()],
};

/** Call a method of a builtin type, or of an object that defines it. @param {string} name @param {any} x @param {...any} args */
export function method(name, x, ...args) {
  if (x === null || x === undefined) throw new AttributeError(`${x} has no ${name}()`);
  return isObject(x) || x.__host__ ? x[name](...args) : METHODS[name](x, ...args);
}
