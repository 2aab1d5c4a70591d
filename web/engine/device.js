/** `Device`: an open GPU with the public calls of webmm.js. */

import { GEMM, MATMUL, gemm, matmul } from "../calls/gemm.js";
import { QMATMUL, QMATMUL_WEIGHTS, qmatmul, qmatmulWeights } from "../calls/quantized.js";
import { GELU, NORMALISE, REDUCE, gelu, normalise, reduce } from "../calls/reduce.js";
import "../calls/sides.js";
import { Engine } from "./engine.js";

/** @import { BlockWeights, DeviceArray, Epilogue, HostArray, Kernel, Matrix, Reduction } from "../webmm.js" */
/** @import { HostData } from "../host.js" */
/** @import { Body, Call } from "./plans.js" */

/** @typedef {"float32" | "float16"} FloatType */
/**
 * "highest" computes float32 products in float32. "high" lets matrix units multiply each float32 as the sum of two
 * float16, if the device has matrix units and the product is large enough to be faster that way.
 * @typedef {"highest" | "high"} Precision
 */
/**
 * Options of `Device.matmul()`.
 * @typedef {object} MatmulOptions
 * @property {HostData | DeviceArray} [bias] added before the activation: shape [n], or [m, 1] for one value per row; of
 *   the operands' dtype or float32
 * @property {"relu" | "gelu" | "gelu_tanh" | "silu" | Epilogue} [activation] applied to alpha·A·B + bias; none by default
 * @property {HostData | DeviceArray} [residual] added after the activation; has the result's shape
 * @property {number} [alpha] factor of A·B, 1 by default
 * @property {FloatType} [outDtype] dtype of the result, by default that of the operands
 * @property {Precision} [precision] "highest" by default
 * @property {boolean} [transposeA] multiply by the transpose of `a`: exchange its last two axes first
 * @property {boolean} [transposeB] likewise for `b`
 * @property {string | Kernel} [kernel] use this kernel instead of the one that webmm would choose; for measurements
 * @property {Record<string, number | string>} [config] tunables of the named `kernel` that differ from its defaults
 */
/**
 * Options of `Device.qmatmul()`. A scale or zero point is one number, or an array with one number for each row of A
 * (`scaleA`, `zeroA`) or each column of B (`scaleB`, `zeroB`). Arrays of shapes [..., m, 1] and [..., 1, n] give each matrix of a
 * batch its own.
 * @typedef {object} QmatmulOptions
 * @property {HostData} scaleA the scale of A: positive, rounded to float32
 * @property {HostData} zeroA the zero point of A: the integer that represents 0
 * @property {HostData} scaleB the scale of B: positive, rounded to float32
 * @property {HostData} zeroB the zero point of B
 * @property {number} [scaleC] the scale of the result; required for int8 and uint8 results, not allowed for others
 * @property {number} [zeroC] the zero point of an int8 or uint8 result, 0 by default
 * @property {HostData} [bias] int32 [n], in steps of scaleA·scaleB
 * @property {"int8" | "uint8" | "int32" | "float32"} [outDtype] by default float32, or, with `scaleC`, the dtype of `a`
 */

/**
 * Options of `Device.attention()`.
 * @typedef {object} AttentionOptions
 * @property {boolean | "start" | "end"} [causal] true or "start" aligns the first query with the first key, "end" the last
 *   query with the last key, of its sequence if there are `lengths`; a query sees the keys up to its position
 * @property {HostData | DeviceArray} [mask] bool (true: attend) or float (added to the scores); broadcasts to (…, heads, queries, keys)
 * @property {number} [scale] factor of the scores, by default 1/√width
 * @property {number} [softcap] c > 0 turns scores s into c·tanh(s/c), before the mask; 0, for none, by default
 * @property {readonly [number, number]} [window] keys (left, right) that a query sees before and after its position; -1 for all
 * @property {HostData | DeviceArray} [lengths] integers of the shape of the batch: the keys of each sequence
 * @property {FloatType} [outDtype] dtype of the result, by default that of `q`
 */

/** @param {"softmax" | "layer_norm" | "rms_norm"} name @returns {Body} */
const normalises = (name) => (call, x, options) => normalise(call, name, x, options);
const [softmax, layerNorm, rmsNorm] = [normalises("softmax"), normalises("layer_norm"), normalises("rms_norm")];
const ATTENTION = /** @type {const} */ (["causal", "mask", "scale", "softcap", "window", "lengths", "outDtype"]);

/**
 * A GPU opened for computing. Open one with `await Device.open()`; its calls are those of the Python package.
 *
 *     const gpu = await Device.open();
 *     const c = await gpu.matmul([[1, 2], [3, 4]], [[5, 6], [7, 8]]);
 *     c.toList(); // [[19, 22], [43, 50]]
 *
 * Operands are in host memory (numbers, nested lists, typed arrays, `HostArray`, `Matrix`) or on the device
 * (`DeviceArray`, made by `array()`). If any operand is on the device, so is the result, and the caller frees it with
 * `free()`; otherwise the result is a `HostArray`, or a `Matrix` if it is a 2-D array of floats. Operands of any size are
 * accepted: problems that exceed a limit of the device are split.
 *
 * Every call throws ConfigError for an unknown option, ProblemError for shapes, dtypes or values that do not fit,
 * UnsupportedError if this device cannot compute it, MemoryLimitError, DeviceLostError, FreedArrayError or ShaderError.
 */
