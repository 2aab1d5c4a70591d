// @ts-check
/** A device, and its calls: what users of webmm.js open. */

import { GEMM, MATMUL, gemm, matmul } from "../calls/gemm.js";
import { QMATMUL, QMATMUL_WEIGHTS, qmatmul, qmatmulWeights } from "../calls/quantized.js";
import { GELU, NORMALISE, REDUCE, gelu, normalise, reduce } from "../calls/reduce.js";
import { Engine } from "./engine.js";

/** @typedef {import("../matrix.js").Matrix} Matrix */
/** @typedef {import("../host.js").HostArray} HostArray */
/** @typedef {import("../host.js").HostData} HostData */
/** @typedef {import("../calls/quantized.js").BlockWeights} BlockWeights */
/** @typedef {import("../kernels.js").Kernel} Kernel */
/** @typedef {import("./array.js").DeviceArray} DeviceArray */

/** @typedef {"float32" | "float16"} FloatType */
/** @typedef {"highest" | "high"} Precision "high" lets matrix units multiply float32 as two float16 each, where there are any */
/**
 * `bias` is [n], or [m, 1] for one value per row; `residual` has the result's shape; `outDtype` is the operands' type
 * unless another is named; `kernel` and `config` name a stage and its tile sizes, for measuring.
 * @typedef {{
 *   bias?: HostData | DeviceArray, activation?: "relu" | "gelu" | "gelu_tanh" | "silu", residual?: HostData | DeviceArray, alpha?: number,
 *   outDtype?: FloatType, precision?: Precision, transposeA?: boolean, transposeB?: boolean, kernel?: string | Kernel,
 *   config?: Record<string, number | string>,
 * }} MatmulOptions
 */
/**
 * Scales and zero points are numbers, or one for each row of A and each column of B; `bias` is one int32 per column.
 * @typedef {{
 *   scaleA: HostData, zeroA: HostData, scaleB: HostData, zeroB: HostData, scaleC?: number, zeroC?: number,
 *   bias?: HostData, outDtype?: "int8" | "uint8" | "int32" | "float32",
 * }} QmatmulOptions
 */

/**
 * An adapter opened for computing. Calls are Python's: of the host's arrays they give the host's, of arrays on the device
 * one on the device, which the caller frees. Options that a call does not know are a ConfigError.
 */
export class Device extends Engine {
  /**
   * activation(alpha·A·B + bias) + residual, with the shapes of NumPy's matmul: batches broadcast, and a vector is a row
   * or a column that the result drops.
   * @template {HostData | DeviceArray} A @template {HostData | DeviceArray} B
   * @param {A} a (…, m, k), of float32 or float16 @param {B} b (…, k, n), of the same type
   * @param {MatmulOptions} [options]
   * @returns {Promise<A extends DeviceArray ? DeviceArray : B extends DeviceArray ? DeviceArray : A extends Matrix ? Matrix : HostArray>}
   */
  async matmul(a, b, options = {}) {
    return this.plans.call("matmul", MATMUL, [a, b], options, (call) => matmul(call, a, b, options));
  }

  /**
   * c ← alpha·A·B + beta·c, in place, on arrays of the device; `c` may be a transposed or sliced view.
   * @param {DeviceArray} a @param {DeviceArray} b @param {DeviceArray} c
   * @param {{alpha?: number, beta?: number, precision?: Precision}} [options]
   * @returns {Promise<DeviceArray>} `c`
   */
  async gemm(a, b, c, options = {}) {
    return this.plans.call("gemm", GEMM, [a, b, c], options, (call) => gemm(call, a, b, c, options));
  }

