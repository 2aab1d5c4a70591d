// @ts-check
/**
 * Checks of matrix products against float64 sums on the CPU, at the bound of webmm/measure/verify.py: every element compared must
 * satisfy |C - Ĉ| ≤ (K·ε + ε_out)·(|A|·|B|).
 *
 * A small product is compared in full. Of a large one, evenly spread rows and columns are compared, which keeps the tab
 * responsive; in addition, C·x is compared with A·(B·x) for a vector x of random signs, which finds a wrong tile
 * anywhere.
 */

/** @typedef {import("./matrix.js").Matrix} Matrix */
/** @typedef {{eps: number, tiny: number}} Rounding */
/** activation(alpha·A·B + bias), with one value of the bias per "row" or per "column". @typedef {{alpha: number, bias: Float32Array | null, per: string, activation: string}} Epilogue */

const F32_EPS = 2 ** -23;
const FULL_CHECK = 2 ** 24; // multiply-adds up to which every element is compared
const SAMPLE = 2 ** 23; // multiply-adds spent on rows, and on columns, of a larger product
const CHUNK = 12; // milliseconds of work between two calls of breathe()
const APPROXIMATION = 2 ** -12; // error that is allowed for a driver's activation functions
/** @type {Epilogue} */
const NONE = { alpha: 1, bias: null, per: "", activation: "" };

/** The activations, as in webmm/wgsl/epilogues.py. @type {Record<string, (x: number) => number>} */
export const MEANINGS = {
  "": (x) => x,
  relu: (x) => Math.max(x, 0),
  gelu,
  gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  silu: (x) => x / (1 + Math.exp(-x)),
};

/** @param {number} x @returns {number} x·Φ(x) */
function gelu(x) {
  return 0.5 * x * (1 + erf(x / Math.SQRT2));
}

/** @param {number} x @returns {number} the error function, to 1.5e-7 (Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26) */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const tail =
    t *
    (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) *
    Math.exp(-x * x);
  return Math.sign(x) * (1 - tail);
}

/** @param {number} k @param {string} dtype @param {Rounding} rounding of the result's type @param {string} [activation] @returns {number} the largest error that rounding explains, as a multiple of |A|·|B| */
export function errorBound(k, dtype, rounding, activation = "") {
  return k * F32_EPS + (dtype === "float32" ? 0 : rounding.eps) + (activation ? APPROXIMATION : 0);
}

