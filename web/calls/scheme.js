// @ts-check
/** Quantisation: scales, zero points and requantisation in fixed point, bit for bit as in webmm/problems/scheme.py. */

import { ProblemError } from "../errors.js";
import { HostArray } from "../host.js";

/** The number mantissa·2^-shift; the mantissa has 31 bits, the highest one set. @typedef {{mantissa: number, shift: number}} FixedPoint */
/** One value for all rows or columns (`scalar`), or one for each. @typedef {{values: number[], scalar: boolean}} Terms */
/**
 * The checked scales, zero points and bias of a product; `scaleC` is null if the result is not requantised.
 * @typedef {{scaleA: Terms, zeroA: Terms, scaleB: Terms, zeroB: Terms, scaleC: number | null, zeroC: number, bias: Int32Array | null}} Scheme
 */

const MANTISSA_BITS = 31;
const MAX_SHIFT = 62; // for a 32-bit sum times a 31-bit mantissa
const SUM_LIMIT = 2 ** 31 - 1;
/** The smallest and the largest integer of a type. @type {Record<string, [number, number]>} */
export const LIMITS = { int8: [-128, 127], uint8: [0, 255] };

/** @param {string} name @param {any} given @param {number} length @returns {Terms} */
function terms(name, given, length) {
  const array =
    typeof given === "number" ? new HostArray(Float32Array.of(given), [], "float32") : HostArray.from(given);
  const values =
    typeof given === "number"
      ? [given]
      : Array.isArray(given)
        ? /** @type {number[]} */ (given.flat(Infinity))
        : [...array.as(array.dtype === "float16" ? "float32" : array.dtype).data];
  if (array.size === 1) return { values, scalar: true };
  if (array.size !== length || array.ndim > 2 || Math.max(...array.shape) !== array.size) {
    throw new ProblemError(`${name} has shape [${array.shape}]; it must be a number, or one for each of ${length}`);
  }
  return { values, scalar: false };
}

/** @param {string} name @param {any} given @param {number} length @returns {Terms} rounded to float32; throws ProblemError unless positive and finite */
export function checkedScale(name, given, length) {
  const { values, scalar } = terms(name, given, length);
  const rounded = values.map(Math.fround);
  const wrong = rounded.find((scale) => !(scale > 0 && Number.isFinite(scale)));
  if (wrong !== undefined) throw new ProblemError(`${name} must be positive and finite in float32, not ${wrong}`);
  return { values: rounded, scalar };
}

/** @param {string} name @param {any} given @param {number} length @param {string} dtype @returns {Terms} */
export function checkedZero(name, given, length, dtype) {
  const found = terms(name, given, length);
  const [bottom, top] = LIMITS[dtype];
  const wrong = found.values.find((zero) => !(Number.isInteger(zero) && zero >= bottom && zero <= top));
  if (wrong !== undefined)
    throw new ProblemError(
      `${name} must be a whole number from ${bottom} to ${top}, as ${dtype} has them, not ${wrong}`,
    );
  return found;
}

/** @param {any} given @param {number} length @returns {Int32Array} */
export function checkedBias(given, length) {
  const array =
    Array.isArray(given) && given.every(Number.isInteger)
      ? HostArray.from(given, { dtype: "int32" })
      : HostArray.from(given);
  if (array.dtype !== "int32")
    throw new ProblemError(`bias is ${array.dtype}; it must be int32, in steps of scaleA·scaleB`);
  if (String(array.shape) !== String([length]))
    throw new ProblemError(`bias has shape [${array.shape}]; it must be [${length}], one per column`);
  return /** @type {Int32Array} */ (array.data);
}

/** Throw ProblemError if a sum of k products may exceed 32 bits. @param {Scheme} scheme @param {number} k @param {string} a @param {string} b dtypes of the operands */
export function checkSums(scheme, k, a, b) {
  const largest = (/** @type {string} */ dtype, /** @type {Terms} */ zero) =>
    zero.values.reduce((most, each) => Math.max(most, LIMITS[dtype][1] - each, each - LIMITS[dtype][0]), 1);
  const added = (scheme.bias ?? new Int32Array(0)).reduce((most, each) => Math.max(most, Math.abs(each)), 0);
  const maxK = Math.floor((SUM_LIMIT - added) / (largest(a, scheme.zeroA) * largest(b, scheme.zeroB)));
  if (k > maxK) {
    throw new ProblemError(
      `with these zero points${added ? " and bias" : ""} a sum of k = ${k} products may overflow 32 bits; the largest safe k is ${Math.max(maxK, 0)}: ` +
        "split k, and add int32 results in 64 bits",
    );
  }
}

/** @param {number} value above 0 @returns {FixedPoint} rounded to 31 bits, halves up */
function fixed(value) {
  let exponent = Math.floor(Math.log2(value)) + 1; // value = fraction·2^exponent, with the fraction in [1/2, 1)
  while (value / 2 ** exponent >= 1) exponent += 1;
  while (value / 2 ** exponent < 0.5) exponent -= 1;
  return normalised(Math.floor((value / 2 ** exponent) * 2 ** MANTISSA_BITS + 0.5), MANTISSA_BITS - exponent);
}

/** @param {number} mantissa @param {number} shift @returns {FixedPoint} */
function normalised(mantissa, shift) {
  const carried = mantissa === 2 ** MANTISSA_BITS; // rounding up produced one more bit
  return carried ? { mantissa: mantissa / 2, shift: shift - 1 } : { mantissa, shift };
}

