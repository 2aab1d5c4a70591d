/// <reference lib="esnext.disposable" preserve="true" />
// @ts-check
/** The calls for products of quantised matrices and with quantised weights, as in webmm/calls. */

import { DeviceArray } from "../engine/array.js";
import { ProblemError } from "../errors.js";
import { HostArray } from "../host.js";
import { make, provide, repr } from "../python.js";
import { activationOf } from "./gemm.js";
import { asIntegers, checkOptions, flag, ifGiven } from "./options.js";
import { spread } from "./scheme.js";

/** @import { Data } from "./operands.js" */
/** @import { Call } from "../engine/plans.js" */

export const QMATMUL = ["scaleA", "zeroA", "scaleB", "zeroB", "scaleC", "zeroC", "bias", "outDtype"];
export const QMATMUL_WEIGHTS = ["activation", "outDtype"];

/** `Device.qmatmul()`. @param {Call} call @param {any} a @param {any} b @param {any} options */
export async function qmatmul(call, a, b, { scaleA, zeroA, scaleB, zeroB, scaleC, zeroC, bias, outDtype }) {
  const core = await call.device.bundle.op("quantized");
  const added = ifGiven(bias, (x) => HostArray.from(asIntegers(x)));
  const scales = [scaleA, zeroA, scaleB, zeroB, scaleC ?? null, zeroC ?? null];
  return core.quantized_product(call, call.data(a), call.data(b), scales, added, call.element(outDtype));
}

// Weights of 8 or 4 bits, with a scale and a zero point per block

/**
 * A (k, n) matrix of weights quantised to integers of 8 or 4 bits, made by `quantizeBlocks()`. An integer q represents
 * scale·(q - zero), where each block of 32 or 128 integers along k has a scale and a zero point. The weights are in host
 * memory, or, after `to()`, on a device.
 *
 * `words` is (n, ·) uint32: the integers by columns, each column padded to whole blocks, 32/bits integers per word, the
 * first one in the lowest bits. `scales` (float32) and `zeros` (uint8) are (n, blocks).
 */
export class BlockWeights {
  /** @param {[number, number]} shape @param {4 | 8} bits @param {32 | 128} block @param {Data} words @param {Data} scales @param {Data} zeros */
  constructor(shape, bits, block, words, scales, zeros) {
    this.shape = shape;
    this.bits = bits;
    this.block = block;
    this.words = words;
    this.scales = scales;
    this.zeros = zeros;
    /** @type {[Data, Data, Data]} words, scales and zero points */
    this.parts = [words, scales, zeros];
    /** Shape, bits and block size as text: what the plan of a product depends on, besides the layouts of the parts. */
    this.kind = `${shape}x${bits}/${block}`;
  }

  /** Copy the weights to a device, so that products do not upload them each time. @param {import("../engine/device.js").Device} device @returns {Promise<BlockWeights>} to be freed with `free()` */
  async to(device) {
    const copies = this.parts.map(async (part) => device.array(part instanceof DeviceArray ? await part.read() : part));
    const [words, scales, zeros] = await Promise.all(copies);
    return new BlockWeights(this.shape, this.bits, this.block, words, scales, zeros);
  }

  /** Release the device memory of the weights, if they are on a device; freeing twice is harmless. */
  free() {
    for (const part of this.parts) if (part instanceof DeviceArray) part.free();
  }

  [Symbol.dispose]() {
    this.free();
  }
}

/**
 * Quantise a (k, n) matrix of weights for `Device.qmatmulWeights()`. Each block of `block` weights along k has its own
 * scale and zero point: its range, extended to include 0, is mapped to all integers of `bits` bits. With `symmetric`, the
 * range is -max|w| to max|w|, and the zero point the middle integer.
 *
 *     const weights = await quantizeBlocks(w, { bits: 4 }).to(gpu);
 *     const y = await gpu.qmatmulWeights(x, weights);
 * @param {import("../host.js").HostData} w finite numbers
 * @param {{bits?: 4 | 8, block?: 32 | 128, symmetric?: boolean}} [options] by default 4 bits, blocks of 32, not symmetric
 * @returns {BlockWeights} in host memory; throws ProblemError for NaN, infinity, or another shape
 */
export function quantizeBlocks(w, options = {}) {
  checkOptions("quantizeBlocks", options, ["bits", "block", "symmetric"]);
  const { bits = 4, block = 32, symmetric } = options;
  if (![4, 8].includes(bits)) throw new ProblemError(`bits must be 4 or 8, not ${repr(bits)}`);
  if (![32, 128].includes(block)) throw new ProblemError(`block must be 32 or 128, not ${repr(block)}`);
  const host = HostArray.from(w);
  if (host.ndim !== 2) throw new ProblemError(`w has shape ${repr(host.shape)}; weights must be a (k, n) matrix`);
  const values = host.floats();
  if (!values.every(Number.isFinite)) throw new ProblemError("w contains NaN or infinity, which cannot be quantised");
  const [k, n] = host.shape;
  const blocks = Math.ceil(k / block);
  const padded = new Float32Array(n * blocks * block);
  for (let i = 0; i < k; i++) for (let j = 0; j < n; j++) padded[j * blocks * block + i] = values[i * n + j];
  const { q, scales, zeros } = spread(padded, block, 0, 2 ** bits - 1, flag("symmetric", symmetric));
  const perWord = 32 / bits;
  const words = new Uint32Array(q.length / perWord);
  for (let i = 0; i < q.length; i++) words[Math.floor(i / perWord)] |= q[i] << (bits * (i % perWord));
  const packed = new HostArray(words, [n, words.length / n || 0], "uint32");
  const scale = new HostArray(scales, [n, blocks], "float32");
  const zero = new HostArray(Uint8Array.from(zeros), [n, blocks], "uint8");
  return new BlockWeights([k, n], bits, block, packed, scale, zero);
}

/** `Device.qmatmulWeights()`. @param {Call} call @param {any} x @param {BlockWeights} weights @param {any} options */
export async function qmatmulWeights(call, x, weights, { activation, outDtype }) {
  if (!(weights instanceof BlockWeights))
    throw new ProblemError("the weights are BlockWeights; make some with quantizeBlocks(w)");
  const core = await call.device.bundle.op("weights");
  const { name, numbers, operands } = await activationOf(call, activation);
  const terms = make(core.Applied, [], { activation: name, values: numbers });
  return core.weighted_product(call, call.data(x), weights, terms, operands, call.element(outDtype));
}

/** @type {(w: HostArray, bits: 4 | 8, block: 32 | 128) => BlockWeights} */
const quantized = (w, bits, block) => quantizeBlocks(w, { bits, block });
provide("webmm.problems.weights.quantize_blocks", quantized);
