/**
 * Checks of matrix products against float64 sums on the CPU, at the bound of webmm/measure/verify.py: every element compared must
 * satisfy |C - Ĉ| ≤ (K·ε + ε_out)·(|A|·|B|).
 *
 * A small product is compared in full. Of a large one, evenly spread rows and columns are compared, which keeps the tab
 * responsive; in addition, C·x is compared with A·(B·x) for a vector x of random signs, which finds a wrong tile
 * anywhere.
 */

/** @import { Core } from "./bundle.js" */
/** @import { HostArray } from "./host.js" */
/** @import { Matrix } from "./matrix.js" */
/** @typedef {{eps: number, tiny: number}} Rounding */
/** Expected numbers, and the scales of their errors. @typedef {{expected: Float64Array, scale: Float64Array}} Sums */
/** Those of elements of C, from `start` in steps of `stride`. @typedef {Sums & {start: number, stride: number}} Line */
/** activation(alpha·A·B + bias), with one value of the bias per "row" or per "column". @typedef {{alpha: number, bias: Float32Array | null, per: string, activation: string}} Epilogue */

const F32_EPS = 2 ** -23;
const FULL_CHECK = 2 ** 24; // multiply-adds up to which every element is compared
const SAMPLE = 2 ** 23; // multiply-adds spent on rows, and on columns, of a larger product
const CHUNK = 12; // milliseconds of work between two breaths
const APPROXIMATION = 2 ** -12; // error that is allowed for a driver's activation functions
/** @type {Epilogue} */
const NONE = { alpha: 1, bias: null, per: "", activation: "" };

/** The activations, as in webmm/wgsl/epilogues.py. @type {Record<string, (x: number) => number>} */
export const MEANINGS = {
  "": (x) => x,
  relu: (x) => Math.max(x, 0),
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  silu: (x) => x / (1 + Math.exp(-x)),
};

/** @param {number} x @returns {number} the error function, to 1.5e-7 (Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26) */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const series = 0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)));
  return Math.sign(x) * (1 - t * series * Math.exp(-x * x));
}

/** @param {number} k @param {string} dtype @param {Rounding} rounding of the result's type @param {string} [activation] @returns {number} the largest error that rounding explains, as a multiple of |A|·|B| */
export function errorBound(k, dtype, rounding, activation = "") {
  return k * F32_EPS + (dtype === "float32" ? 0 : rounding.eps) + (activation ? APPROXIMATION : 0);
}

let last = 0; // when the page could handle input and paint, in ms

/** For a long loop to await: lets the page handle input and paint if it could not for CHUNK ms. */
export async function breathe() {
  if (performance.now() - last < CHUNK) return;
  await new Promise((resolve) => setTimeout(resolve, 0));
  last = performance.now();
}

/** Checks results of the product of two given matrices. */
export class Checker {
  #a;
  #b;
  #rounding;
  #epilogue;
  #sample;
  /** @type {Promise<[Line[], Sums & {signs: Float64Array} | null]> | undefined} */
  #reference;

  /** @param {Matrix} a @param {Matrix} b @param {Rounding} rounding of the type that the product is stored in @param {Epilogue} [epilogue] */
  constructor(a, b, rounding, epilogue = NONE) {
    this.m = a.rows;
    this.n = b.columns;
    this.k = a.columns;
    this.#a = a.floats();
    this.#b = b.floats();
    this.#rounding = rounding;
    this.#epilogue = epilogue;
    this.#sample = samples(this.m, this.n, this.k);
  }

  /** @returns {string} a description of the elements that are compared */
  get scope() {
    const { rows, columns, full } = this.#sample;
    if (full) return "every element";
    const [comma, sums] = this.#epilogue === NONE ? [", ", " and all row sums"] : [" and ", ""];
    return `${rows.length} rows${comma}${columns.length} columns${sums}`;
  }

  /** The reference, which is computed once. */
  #prepared() {
    return (this.#reference ??= Promise.all([this.#lines(), this.#project()]));
  }

  /** The largest error as a multiple of |A|·|B|, or of |alpha|·|A|·|B| + |bias| with an epilogue; Infinity if a NaN or an infinity differs. @param {HostArray} got */
  async error(got) {
    let worst = await this.#rowSums(got.floats());
    await this.#compare(got, (error) => (worst = Math.max(worst, error)));
    return worst;
  }

  /** The wrong elements among those compared, in Python's words; empty if there are none. @param {Core} core @param {HostArray} got @param {number} bound @returns {Promise<string>} */
  async wrong({ Wrong }, got, bound) {
    const wrong = new Map(); // expected values of wrong elements, by position
    await this.#compare(got, (error, at, expected) => error > bound && wrong.set(at, expected));
    if (!wrong.size) return "";
    const { rows, columns } = this.#sample;
    const checked = rows.length * this.n + columns.length * (this.m - rows.length);
    const first = [...wrong.keys()].reduce((x, y) => Math.min(x, y));
    const found = new Wrong(wrong.size, checked, first, wrong.get(first), got.floats()[first]);
    return found.words(`C[${Math.floor(first / this.n)}, ${first % this.n}]`);
  }