export class Device extends Engine {
  /**
   * Compute activation(alpha·A·B + bias) + residual, with the shape rules of NumPy's `matmul`: leading axes are batch axes
   * and broadcast; a 1-D `a` is a row, a 1-D `b` a column, and the result drops that axis.
   *
   *     const c = await gpu.matmul(a, b, { bias: [1, 1], activation: "relu" });
   * @template {HostData | DeviceArray} A @template {HostData | DeviceArray} B
   * @param {A} a shape (…, m, k); float32, float16 or float64
   * @param {B} b shape (…, k, n); the dtype of `a`
   * @param {MatmulOptions} [options]
   * @returns {Promise<A extends DeviceArray ? DeviceArray : B extends DeviceArray ? DeviceArray : A extends Matrix ? Matrix : HostArray>} shape (…, m, n)
   */
  async matmul(a, b, options = {}) {
    return this.plans.call("matmul", MATMUL, [a, b], options, matmul);
  }

  /**
   * Set c to alpha·A·B + beta·c in place, on arrays of this device. Any of them may be a transposed or sliced view.
   * @param {DeviceArray} a shape (…, m, k); float32, float16 or float64
   * @param {DeviceArray} b shape (…, k, n); the dtype of `a`
   * @param {DeviceArray} c shape (…, m, n); overwritten
   * @param {{alpha?: number, beta?: number, precision?: Precision}} [options] `alpha` is 1 by default, `beta` 0
   * @returns {Promise<DeviceArray>} `c`
   */
  async gemm(a, b, c, options = {}) {
    return this.plans.call("gemm", GEMM, [a, b, c], options, gemm);
  }

  /**
   * Multiply quantised matrices, in which an 8-bit integer q represents scale·(q - zero). Products are summed exactly, in
   * 32 bits. An int32 result holds these sums, a float32 result the sums times scaleA·scaleB, and an int8 or uint8 result
   * the sums requantised with `scaleC` and `zeroC`.
   * @template {HostData | DeviceArray} A @template {HostData | DeviceArray} B
   * @param {A} a shape (…, m, k); int8 or uint8
   * @param {B} b shape (…, k, n); int8 or uint8
   * @param {QmatmulOptions} options
   * @returns {Promise<A extends DeviceArray ? DeviceArray : B extends DeviceArray ? DeviceArray : HostArray>} shape (…, m, n)
   */
  async qmatmul(a, b, options) {
    return this.plans.call("qmatmul", QMATMUL, [a, b], options, qmatmul);
  }

  /**
   * Multiply `x` by weights quantised in blocks to 8 or 4 bits, summing in float32. Quantise weights with
   * `quantizeBlocks()`; weights used more than once should be on the device: `await weights.to(gpu)`.
   * @template {HostData | DeviceArray} X @param {X} x shape (…, k); float32 or float16
   * @param {BlockWeights} weights shape (k, n)
   * @param {{outDtype?: FloatType}} [options] `outDtype` is the dtype of `x` by default
   * @returns {Promise<X extends DeviceArray ? DeviceArray : HostArray>} shape (…, n)
   */
  async qmatmulWeights(x, weights, options = {}) {
    return this.plans.call("qmatmulWeights", QMATMUL_WEIGHTS, [x, weights], options, qmatmulWeights);
  }

  /**
   * Attention: softmax(scale · q · kᵀ) · v for each head. Without scores in memory; views, such as the transpose of an array
   * of (batch, tokens, heads, width), are read in place.
   *
   *     const o = await gpu.attention(q, k, v, { causal: true });
   * @template {HostData | DeviceArray} Q @param {Q} q shape (…, heads, queries, width); float32 or float16
   * @param {HostData | DeviceArray} k shape (…, heads, keys, width); the heads of `q` may be a multiple of its heads
   * @param {HostData | DeviceArray} v shape (…, heads, keys, value width)
   * @param {AttentionOptions} [options]
   * @returns {Promise<Q extends DeviceArray ? DeviceArray : HostArray>} shape (…, heads, queries, value width); zeros for a query that sees no key
   */
  async attention(q, k, v, options = {}) {
    const body = async (/** @type {Call} */ call) =>
      (await import("../calls/attention.js")).attention(call, q, k, v, options);
    return this.plans.call("attention", ATTENTION, [q, k, v], options, body);
  }

