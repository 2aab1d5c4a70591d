/**
 * The tasks that every library computes, with their inputs and checks. A task is a JSON object, as run.py writes it:
 *
 *     {"op": "gemm", "m": 512, "n": 512, "k": 512, "batch": 1, "layout": "nt"}   // B stored as (n, k)
 *     {"op": "weights", "m": 1, "n": 4096, "k": 4096, "bits": 4, "block": 32}    // symmetric
 *     {"op": "softmax", "m": 4096, "n": 4096}                                    // of each row; likewise layer_norm
 *     {"op": "sum", "m": 4096, "n": 4096, "axis": 1}                             // of each row; axis 0: of each column
 *     {"op": "attention", "heads": 8, "queries": 512, "keys": 512, "width": 64, "causal": true}
 *
 * Results are compared with float64: for products, up to 4096 elements spread over C, and its corners; for softmax and
 * layer norm, some rows; for sums, all elements; for attention, some queries of some heads. Its operands and its result are
 * (tokens, heads, width), as products of tokens by weights have them.
 */

const EPS = 2 ** -23;
const CHECKED = 2 ** 24; // multiply-adds per check
const ROWS = 16; // rows per check

/** Dense float32 arrays, by name. @typedef {Record<string, {data: Float32Array, shape: number[]}>} Inputs */
/** @typedef {{op: string, m: number, n: number, k?: number, batch?: number, layout?: string, axis?: number, bits?: number, block?: number, heads?: number, queries?: number, keys?: number, width?: number, causal?: boolean}} Task */

/** @param {Task} task @returns {string} */
export function nameOf({ op, m, n, k, batch = 1, layout = "nn", axis, ...heads }) {
  if (op === "attention") return `${heads.causal ? "causal " : ""}attention ${heads.heads} × ${heads.queries}×${heads.keys}×${heads.width}`;
  if (op !== "gemm" && op !== "weights") return `${op}${axis === 0 ? " of columns" : ""} ${m}×${n}`;
  const size = m === n && n === k ? `${m}³` : `${m}×${n}×${k}`;
  return `${op === "weights" ? "4-bit weights " : ""}${batch > 1 ? `${batch} × ` : ""}${size}${layout === "nn" ? "" : ` ${layout}`}`;
}

/** @param {Task} task @returns {number} operations of a product or of attention, without what its mask hides, or input elements of other ops */
export function flopsOf({ op, m, n, k, batch = 1, heads = 1, queries = 1, keys = 1, width = 1, causal }) {
  if (op === "attention") return 4 * heads * width * (causal ? (queries * (queries + 1)) / 2 : queries * keys);
  return k ? 2 * batch * m * n * k : m * n;
}

/** @param {Task} task @returns {Inputs} the inputs, the same ones for the same task */
export function inputsOf({ op, m, n, k = 1, batch = 1, layout = "nn", block = 32, heads = 1, queries = 1, keys = 1, width = 1 }) {
  const matrix = (/** @type {number} */ seed, /** @type {number[]} */ ...shape) => ({ data: drawn(shape.reduce((x, y) => x * y), seed), shape });
  const stack = batch > 1 ? [batch] : [];
  if (op === "gemm") {
    const a = layout[0] === "t" ? [k, m] : [m, k];
    const b = layout[1] === "t" ? [n, k] : [k, n];
    return { a: matrix(1, ...stack, ...a), b: matrix(2, ...stack, ...b) };
  }
  if (op === "weights") return { x: matrix(1, m, k), scales: matrix(2, n, k / block) };
  if (op === "attention") {
    const [q, key, v] = [queries, keys, keys].map((tokens, i) => matrix(i + 1, tokens, heads, width));
    return { q, k: key, v };
  }
  if (op === "layer_norm") return { x: matrix(1, m, n), weight: matrix(2, n), bias: matrix(3, n) };
  return { x: matrix(1, m, n) };
}

/**
 * The integers q of 4-bit weights, whose values are scale·(q - 8): by columns, two per byte, the first in the lower half.
 * @param {Task} task @returns {Uint8Array} (n, k / 2)
 */
export function nibblesOf({ n, k = 1 }) {
  const bytes = new Uint8Array((n * k) / 2);
  for (let i = 0; i < bytes.length; i++) bytes[i] = Math.imul(i + 1, 0x9e3779b1) >>> 24;
  return bytes;
}

/** @param {Task} task @param {Inputs} inputs @returns {Float32Array} the values of 4-bit weights, (n, k) */
function weightsOf(task, { scales }) {
  const { n, k = 1, block = 32 } = task;
  const bytes = nibblesOf(task);
  const w = new Float32Array(n * k);
  for (let i = 0; i < w.length; i++) w[i] = scales.data[Math.floor(i / block)] * (((bytes[i >> 1] >> (4 * (i & 1))) & 15) - 8);
  return w;
}

/** @param {number} count @param {number} seed @returns {Float32Array} uniform in [-0.5, 0.5), the same for the same seed */
function drawn(count, seed) {
  const data = new Float32Array(count);
  let state = (seed * 2654435761) >>> 0;
  for (let i = 0; i < count; i++) {
    state ^= state << 13; // xorshift32
    state ^= state >>> 17;
    state ^= state << 5;
    data[i] = (state >>> 8) / 2 ** 24 - 0.5;
  }
  return data;
}

/**
 * Make the check of a task's results.
 * @param {Task} task @param {Inputs} inputs
 * @returns {{bound: number, error: (c: Float32Array) => number}} the error bound, and a function that returns the largest error in the same unit
 */