  /** Compare the sampled elements with the reference. @param {HostArray} got @param {(error: number, at: number, expected: number) => unknown} tell called for each */
  async #compare(got, tell) {
    const c = got.floats();
    const largest = got.dtype === "float16" ? 65520 : 3.4028235677973366e38;
    const [lines] = await this.#prepared();
    for (const { start, stride, expected, scale } of lines)
      for (let i = 0, at = start; i < expected.length; i++, at += stride)
        tell(this.#errorOf(c[at], expected[i], scale[i], largest), at, expected[i]);
  }

  /** @param {number} actual @param {number} expected @param {number} scale @param {number} largest this and larger numbers become infinite @returns {number} the error as a multiple of the scale, never NaN */
  #errorOf(actual, expected, scale, largest) {
    const { tiny, eps } = this.#rounding;
    if (!(Math.abs(expected) < largest))
      return Object.is(Number.isNaN(expected) ? NaN : Math.sign(expected) * Infinity, actual) ? 0 : Infinity;
    const error = Math.abs(actual - expected) / (scale + tiny / eps);
    return Number.isNaN(error) ? Infinity : error;
  }

  async #lines() {
    const { rows, columns } = this.#sample;
    const lines = [];
    for (const row of rows) lines.push(await this.#line(row, true));
    for (const column of columns) lines.push(await this.#line(column, false));
    return lines;
  }

  /** @param {number} at @param {boolean} isRow @returns {Promise<Line>} */
  async #line(at, isRow) {
    const { n, k } = this;
    const [a, b] = [this.#a, this.#b];
    const factors = Float64Array.from({ length: k }, (_, i) => (isRow ? a[at * k + i] : b[i * n + at]));
    const { expected, scale } = await (isRow ? weighted(b, n, factors, true) : weighted(a, k, factors));
    const { alpha, bias, per, activation } = this.#epilogue;
    const isSame = per === (isRow ? "row" : "column"); // all elements have one value of the bias
    for (let i = 0; i < expected.length; i++) {
      const added = bias ? bias[isSame ? at : i] : 0;
      expected[i] = MEANINGS[activation](alpha * expected[i] + added);
      scale[i] = Math.abs(alpha) * scale[i] + Math.abs(added) + (activation ? 1 : 0);
    }
    return { start: isRow ? at * n : at, stride: isRow ? 1 : n, expected, scale };
  }

  /** A·(B·x) for random signs x, or null if NaN or infinities make the comparison meaningless. */
  async #project() {
    if (this.#sample.full || this.#epilogue !== NONE) return null;
    const { n, k } = this;
    let state = 1;
    const signs = Float64Array.from({ length: n }, () => ((state = (state * 48271) % 2147483647) % 2 ? 1 : -1));
    const bx = await weighted(this.#b, n, signs);
    const sums = await weighted(this.#a, k, bx.expected, false, bx.scale);
    return sums.scale.every(Number.isFinite) ? { ...sums, signs } : null;
  }

  /** @param {Float32Array} c @returns {Promise<number>} the largest error of a row of C·x */
  async #rowSums(c) {
    const [, reference] = await this.#prepared();
    if (!reference) return 0;
    const { expected, scale, signs } = reference;
    const { expected: sums } = await weighted(c, this.n, signs);
    return sums.reduce((worst, sum, i) => Math.max(worst, this.#errorOf(sum, expected[i], scale[i], Infinity)), 0);
  }
}

/**
 * The sum of each row's elements times `weights`, and of their absolute values times `sizes`, of a row-major matrix; or those of each column.
 * @param {Float32Array} x @param {number} columns @param {Float64Array} weights @param {boolean} [down] sum columns @param {Float64Array} [sizes]
 */
async function weighted(x, columns, weights, down = false, sizes = weights.map(Math.abs)) {
  const rows = x.length / columns;
  const [expected, scale] = [0, 0].map(() => new Float64Array(down ? columns : rows));
  for (let row = 0; row < rows; row++) {
    const line = x.subarray(row * columns, (row + 1) * columns);
    if (down) {
      const [weight, size] = [weights[row], sizes[row]];
      for (let j = 0; j < columns; j++) {
        expected[j] += line[j] * weight;
        scale[j] += Math.abs(line[j]) * size;
      }
    } else {
      let [sum, size] = [0, 0];
      for (let j = 0; j < columns; j++) {
        sum += line[j] * weights[j];
        size += Math.abs(line[j]) * sizes[j];
      }
      [expected[row], scale[row]] = [sum, size];
    }
    if (row % 64 === 63) await breathe();
  }
  return { expected, scale };
}

/** @param {number} m @param {number} n @param {number} k */
function samples(m, n, k) {
  if (m * n * k <= FULL_CHECK) return { rows: spread(m, m), columns: [], full: true };
  const rows = spread(m, Math.max(4, Math.floor(SAMPLE / (n * k))));
  return { rows, columns: spread(n, Math.max(4, Math.floor(SAMPLE / (m * k)))), full: false };
}

/** @param {number} length @param {number} count @returns {number[]} indices from first to last, evenly spread */
export function spread(length, count) {
  if (count >= length) return Array.from({ length }, (_, i) => i);
  const steps = count - 1;
  return [...new Set(Array.from({ length: count }, (_, i) => Math.round((i * (length - 1)) / steps)))];
}