/** Let the page handle input and paint. @returns {Promise<void>} */
export function breathe() {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

/** Checks results of the product of two given matrices. */
export class Checker {
  #a;
  #b;
  #rounding;
  #epilogue;
  /** @type {{rows: number[], columns: number[], full: boolean}} */
  #sample;
  /** @type {Promise<{expected: Float64Array, scale: Float64Array}[]> | undefined} */
  #reference;
  /** @type {Promise<{expected: Float64Array, scale: Float64Array, signs: Float64Array} | null> | undefined} */
  #projection;

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
    const more = this.#epilogue === NONE ? ", " : " and ";
    return full
      ? "every element"
      : `${rows.length} rows${more}${columns.length} columns${this.#epilogue === NONE ? " and all row sums" : ""}`;
  }

  /** Compute the reference ahead of time. */
  async prepare() {
    await (this.#reference ??= this.#lines());
    await (this.#projection ??= this.#project());
  }

  /**
   * @param {import("./host.js").HostArray} got
   * @returns {Promise<number>} the largest error as a multiple of |A|·|B|, or of |alpha|·|A|·|B| + |bias| with an epilogue; Infinity if a NaN or
   *   an infinity differs
   */
  async error(got) {
    await this.prepare();
    const c = got.floats();
    const { rows, columns } = this.#sample;
    const lines = (await this.#reference) ?? [];
    let worst = 0;
    lines.forEach((line, i) => {
      const row = i < rows.length;
      const start = row ? rows[i] * this.n : columns[i - rows.length];
      worst = Math.max(worst, this.#lineError(c, start, row ? 1 : this.n, line, got.dtype));
    });
    return Math.max(worst, await this.#rowSums(c));
  }

  /**
   * The wrong elements among those compared, in the words of webmm/measure/verify.py.
   * @param {import("./host.js").HostArray} got @param {number} bound
   * @returns {Promise<string>} empty if no element that is compared is wrong
   */
  async wrong(got, bound) {
    await this.prepare();
    const c = got.floats();
    const { rows, columns } = this.#sample;
    const found = new Map(); // expected values of wrong elements, by position
    ((await this.#reference) ?? []).forEach((line, i) => {
      const row = i < rows.length;
      const start = row ? rows[i] * this.n : columns[i - rows.length];
      const stride = row ? 1 : this.n;
      line.expected.forEach((expected, j) => {
        const one = { expected: line.expected.subarray(j, j + 1), scale: line.scale.subarray(j, j + 1) };
        const at = start + j * stride;
        if (!(this.#lineError(c, at, 1, one, got.dtype) <= bound)) found.set(at, expected);
      });
    });
    if (!found.size) return "";
    const first = [...found.keys()].reduce((x, y) => Math.min(x, y));
    const checked = rows.length * this.n + columns.length * (this.m - rows.length);
    const place = `C[${Math.floor(first / this.n)}, ${first % this.n}]`;
    const unwritten = Number.isNaN(c[first]) ? " (never written, read beyond an operand, or so computed)" : "";
    const [expected, actual] = [found.get(first), c[first]].map((x) =>
      Number.isNaN(x) ? "nan" : Number(x.toPrecision(6)),
    );
    const elements = `${found.size.toLocaleString("en")} of ${checked.toLocaleString("en")} elements ${found.size === 1 ? "is" : "are"} wrong`;
    return `${elements}, first ${place}: expected ${expected}, got ${actual}${unwritten}`;
  }

  /**
   * @param {Float32Array} c @param {number} start @param {number} stride
   * @param {{expected: Float64Array, scale: Float64Array}} line @param {string} dtype
   */
  #lineError(c, start, stride, line, dtype) {
    const { tiny, eps } = this.#rounding;
    const largest = dtype === "float16" ? 65520 : 3.4028235677973366e38;
    let worst = 0;
    for (let i = 0; i < line.expected.length; i++) {
      const expected = line.expected[i];
      const actual = c[start + i * stride];
      if (!(Math.abs(expected) < largest)) {
        const stored = Number.isNaN(expected) ? NaN : Math.sign(expected) * Infinity;
        if (!Object.is(stored, actual)) return Infinity;
        continue;
      }
      const error = Math.abs(actual - expected) / (line.scale[i] + tiny / eps);
      if (!(error <= worst)) worst = Number.isNaN(error) ? Infinity : error;
    }
    return worst;
  }

  async #lines() {
    const { rows, columns } = this.#sample;
    const out = [];
    let breath = performance.now();
    for (const [at, alongRow] of [...rows.map((r) => [r, true]), ...columns.map((c) => [c, false])]) {
      const line = alongRow ? this.#row(Number(at)) : this.#column(Number(at));
      if (this.#epilogue !== NONE) this.#finish(line, Number(at), Boolean(alongRow));
      out.push(line);
      if (performance.now() - breath > CHUNK) {
        await breathe();
        breath = performance.now();
      }
    }
    return out;
  }

  /** Apply the epilogue to sums and to their scales. @param {{expected: Float64Array, scale: Float64Array}} line @param {number} at @param {boolean} alongRow */
  #finish({ expected, scale }, at, alongRow) {
    const { alpha, bias, per, activation } = this.#epilogue;
    const along = (per === "column") === alongRow;
    for (let i = 0; i < expected.length; i++) {
      const added = bias ? bias[along ? i : at] : 0;
      expected[i] = MEANINGS[activation](alpha * expected[i] + added);
      scale[i] = Math.abs(alpha) * scale[i] + Math.abs(added) + (activation ? 1 : 0);
    }
  }

  /** @param {number} row */
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
    return { expected, scale };
  }

  /** @param {number} column */
  #column(column) {
    const { m, n, k } = this;
    const [a, b] = [this.#a, this.#b];
    const expected = new Float64Array(m);
    const scale = new Float64Array(m);
    const line = Float64Array.from({ length: k }, (_, i) => b[i * n + column]);
    for (let row = 0; row < m; row++) {
      let sum = 0;
      let size = 0;
      for (let i = 0, at = row * k; i < k; i++, at++) {
        const product = a[at] * line[i];
        sum += product;
        size += Math.abs(product);
      }
      expected[row] = sum;
      scale[row] = size;
    }
    return { expected, scale };
  }

  /** A·(B·x) for random signs x, or null if NaN or infinities make the comparison meaningless. */
  async #project() {
    if (this.#sample.full || this.#epilogue !== NONE) return null;
    const { m, n, k } = this;
    let state = 1;
    const signs = Float64Array.from({ length: n }, () => ((state = (state * 48271) % 2147483647) % 2 ? 1 : -1));
    const bx = await weightedRowSums(this.#b, k, n, signs);
    const absolute = await weightedRowSums(this.#b, k, n, null);
    const expected = await weightedRowSums(this.#a, m, k, bx);
    const scale = await weightedRowSums(this.#a, m, k, absolute, true);
    return scale.every(Number.isFinite) ? { expected, scale, signs } : null;
  }

  /** @param {Float32Array} c */
  async #rowSums(c) {
    const reference = await this.#projection;
    if (!reference) return 0;
    const { tiny, eps } = this.#rounding;
    const sums = await weightedRowSums(c, this.m, this.n, reference.signs);
    let worst = 0;
    for (let i = 0; i < this.m; i++) {
      const error = Math.abs(sums[i] - reference.expected[i]) / (reference.scale[i] + tiny / eps);
      if (!(error <= worst)) worst = Number.isNaN(error) ? Infinity : error;
    }
    return worst;
  }
}

/**
 * Weighted row sums of a row-major matrix; without weights or if `absolute`, of absolute values.
 * @param {Float32Array} x @param {number} rows @param {number} columns @param {Float64Array | null} weights
 */
async function weightedRowSums(x, rows, columns, weights, absolute = weights === null) {
  const sums = new Float64Array(rows);
  let breath = performance.now();
  for (let row = 0; row < rows; row++) {
    let sum = 0;
    for (let j = 0, at = row * columns; j < columns; j++, at++) {
      sum += (absolute ? Math.abs(x[at]) : x[at]) * (weights ? weights[j] : 1);
    }
    sums[row] = sum;
    if (row % 64 === 63 && performance.now() - breath > CHUNK) {
      await breathe();
      breath = performance.now();
    }
  }
  return sums;
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