  /**
   * Rotate each pair of elements of `x` by the angle of its token and pair: (x, y) becomes (x·cos - y·sin, y·cos + x·sin).
   *
   *     const rotated = await gpu.rotary(q, cos, sin);
   * @template {HostData | DeviceArray} X
   * @param {X} x shape (…, tokens, width), such as queries or keys; float32 or float16; `width` is even
   * @param {HostData | DeviceArray} cos broadcasts to (…, tokens, width/2); the dtype of `x` or float32
   * @param {HostData | DeviceArray} sin likewise
   * @param {{interleaved?: boolean}} [options] whether a pair is (x[2i], x[2i + 1]); by default it is (x[i], x[i + width/2])
   * @returns {Promise<X extends DeviceArray ? DeviceArray : HostArray>} shape and dtype of `x`
   */
  async rotary(x, cos, sin, options = {}) {
    const body = async (/** @type {Call} */ call) =>
      (await import("../calls/elements.js")).rotary(call, x, cos, sin, options);
    return this.plans.call("rotary", ["interleaved"], [x, cos, sin], options, body);
  }

  /**
   * Apply a function to each element of an array. The result is dense; a view is read in place.
   *
   *     const y = await gpu.map(x, new Epilogue("where(x > 0, x, slope * x)", { slope: 0.1 }));
   * @template {HostData | DeviceArray} X @param {X} x float32 or float16
   * @param {"relu" | "gelu" | "gelu_tanh" | "silu" | Epilogue} f arrays of an `Epilogue` broadcast to `x`
   * @returns {Promise<X extends DeviceArray ? DeviceArray : HostArray>} shape and dtype of `x`; on the device also if an array of `f` is
   */
  async map(x, f) {
    const body = async (/** @type {Call} */ call) => (await import("../calls/elements.js")).map(call, x, f);
    return this.plans.call("map", [], [x, f], {}, body);
  }

  /**
   * Reduce an array along one axis, several axes, or all of them, with the result shapes of NumPy.
   *
   *     const sums = await gpu.reduce(x, "sum", { axis: 0 });
   * @template {HostData | DeviceArray} X @param {X} x float32, float16, int32 or bool; also float64, except for "prod" and "logsumexp"
   * @param {"sum" | "mean" | "prod" | "max" | "min" | "argmax" | "argmin" | "logsumexp" | "var" | "std" | "norm" | "all" | "any" | "count_nonzero" | Reduction} op
   * @param {{axis?: number | readonly number[] | null, keepdims?: boolean, outDtype?: FloatType, y?: HostData | DeviceArray}} [options] without `axis`,
   *   all axes are reduced; `keepdims` keeps them with length 1; `outDtype` is the dtype of `x` by default; `y` is the second
   *   array of a Reduction whose `map` has y, and broadcasts to the shape of `x`
   * @returns {Promise<X extends DeviceArray ? DeviceArray : HostArray>} for "argmax" and "argmin" the indices, as int32
   */
  async reduce(x, op, options = {}) {
    return this.plans.call("reduce", REDUCE, [x, op], options, reduce);
  }

  /**
   * Softmax: exp(x) / Σ exp(x) along an axis, without overflow for large x.
   * @template {HostData | DeviceArray} X @param {X} x float32 or float16
   * @param {{axis?: number}} [options] `axis` is the last one by default
   * @returns {Promise<X extends DeviceArray ? DeviceArray : HostArray>} shape and dtype of `x`
   */
  async softmax(x, options = {}) {
    return this.plans.call("softmax", NORMALISE.softmax, [x], options, softmax);
  }

  /**
   * Layer normalisation: (x - mean) / √(variance + eps) · weight + bias along the last axis.
   * @template {HostData | DeviceArray} X @param {X} x float32 or float16
   * @param {{weight?: HostData | DeviceArray, bias?: HostData | DeviceArray, eps?: number}} [options] `weight` and `bias` are
   *   vectors of the last axis's length, of the dtype of `x`; `eps` is 1e-5 by default
   * @returns {Promise<X extends DeviceArray ? DeviceArray : HostArray>} shape and dtype of `x`
   */
  async layerNorm(x, options = {}) {
    return this.plans.call("layerNorm", NORMALISE.layer_norm, [x], options, layerNorm);
  }

  /**
   * RMS normalisation: x / √(mean(x²) + eps) · weight along the last axis.
   * @template {HostData | DeviceArray} X @param {X} x float32 or float16
   * @param {{weight?: HostData | DeviceArray, eps?: number}} [options] `weight` is a vector of the last axis's length, of
   *   the dtype of `x`; `eps` is 1e-5 by default
   * @returns {Promise<X extends DeviceArray ? DeviceArray : HostArray>} shape and dtype of `x`
   */
  async rmsNorm(x, options = {}) {
    return this.plans.call("rmsNorm", NORMALISE.rms_norm, [x], options, rmsNorm);
  }

  /**
   * GELU of each element: x·Φ(x), where Φ is the normal distribution function.
   * @template {HostData | DeviceArray} X @param {X} x float32 or float16
   * @param {{approximate?: boolean}} [options] `approximate` computes Φ with tanh instead of the error function
   * @returns {Promise<X extends DeviceArray ? DeviceArray : HostArray>} shape and dtype of `x`
   */
  async gelu(x, options = {}) {
    return this.plans.call("gelu", GELU, [x], options, gelu);
  }
}