  /**
   * The product of the matrices that 8-bit integers stand for, an element q for scale·(q - zero), summed in 32 bits,
   * exactly. int8 and uint8 results need `scaleC`; int32 are the sums; float32 the sums times scaleA·scaleB.
   * @template {HostData | DeviceArray} A @template {HostData | DeviceArray} B
   * @param {A} a (…, m, k), of int8 or uint8 @param {B} b (…, k, n), likewise
   * @param {QmatmulOptions} options
   * @returns {Promise<A extends DeviceArray ? DeviceArray : B extends DeviceArray ? DeviceArray : HostArray>}
   */
  async qmatmul(a, b, options) {
    return this.plans.call("qmatmul", QMATMUL, [a, b], options, (call) => qmatmul(call, a, b, options));
  }

  /**
   * x times quantised weights, see `quantizeBlocks()`, summed in float32. Keep weights on the device by `weights.to(device)`.
   * @template {HostData | DeviceArray} X
   * @param {X} x (…, k), of floats @param {BlockWeights} weights (k, n)
   * @param {{outDtype?: FloatType}} [options]
   * @returns {Promise<X extends DeviceArray ? DeviceArray : HostArray>}
   */
  async qmatmulWeights(x, weights, options = {}) {
    return this.plans.call("qmatmulWeights", QMATMUL_WEIGHTS, [x, weights], options, (call) =>
      qmatmulWeights(call, x, weights, options),
    );
  }

  /**
   * A reduction over one axis, several, or all, with the shapes of NumPy's.
   * @template {HostData | DeviceArray} X
   * @param {X} x of floats or int32 @param {"sum" | "mean" | "prod" | "max" | "min" | "argmax" | "argmin" | "logsumexp"} op
   * @param {{axis?: number | readonly number[] | null, keepdims?: boolean, outDtype?: FloatType}} [options]
   * @returns {Promise<X extends DeviceArray ? DeviceArray : HostArray>} positions are int32
   */
  async reduce(x, op, options = {}) {
    return this.plans.call("reduce", REDUCE, [x, op], options, (call) => reduce(call, x, op, options));
  }

  /**
   * exp(x) / Σ exp(x) along an axis, the last unless another is named.
   * @template {HostData | DeviceArray} X
   * @param {X} x of floats @param {{axis?: number}} [options]
   * @returns {Promise<X extends DeviceArray ? DeviceArray : HostArray>}
   */
  async softmax(x, options = {}) {
    return this.plans.call("softmax", NORMALISE.softmax, [x], options, (call) =>
      normalise(call, "softmax", x, options),
    );
  }

  /**
   * (x - mean) / √(variance + eps) · weight + bias along the last axis.
   * @template {HostData | DeviceArray} X
   * @param {X} x of floats @param {{weight?: HostData | DeviceArray, bias?: HostData | DeviceArray, eps?: number}} [options] vectors of the last axis's length, and x's type
   * @returns {Promise<X extends DeviceArray ? DeviceArray : HostArray>}
   */
  async layerNorm(x, options = {}) {
    return this.plans.call("layerNorm", NORMALISE.layer_norm, [x], options, (call) =>
      normalise(call, "layer_norm", x, options),
    );
  }

  /**
   * x / √(mean of squares + eps) · weight along the last axis.
   * @template {HostData | DeviceArray} X
   * @param {X} x of floats @param {{weight?: HostData | DeviceArray, eps?: number}} [options]
   * @returns {Promise<X extends DeviceArray ? DeviceArray : HostArray>}
   */
  async rmsNorm(x, options = {}) {
    return this.plans.call("rmsNorm", NORMALISE.rms_norm, [x], options, (call) =>
      normalise(call, "rms_norm", x, options),
    );
  }

  /**
   * x·Φ(x) of each element, by the error function or, `approximate`, by tanh.
   * @template {HostData | DeviceArray} X
   * @param {X} x of floats @param {{approximate?: boolean}} [options]
   * @returns {Promise<X extends DeviceArray ? DeviceArray : HostArray>}
   */
  async gelu(x, options = {}) {
    return this.plans.call("gelu", GELU, [x], options, (call) => gelu(call, x, options));
  }
}