/** @param {FixedPoint} x @returns {FixedPoint} with a shift of 1 to 62; a multiplier that would need a larger shift turns every sum into 0 */
const clamped = ({ mantissa, shift }) => ({
  mantissa: shift > MAX_SHIFT ? 0 : mantissa,
  shift: Math.min(Math.max(shift, 1), MAX_SHIFT),
});

/** @param {FixedPoint} x @param {FixedPoint} y @returns {FixedPoint} the product, rounded to 31 bits, halves up */
function times(x, y) {
  const product = BigInt(x.mantissa) * BigInt(y.mantissa);
  const surplus = product >= 2n ** 61n ? 31 : 30;
  return normalised(Number((product + (1n << BigInt(surplus - 1))) >> BigInt(surplus)), x.shift + y.shift - surplus);
}

const bits = new DataView(new ArrayBuffer(4));
/** @param {number} x @returns {[number, number]} the bits of a float32 */
const bitsOf = (x) => (bits.setFloat32(0, x), [bits.getInt32(0), 0]);
/** @param {FixedPoint} x @returns {[number, number]} */
const pairOf = ({ mantissa, shift }) => [mantissa, shift];

/**
 * @param {Scheme} scheme @param {string} out
 * @returns {{row: [number, number][] | null, column: [number, number][] | null}} the multipliers of rows and of columns, two int32
 *   each; a single multiplier for the whole result is the only one of `column`
 */
export function multipliers({ scaleA, scaleB, scaleC }, out) {
  if (out === "int32") return { row: null, column: null };
  const exact = out === "float32";
  const factor = (/** @type {number} */ x) => (exact ? bitsOf(Math.fround(x)) : pairOf(fixed(x)));
  if (!scaleA.scalar && !scaleB.scalar) {
    return { row: scaleA.values.map(factor), column: scaleB.values.map((x) => factor(exact ? x : x / (scaleC ?? 1))) };
  }
  const whole = (/** @type {number} */ a, /** @type {number} */ b) =>
    exact ? bitsOf(Math.fround(a * b)) : pairOf(clamped(fixed((a * b) / (scaleC ?? 1))));
  if (!scaleA.scalar) return { row: scaleA.values.map((a) => whole(a, scaleB.values[0])), column: null };
  return { row: null, column: scaleB.values.map((b) => whole(scaleA.values[0], b)) };
}

/**
 * The result of a product with k = 0: the requantised bias.
 * @param {Scheme} scheme @param {number} m @param {number} n @param {import("../host.js").ElementType} out @returns {HostArray}
 */
export function emptyProduct(scheme, m, n, out) {
  const { scaleA, scaleB, scaleC, zeroC, bias } = scheme;
  const at = (/** @type {Terms} */ { values, scalar }, /** @type {number} */ i) => values[scalar ? 0 : i];
  const values = Array.from({ length: m * n }, (_, i) => {
    const [row, column] = [Math.floor(i / n), i % n];
    const sum = bias ? bias[column] : 0;
    if (out === "int32") return sum;
    if (out === "float32") return Math.fround(Math.fround(sum) * Math.fround(at(scaleA, row) * at(scaleB, column)));
    const both = !scaleA.scalar && !scaleB.scalar;
    const multiplier = both
      ? times(fixed(at(scaleA, row)), fixed(at(scaleB, column) / (scaleC ?? 1)))
      : fixed((at(scaleA, row) * at(scaleB, column)) / (scaleC ?? 1));
    const { mantissa, shift } = clamped(multiplier);
    const scaled = Number((BigInt(sum) * BigInt(mantissa) + (1n << BigInt(shift - 1))) >> BigInt(shift));
    return Math.min(Math.max(scaled + zeroC, LIMITS[out][0]), LIMITS[out][1]);
  });
  return HostArray.from(values, { dtype: out, shape: [m, n] });
}

/** @param {Terms} zero @param {[number, number][] | null} multiplier @param {Int32Array | null} bias @param {number} length @returns {HostArray} [length, 4] int32: zero point, multiplier (two), bias of each row or column */
export function termsArray(zero, multiplier, bias, length) {
  const data = new Int32Array(4 * length);
  for (let i = 0; i < length; i++) {
    data[4 * i] = zero.values[zero.scalar ? 0 : i];
    if (multiplier) data.set(multiplier[multiplier.length === 1 ? 0 : i], 4 * i + 1);
    if (bias) data[4 * i + 3] = bias[i];
  }
  return new HostArray(data, [length, 4], "int32");
}

// Numbers to integers

/**
 * Quantise blocks of numbers, as `spread()` in Python: each block has a scale and a zero point.
 * @param {Float32Array} x @param {number} block @param {number} bottom @param {number} top @param {boolean} symmetric
 * @returns {{q: Int32Array, scales: Float32Array, zeros: Int32Array}}
 */
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
    zeros[i] = symmetric ? middle : clip(toEven(bottom - low / scales[i]), bottom, top);
    for (let j = i * block; j < (i + 1) * block; j++) q[j] = clip(toEven(x[j] / scales[i]) + zeros[i], least, top);
  }
  return { q, scales, zeros };
}

/** @param {number} x @param {number} low @param {number} high */
const clip = (x, low, high) => Math.min(Math.max(x, low), high);

/** @param {number} x @returns {number} the nearest whole number, halves to even */
function toEven(x) {
  const low = Math.floor(x);
  const rest = x - low;
  return rest < 0.5 || (rest === 0.5 && low % 2 === 0) ? low : low + 1;
}
