/** Quantisation in host memory: scales, zero points and requantisation in fixed point, bit for bit as in webmm/problems. */

import { ProblemError } from "../errors.js";
import { HostArray } from "../host.js";
import { provide, round } from "../python.js";
import { spelled } from "../text.js";
import { reshaped } from "./operands.js";

/** The number mantissa·2^-shift; the mantissa has 31 bits, the highest one set. @typedef {[mantissa: number, shift: number]} FixedPoint */
/** A translated `Scheme`. @typedef {{scale_a: HostArray, scale_b: HostArray, scale_c: number | null, by_row: boolean, by_column: boolean}} Scheme */

const MANTISSA_BITS = 31;
const MAX_SHIFT = 62; // for a 32-bit sum times a 31-bit mantissa

// What checks do with arrays

/** @type {Record<string, (x: HostArray, least: number, greatest: number) => unknown>} */
const CHECKS = {
  numbers_of: (x) => HostArray.from(x, { dtype: "float64" }), // which rounds no number
  name_of_dtype: ({ dtype }) => dtype,
  first_outside: (x, least, greatest) => x.data.find((each) => !(least <= each && each <= greatest)) ?? null,
  extremes(x, least, greatest) {
    for (const each of x.data) [least, greatest] = [Math.min(least, each), Math.max(greatest, each)];
    return [least, greatest];
  },
  single: (x) => (x.ndim ? null : x.data[0]),
};

/** @param {string} name @param {HostArray} x @param {boolean} whole */
function vector(name, x, whole) {
  if (whole && !x.data.every(Number.isInteger))
    throw new ProblemError(`${spelled(name)} is ${x.dtype}; zero points must be integers`);
  return reshaped(whole ? x : x.as("float32"), x.size === 1 ? [] : [x.size]);
}

for (const [name, f] of Object.entries({ ...CHECKS, vector })) provide(`webmm.problems.scheme.${name}`, f);

// Multipliers

/** @param {number} value above 0 @returns {FixedPoint} rounded to 31 bits, halves up */
function fixed(value) {
  let shift = MANTISSA_BITS - 1 - Math.floor(Math.log2(value));
  if (value * 2 ** shift < 2 ** (MANTISSA_BITS - 1)) shift += 1; // the logarithm was rounded up to a whole number
  if (value * 2 ** shift >= 2 ** MANTISSA_BITS - 0.5) shift -= 1; // rounding would produce one more bit
  return [Math.floor(value * 2 ** shift + 0.5), shift];
}

/** @param {FixedPoint} x @returns {FixedPoint} with a shift of 1 to 62; a multiplier that would need a larger shift turns every sum into 0 */
const clamped = ([mantissa, shift]) => [shift > MAX_SHIFT ? 0 : mantissa, clip(shift, 1, MAX_SHIFT)];

/** @param {number} x @returns {FixedPoint} in its place, the bits of the nearest float32 */
const bitsOf = (x) => [new Int32Array(Float32Array.of(x).buffer)[0], 0];

/** @param {Scheme} scheme @param {{name: string}} out @returns {[FixedPoint[] | null, FixedPoint[] | null, FixedPoint]} the multipliers of rows and of columns, or the only one */
function multipliers({ scale_a, scale_b, scale_c, by_row, by_column }, { name }) {
  if (name === "int32") return [null, null, [0, 0]];
  const [a, b, by] = [[...scale_a.data], [...scale_b.data], scale_c ?? 1];
  const factor = name === "float32" ? bitsOf : fixed;
  if (by_row && by_column) return [a.map(factor), b.map((y) => factor(y / by)), [0, 0]];
  const whole = (/** @type {number} */ x) => (name === "float32" ? bitsOf(x) : clamped(fixed(x / by)));
  const each = a.flatMap((x) => b.map((y) => whole(x * y)));
  return [by_row ? each : null, by_column ? each : null, by_row || by_column ? [0, 0] : each[0]];
}

/** @param {number} length @param {HostArray} zero @param {FixedPoint[] | null} multiplier @param {HostArray | null} bias @returns {HostArray} [length, 4] int32: zero point, multiplier (two), bias of each row or column */
function terms(length, zero, multiplier, bias) {
  const data = new Int32Array(4 * length);
  for (let i = 0; i < length; i++)
    data.set([zero.data[zero.ndim && i], ...(multiplier?.[i] ?? [0, 0]), bias?.data[i] ?? 0], 4 * i);
  return new HostArray(data, [length, 4], "int32");
}

provide("webmm.problems.quantized.multipliers_of", multipliers);
provide("webmm.problems.quantized.terms_of", terms);

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
