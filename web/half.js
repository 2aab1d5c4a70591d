/** Conversion of float16, stored as bits in a Uint16Array since not every engine has Float16Array. */

/** @type {Float32Array | undefined} */
let halfValues;

/** @param {Uint16Array} bits @returns {Float32Array} */
export function fromHalves(bits) {
  halfValues ??= Float32Array.from({ length: 65536 }, (_, h) => halfValue(h));
  const out = new Float32Array(bits.length);
  for (let i = 0; i < bits.length; i++) out[i] = halfValues[bits[i]];
  return out;
}

/** @param {number} h @returns {number} */
export function halfValue(h) {
  const sign = h & 0x8000 ? -1 : 1;
  const exponent = (h >> 10) & 31;
  const fraction = h & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction);
}

/** @param {ArrayLike<number>} values @returns {Uint16Array} rounded to nearest, ties to even */
export function toHalves(values) {
  const out = new Uint16Array(values.length);
  for (let i = 0; i < out.length; i++) out[i] = toHalf(values[i]);
  return out;
}

/** @param {number} value @returns {number} */
export function toHalf(value) {
  if (Number.isNaN(value)) return 0x7e00;
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const magnitude = Math.abs(value);
  if (magnitude >= 65520) return sign | 0x7c00; // halfway from the largest half to 2^16
  const exponent = Math.max(-14, Math.floor(Math.log2(magnitude || 1e-300)));
  const scaled = magnitude / 2 ** (exponent - 10); // units in the last place
  const units = scaled + 2 ** 52 - 2 ** 52; // numbers beyond 2^52 are whole: the sum is rounded, ties to even
  // Carries run from the fraction into the exponent by themselves; a subnormal has no hidden bit.
  return sign | (units < 1024 ? units : ((exponent + 14) << 10) + units);
}
