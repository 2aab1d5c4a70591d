/**
 * Checks of matrix products against float64 sums on the CPU, at the bound of webmm/measure/verify.py: every element compared must
 * satisfy |C - Ĉ| ≤ (K·ε + ε_out)·(|A|·|B|).
 *
 * A small product is compared in full. Of a large one, evenly spread rows and columns are compared, which keeps the tab
 * responsive; in addition, C·x is compared with A·(B·x) for a vector x of random signs, which finds a wrong tile
 * anywhere.
 */

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

/** Let the page handle input and paint. @returns {Promise<void>} */
export function breathe() {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

/** @returns {() => Promise<void>} for a long loop to await: lets the page breathe if it has not for CHUNK ms */
export function breather() {
  let last = performance.now();
  return async () => {
    if (performance.now() - last < CHUNK) return;
    await breathe();
    last = performance.now();
  };
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

  /** Compute the reference, if it was not computed before. */
  prepare() {
    return (this.#reference ??= Promise.all([this.#lines(), this.#project()]));
  }

  /**
   * The largest error as a multiple of |A|·|B|, or of |alpha|·|A|·|B| + |bias| with an epilogue; Infinity if a NaN or an infinity differs.
   * @param {HostArray} got
   */
  async error(got) {
    let worst = await this.#rowSums(got.floats());
    await this.#compare(got, (error) => (worst = Math.max(worst, error)));
    return worst;
  }

  /**
   * The wrong elements among those compared, in the words of webmm/measure/verify.py; empty if there are none.
   * @param {HostArray} got @param {number} bound
   */
  async wrong(got, bound) {
    const wrong = new Map(); // expected values of wrong elements, by position
    await this.#compare(got, (error, at, expected) => error > bound && wrong.set(at, expected));
    if (!wrong.size) return "";
    const c = got.floats();
    const { rows, columns } = this.#sample;
    const first = [...wrong.keys()].reduce((x, y) => Math.min(x, y));
    const checked = rows.length * this.n + columns.length * (this.m - rows.length);
    const place = `C[${Math.floor(first / this.n)}, ${first % this.n}]`;
    const unwritten = Number.isNaN(c[first]) ? " (never written, read beyond an operand, or so computed)" : "";
    const [expected, actual] = [wrong.get(first), c[first]].map((x) =>
      String(Number(x.toPrecision(6))).replace("NaN", "nan"),
    );
    const elements = `${wrong.size.toLocaleString("en")} of ${checked.toLocaleString("en")} elements ${wrong.size === 1 ? "is" : "are"} wrong`;
    return `${elements}, first ${place}: expected ${expected}, got ${actual}${unwritten}`;
  }

  /** Compare the sampled elements with the reference. @param {HostArray} got @param {(error: number, at: number, expected: number) => unknown} tell called for each */
  async #compare(got, tell) {
    const c = got.floats();
    const largest = got.dtype === "float16" ? 65520 : 3.4028235677973366e38;
    const [lines] = await this.prepare();
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
    const out = [];
    const breath = breather();
    for (const [i, at] of [...rows, ...columns].entries()) {
      const alongRow = i < rows.length;
      out.push(this.#finished(alongRow ? this.#row(at) : await this.#column(at), at, alongRow));
      await breath();
    }
    return out;
  }

  /** Apply the epilogue to sums and to their scales. @param {Line} line @param {number} at @param {boolean} alongRow @returns {Line} */
  #finished(line, at, alongRow) {
    if (this.#epilogue === NONE) return line;
    const { expected, scale } = line;
    const { alpha, bias, per, activation } = this.#epilogue;
    const along = (per === "column") === alongRow;
    for (let i = 0; i < expected.length; i++) {
      const added = bias ? bias[along ? i : at] : 0;
      expected[i] = MEANINGS[activation](alpha * expected[i] + added);
      scale[i] = Math.abs(alpha) * scale[i] + Math.abs(added) + (activation ? 1 : 0);
    }
    return line;
  }

  /** @param {number} row @returns {Line} */
  #row(row) {
    const { n, k } = this;
    const [a, b] = [this.#a, this.#b];
    const expected = new Float64Array(n);
    const scale = new Float64Array(n);
    for (let i = 0; i < k; i++) {
      const x = a[row * k + i];
      for (let j = 0, at = i * n; j < n; j++, at++) {
        const product = x * b[at];
        expected[j] += product;
        scale[j] += Math.abs(product);
      }
    }
    return { start: row * n, stride: 1, expected, scale };
  }

  /** @param {number} column @returns {Promise<Line>} */
  async #column(column) {
    const { m, n, k } = this;
    const line = Float64Array.from({ length: k }, (_, i) => this.#b[i * n + column]);
    return { start: column, stride: n, ...(await rowSums(this.#a, m, k, line, line.map(Math.abs))) };
  }

  /** A·(B·x) for random signs x, or null if NaN or infinities make the comparison meaningless. */
  async #project() {
    if (this.#sample.full || this.#epilogue !== NONE) return null;
    const { m, n, k } = this;
    let state = 1;
    const signs = Float64Array.from({ length: n }, () => ((state = (state * 48271) % 2147483647) % 2 ? 1 : -1));
    const bx = await rowSums(this.#b, k, n, signs, signs.map(Math.abs));
    const sums = await rowSums(this.#a, m, k, bx.expected, bx.scale);
    return sums.scale.every(Number.isFinite) ? { ...sums, signs } : null;
  }

  /** @param {Float32Array} c @returns {Promise<number>} the largest error of a row of C·x */
  async #rowSums(c) {
    const [, reference] = await this.prepare();
    if (!reference) return 0;
    const { expected, scale, signs } = reference;
    const { expected: sums } = await rowSums(c, this.m, this.n, signs, signs);
    return sums.reduce((worst, sum, i) => Math.max(worst, this.#errorOf(sum, expected[i], scale[i], Infinity)), 0);
  }
}

/**
 * The sum of each row's elements times `weights`, and of their absolute values times `sizes`, of a row-major matrix.
 * @param {Float32Array} x @param {number} rows @param {number} columns @param {Float64Array} weights @param {Float64Array} sizes
 */
async function rowSums(x, rows, columns, weights, sizes) {
  const [expected, scale] = [new Float64Array(rows), new Float64Array(rows)];
  const breath = breather();
  for (let row = 0; row < rows; row++) {
    let sum = 0;
    let size = 0;
    for (let j = 0, at = row * columns; j < columns; j++, at++) {
      sum += x[at] * weights[j];
      size += Math.abs(x[at]) * sizes[j];
    }
    expected[row] = sum;
    scale[row] = size;
    if (row % 64 === 63) await breath();
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
