/** Quantisation: scales, zero points and requantisation in fixed point, bit for bit as in webmm/problems/scheme.py. */

import { HostArray, sizeOf } from "../host.js";
import { round } from "../python.js";
import { asIntegers } from "./operands.js";

/** @import { Core } from "../bundle.js" */
/** The number mantissa·2^-shift; the mantissa has 31 bits, the highest one set. @typedef {[mantissa: number, shift: number]} FixedPoint */
/** One value for all rows or columns (`scalar`), or one for each. @typedef {{values: number[], scalar: boolean}} Terms */
/** What was checked of a product; `scaleC` is null if the result is not requantised. @typedef {{scaleA: Terms, zeroA: Terms, scaleB: Terms, zeroB: Terms, scaleC: number | null, zeroC: number, bias: Int32Array | null}} Scheme */

const MANTISSA_BITS = 31;
const MAX_SHIFT = 62; // for a 32-bit sum times a 31-bit mantissa

/** @param {Core} core @param {string} name @param {any} given @param {number} length @param {(x: number) => number} rounded @param {(x: number) => boolean} fits @param {(x: number) => Error} wrong the error for a number that does not @returns {Terms} */
function terms(core, name, given, length, rounded, fits, wrong) {
  const array = HostArray.from(given);
  const plain = typeof given === "number" || Array.isArray(given); // numbers as they are, not rounded to float32
  const all = plain ? [given].flat(Infinity) : [...(array.dtype === "float16" ? array.floats() : array.data)];
  core.check_length(name, array.shape, array.size, length);
  const values = all.map(rounded);
  const first = values.find((x) => !fits(x));
  if (first !== undefined) throw wrong(first);
  return { values, scalar: array.size === 1 };
}

/** @param {Core} core @param {string} name @param {any} given @param {number} length @returns {Terms} rounded to float32; throws ProblemError unless positive and finite */
export const checkedScale = (core, name, given, length) =>
  terms(core, name, given, length, Math.fround, (x) => x > 0 && x < Infinity, (x) => core.wrong_scale(name, x)); // prettier-ignore

/** @param {Core} core @param {string} name @param {any} given @param {number} length @param {any} dtype a translated `DType` @returns {Terms} */
export function checkedZero(core, name, given, length, dtype) {
  const [bottom, top] = core.integer_range(dtype);
  const fits = (/** @type {number} */ x) => Number.isInteger(x) && x >= bottom && x <= top;
  return terms(core, name, given, length, (x) => x, fits, (x) => core.wrong_zero(name, x, dtype)); // prettier-ignore
}

/** @param {Core} core @param {any} given @param {number} length @returns {Int32Array} */
export function checkedBias(core, given, length) {
  const array = HostArray.from(asIntegers(given));
  core.check_integer_bias(array.dtype, array.shape, length);
  return /** @type {Int32Array} */ (array.data);
}

/** Throw ProblemError if a sum of k products may exceed 32 bits. @param {Core} core @param {Scheme} scheme @param {number} k @param {any[]} types of the operands */
export function checkSums(core, { zeroA, zeroB, bias }, k, types) {
  const reach = [zeroA, zeroB].map(({ values }, i) => {
    const [bottom, top] = core.integer_range(types[i]);
    const least = values.reduce((least, each) => Math.min(least, each), top);
    const greatest = values.reduce((greatest, each) => Math.max(greatest, each), bottom);
    return core.furthest(types[i], least, greatest);
  });
  const added = bias ? bias.reduce((most, each) => Math.max(most, Math.abs(each)), 0) : 0;
  core.check_sums(k, ...reach, added);
}

/** @param {number} value above 0 @returns {FixedPoint} rounded to 31 bits, halves up */
function fixed(value) {
  let exponent = Math.floor(Math.log2(value)) + 1; // value = fraction·2^exponent, with the fraction in [1/2, 1)
  while (value / 2 ** exponent >= 1) exponent += 1;
  while (value / 2 ** exponent < 0.5) exponent -= 1;
  const mantissa = Math.floor((value / 2 ** exponent) * 2 ** MANTISSA_BITS + 0.5);
  const carried = mantissa === 2 ** MANTISSA_BITS; // rounding up produced one more bit
  return carried ? [mantissa / 2, MANTISSA_BITS - exponent - 1] : [mantissa, MANTISSA_BITS - exponent];
}

