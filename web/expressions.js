/** What the compiler of expressions, which is translated, asks of numbers: as in webmm/wgsl/expressions.py. */

import { MEANINGS } from "./check.js";

/** @import { Python } from "./bundle.js" */

/** The operations of numbers, but for those that are functions of Math under the same name. @type {Record<string, (...x: any[]) => any>} */
const OPERATIONS = {
  "+": (x, y) => x + y,
  "-": (x, y) => x - y,
  "*": (x, y) => x * y,
  "/": (x, y) => x / y,
  negate: (x) => -x,
  not: (x) => !x,
  "<": (x, y) => x < y,
  "<=": (x, y) => x <= y,
  ">": (x, y) => x > y,
  ">=": (x, y) => x >= y,
  "==": (x, y) => x === y,
  "!=": (x, y) => x !== y,
  "&&": (x, y) => (typeof x === "boolean" ? x && y : x & y),
  "||": (x, y) => (typeof x === "boolean" ? x || y : x | y),
  "^": (x, y) => (typeof x === "boolean" ? x !== y : x ^ y),
  "//": (x, y) => Math.floor(x / y),
  "%": (x, y) => x - y * Math.floor(x / y),
  "**": (x, y) => x ** y,
  "<<": (x, y) => x * 2 ** y,
  ">>": (x, y) => Math.floor(x / 2 ** y),
  complement: (x) => ~x,
  select: (condition, x, y) => (condition ? x : y),
  maximum: (x, y) => (Number.isNaN(x) ? x : Number.isNaN(y) || y > x ? y : x),
  minimum: (x, y) => (Number.isNaN(x) ? x : Number.isNaN(y) || y < x ? y : x),
  isnan: Number.isNaN,
  float32: Number,
  int32: (x) => (Number.isNaN(x) ? 0 : Math.max(-(2 ** 31), Math.min(2 ** 31 - 1, Math.trunc(Number(x))))),
  bool: Boolean,
  ...MEANINGS,
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
  exp2: (x) => 2 ** x,
  logaddexp: (x, y) => (x === y ? x + Math.LN2 : Math.max(x, y) + Math.log1p(Math.exp(-Math.abs(x - y)))),
  copysign: (x, y) => (negative(x) === negative(y) ? x : -x),
  nextafter: (x, y) => next(Math.fround(x), Math.fround(y)),
  round: (x) => (Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x)),
  signbit: (x) => negative(x),
  isinf: (x) => Math.abs(x) === Infinity,
  isfinite: Number.isFinite,
};
const negative = (/** @type {number} */ x) => x < 0 || Object.is(x, -0);

/** @param {number} x @param {number} y @returns {number} the float32 after `x`, towards `y` */
function next(x, y) {
  if (Number.isNaN(x) || Number.isNaN(y) || x === y) return x === y ? y : NaN;
  if (x === 0) return y > 0 ? 2 ** -149 : -(2 ** -149);
  const found = new Float32Array([x]);
  new Int32Array(found.buffer)[0] += y > x === x > 0 ? 1 : -1;
  return found[0];
}

/** @param {string} operation @param {any[]} values */
const computed = (operation, values) => (OPERATIONS[operation] ?? /** @type {any} */ (Math)[operation])(...values);

/** An operation of elements, for the translated `evaluated()`; int32 wrap around. @param {string} operation @param {string} kind of the result @param {any[]} terms */
export function apply(operation, kind, terms) {
  if (kind === "i32" && operation === "*") return Math.imul(terms[0], terms[1]);
  const value = computed(operation, terms);
  return kind === "i32" ? value | 0 : value;
}

/** @param {any} compiler the translated module @returns {Python} a translated `Numbers` */
export const numbersOf = (compiler) => compiler.numbers_of(computed, Math.fround, asFloat, bits);

/** @param {number} x of usual size @returns {string} as Python writes a float */
function asFloat(x) {
  if (Number.isInteger(x)) return `${x}.0`;
  return Math.abs(x) < 1e-4 ? x.toExponential().replace(/e-(\d)$/, "e-0$1") : String(x);
}

/** @param {number} x @returns {string} the bits of a float32, in hexadecimal */
const bits = (x) => new Uint32Array(new Float32Array([x]).buffer)[0].toString(16).padStart(8, "0");
