// @ts-check
/** What the compiler of expressions, which is translated, asks of numbers: as in webmm/wgsl/expressions.py. */

import { MEANINGS } from "./check.js";
import { ProblemError } from "./errors.js";
import { make } from "./python.js";

/** @import { Python } from "./bundle.js" */

/** @type {Record<string, (...x: any[]) => any>} the operations of numbers */
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
  "&&": (x, y) => x && y,
  "||": (x, y) => x || y,
  select: (condition, x, y) => (condition ? x : y),
  exp: Math.exp,
  log: Math.log,
  sqrt: Math.sqrt,
  tanh: Math.tanh,
  abs: Math.abs,
  maximum: (x, y) => (Number.isNaN(x) ? x : Number.isNaN(y) || y > x ? y : x),
  minimum: (x, y) => (Number.isNaN(x) ? x : Number.isNaN(y) || y < x ? y : x),
  isnan: Number.isNaN,
  float32: Number,
  int32: (x) => (Number.isNaN(x) ? 0 : Math.max(-(2 ** 31), Math.min(2 ** 31 - 1, Math.trunc(Number(x))))),
  bool: Boolean,
  ...MEANINGS,
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
};
/** Those whose results are floats. */
const REAL = ["/", "exp", "log", "sqrt", "tanh", "float32", "sigmoid", "relu", "gelu", "gelu_tanh", "silu"];

/** @param {string} operation @param {any[]} values */
function computed(operation, values) {
  return OPERATIONS[operation](...values);
}

/** An operation of elements, for the translated `evaluated()`; int32 wrap around. @param {string} operation @param {string} kind of the result @param {any[]} terms */
export function apply(operation, kind, terms) {
  if (kind === "i32" && operation === "*") return Math.imul(terms[0], terms[1]);
  const value = computed(operation, terms);
  return kind === "i32" ? value | 0 : value;
}

/** @param {any} compiler the translated module @returns {Python} a translated `Numbers` */
export function numbersOf(compiler) {
  const wordsOf = (/** @type {any} */ { source }) =>
    source.length <= compiler.SHOWN ? source : `${source.slice(0, compiler.SHOWN)}…`;
  /** @param {any} value @param {string} kind */
  const constant = (value, kind) => {
    if (kind === "bool") return make(compiler.Compiled, [value ? "true" : "false", kind], { value: Boolean(value) });
    if (kind === "i32") {
      if (value !== (value | 0)) throw new ProblemError(`${value} does not fit int32`);
      return make(compiler.Compiled, [`i32(${value})`, kind], { value });
    }
    const number = Math.fround(Number(value));
    if (!Number.isFinite(number) && Number.isFinite(value)) throw new ProblemError(`${value} does not fit float32`);
    const size = Math.abs(number);
    const wgsl = size >= 2 ** -16 && size <= 2 ** 16 ? `f32(${asFloat(number)})` : `constant_f32(0x${bits(number)}u)`;
    return make(compiler.Compiled, [wgsl, kind], { value: number, depth: 2 });
  };
  /** @param {string} operation @param {any[]} given */
  const literal = (operation, given) => {
    if (operation === "/" && !Number(given[1].value))
      throw new ProblemError("division by zero in a part without operands");
    const value = computed(operation, given.map((x) => x.value)); // prettier-ignore
    const real = REAL.includes(operation) || given.some((x) => x.form === "float");
    return make(compiler.Literal, [value, typeof value === "boolean" ? "bool" : real ? "float" : "int"]);
  };
  /** @param {string} operation @param {any[]} terms @param {string} kind */
  const folded = (operation, terms, kind) => constant(computed(operation, terms.map((x) => x.value)), kind); // prettier-ignore
  return make(compiler.Numbers, [literal, folded, (/** @type {any} */ x, /** @type {string} */ kind) => constant(x.value, kind), wordsOf, compiler.shown]); // prettier-ignore
}

/** @param {number} x of usual size @returns {string} as Python writes a float */
function asFloat(x) {
  if (Number.isInteger(x)) return `${x}.0`;
  return Math.abs(x) < 1e-4 ? x.toExponential().replace(/e-(\d)$/, "e-0$1") : String(x);
}

/** @param {number} x @returns {string} the bits of a float32, in hexadecimal */
const bits = (x) => new Uint32Array(new Float32Array([x]).buffer)[0].toString(16).padStart(8, "0");