export function checkOf(task, inputs) {
  const { op, n, k = 1 } = task;
  if (op === "gemm") return against(products(task, inputs.a.data, inputs.b.data), (k + 2) * EPS);
  if (op === "weights") return against(products({ ...task, layout: "nt" }, inputs.x.data, weightsOf(task, inputs)), (k + 4) * EPS);
  if (op === "attention") return against(attended(task, inputs), ((task.keys ?? 1) + (task.width ?? 1) + 64) * EPS);
  return against((op === "sum" ? sums : rows)(task, inputs), (n + 64) * EPS);
}

/** Expected elements by index, with the magnitude that errors are relative to. @typedef {{at: number, expected: number, size: number}[]} Expected */

/** @param {Expected} expected @param {number} bound */
function against(expected, bound) {
  const error = (/** @type {Float32Array} */ c) => {
    const worst = Math.max(...expected.map(({ at, expected, size }) => Math.abs(c[at] - expected) / size));
    return Number.isNaN(worst) ? Infinity : worst;
  };
  return { bound, error };
}

/** @param {Task} task @param {Float32Array} a @param {Float32Array} b @returns {Expected} */
function products({ m, n, k = 1, batch = 1, layout = "nn" }, a, b) {
  const total = batch * m * n;
  const count = Math.min(total, Math.max(64, Math.min(4096, Math.floor(CHECKED / k))));
  const corners = [0, n - 1, (m - 1) * n, m * n - 1, total - m * n, total - 1];
  const [aRow, aStep] = layout[0] === "t" ? [1, m] : [k, 1];
  const [bColumn, bStep] = layout[1] === "t" ? [k, 1] : [1, n];
  const spread = Array.from({ length: count }, (_, i) => Math.floor((i + (i * 0.6180339887) % 1) * (total / (count + 1))));
  return [...corners, ...spread].map((at) => {
    const [z, row, column] = [Math.floor(at / (m * n)), Math.floor(at / n) % m, at % n];
    let [expected, size] = [0, 1e-30];
    for (let i = 0, x = z * m * k + row * aRow, y = z * k * n + column * bColumn; i < k; i++, x += aStep, y += bStep) {
      expected += a[x] * b[y];
      size += Math.abs(a[x] * b[y]);
    }
    return { at, expected, size };
  });
}

/** @param {Task} task @param {Inputs} inputs @returns {Expected} */
function sums({ m, n, axis }, { x: { data } }) {
  const [count, length, start, step] = axis === 0 ? [n, m, 1, n] : [m, n, n, 1];
  return Array.from({ length: count }, (_, at) => {
    let [expected, size] = [0, 1e-30];
    for (let i = 0, from = at * start; i < length; i++, from += step) {
      expected += data[from];
      size += Math.abs(data[from]);
    }
    return { at, expected, size };
  });
}

/** @param {Task} task @param {Inputs} inputs @returns {Expected} elements of softmax or layer norm */
function rows({ op, m, n }, inputs) {
  const chosen = [...new Set(Array.from({ length: ROWS }, (_, i) => Math.round((i * (m - 1)) / (ROWS - 1))))];
  return chosen.flatMap((row) => {
    const x = Float64Array.from(inputs.x.data.subarray(row * n, (row + 1) * n));
    const y = op === "softmax" ? softmax(x) : layerNorm(x, inputs.weight.data, inputs.bias.data);
    return Array.from(y, (expected, column) => ({ at: row * n + column, expected, size: op === "softmax" ? expected : 1 }));
  });
}

/** @param {Task} task @param {Inputs} inputs @returns {Expected} all elements of some queries of some heads */
function attended({ heads = 1, queries = 1, keys = 1, width = 1, causal }, { q, k, v }) {
  const count = Math.max(1, Math.min(ROWS, heads * queries, Math.floor(CHECKED / (2 * keys * width))));
  const chosen = [...new Set(Array.from({ length: count }, (_, i) => Math.round((i * (heads * queries - 1)) / Math.max(1, count - 1))))];
  return chosen.flatMap((at) => {
    const [query, head] = [Math.floor(at / heads), at % heads];
    const element = (/** @type {Float32Array} */ x, /** @type {number} */ token, /** @type {number} */ i) => x[(token * heads + head) * width + i];
    const scores = new Float64Array(causal ? query + 1 : keys).map((_, key) => {
      let sum = 0;
      for (let i = 0; i < width; i++) sum += element(q.data, query, i) * element(k.data, key, i);
      return sum / Math.sqrt(width);
    });
    const weights = softmax(scores);
    return Array.from({ length: width }, (_, i) => {
      const expected = weights.reduce((sum, weight, key) => sum + weight * element(v.data, key, i), 0);
      return { at: at * width + i, expected, size: 0.5 };
    });
  });
}

/** @param {Float64Array} x */
function softmax(x) {
  const powers = x.map(Math.exp); // the inputs, and scores of attention, are small, so this cannot overflow
  const sum = powers.reduce((total, power) => total + power);
  return powers.map((power) => power / sum);
}

/** @param {Float64Array} x @param {Float32Array} weight @param {Float32Array} bias */
function layerNorm(x, weight, bias) {
  const mean = x.reduce((sum, value) => sum + value) / x.length;
  const variance = x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length;
  return x.map((value, i) => ((value - mean) / Math.sqrt(variance + 1e-5)) * weight[i] + bias[i]);
}