/** @param {FixedPoint} x @returns {FixedPoint} with a shift of 1 to 62; a multiplier that would need a larger shift turns every sum into 0 */
const clamped = ([mantissa, shift]) => [shift > MAX_SHIFT ? 0 : mantissa, clip(shift, 1, MAX_SHIFT)];

const bits = new DataView(new ArrayBuffer(4));
/** @param {number} x @returns {FixedPoint} in its place, the bits of the nearest float32 */
const bitsOf = (x) => (bits.setFloat32(0, x), [bits.getInt32(0), 0]);

/** @param {Scheme} scheme @param {string} out @returns the multipliers of rows and of columns, or the only one, two int32 each */
export function multipliers({ scaleA, scaleB, scaleC }, out) {
  /** @type {{row: FixedPoint[] | null, column: FixedPoint[] | null, multiplier: FixedPoint}} */
  const none = { row: null, column: null, multiplier: [0, 0] };
  if (out === "int32") return none;
  const factor = out === "float32" ? bitsOf : fixed;
  const whole = (/** @type {number} */ x) => (out === "float32" ? bitsOf(x) : clamped(fixed(x)));
  const [a, b, by] = [scaleA.values, scaleB.values, scaleC ?? 1];
  if (!scaleA.scalar && !scaleB.scalar) return { ...none, row: a.map(factor), column: b.map((x) => factor(x / by)) };
  if (!scaleA.scalar) return { ...none, row: a.map((x) => whole((x * b[0]) / by)) };
  if (!scaleB.scalar) return { ...none, column: b.map((x) => whole((a[0] * x) / by)) };
  return { ...none, multiplier: whole((a[0] * b[0]) / by) };
}

/** @param {Terms} zero @param {[number, number][] | null} multiplier @param {Int32Array | null} bias @param {number} length @returns {HostArray} [length, 4] int32: zero point, multiplier (two), bias of each row or column */
export function termsArray(zero, multiplier, bias, length) {
  const data = new Int32Array(4 * length);
  for (let i = 0; i < length; i++) {
    data[4 * i] = zero.values[zero.scalar ? 0 : i];
    if (multiplier) data.set(multiplier[i], 4 * i + 1);
    if (bias) data[4 * i + 3] = bias[i];
  }
  return new HostArray(data, [length, 4], "int32");
}

// Numbers to integers

/** Quantise blocks of numbers, as `spread()` in Python: each has a scale and a zero point. @param {Float32Array} x @param {number} block @param {number} bottom @param {number} top @param {boolean} symmetric */
export function spread(x, block, bottom, top, symmetric) {
  const blocks = x.length / block;
  const [q, scales, zeros] = [new Int32Array(x.length), new Float32Array(blocks), new Int32Array(blocks)];
  const middle = Math.floor((bottom + top + 1) / 2);
  const least = symmetric ? middle - (top - middle) : bottom;
  for (let i = 0; i < blocks; i++) {
    let [low, high] = [0, 0];
    for (let j = i * block; j < (i + 1) * block; j++) [low, high] = [Math.min(low, x[j]), Math.max(high, x[j])];
    const scale = Math.fround(symmetric ? Math.max(high, -low) / (top - middle) : (high - low) / (top - bottom));
    scales[i] = scale < 2 ** -126 ? 1 : scale; // for a block of zeros any scale will do
    zeros[i] = symmetric ? middle : clip(round(bottom - low / scales[i]), bottom, top);
    for (let j = i * block; j < (i + 1) * block; j++) q[j] = clip(round(x[j] / scales[i]) + zeros[i], least, top);
  }
  return { q, scales, zeros };
}

/** @param {number} x @param {number} low @param {number} high */
const clip = (x, low, high) => Math.min(Math.max(x, low), high);
