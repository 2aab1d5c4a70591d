/// <reference lib="esnext.disposable" preserve="true" />
// @ts-check
/** The calls for products of quantised matrices and with quantised weights, as in webmm/calls. */

import { DeviceArray } from "../engine/array.js";
import { ProblemError } from "../errors.js";
import { HostArray, sizeOf } from "../host.js";
import { make, repr } from "../python.js";
import { asMatrices, isGiven, noTerms, readable, reshaped, rowsOf } from "./operands.js";
import { activationOf } from "./gemm.js";
import { checkOptions, flag } from "./options.js";
import { inPieces } from "./pieces.js";
import { checkSums, checkedBias, checkedScale, checkedZero, multipliers, spread, termsArray } from "./scheme.js";

/** @import { Data } from "./operands.js" */
/** @import { Call } from "../engine/plans.js" */
/** @import { ElementType } from "../host.js" */
/** @import { Scheme } from "./scheme.js" */

export const QMATMUL = ["scaleA", "zeroA", "scaleB", "zeroB", "scaleC", "zeroC", "bias", "outDtype"];
export const QMATMUL_WEIGHTS = ["activation", "outDtype"];

/** `Device.qmatmul()`. @param {Call} call @param {any} givenA @param {any} givenB @param {any} options */
export async function qmatmul(call, givenA, givenB, options) {
  const core = await call.device.bundle.op("quantized");
  let [a, b] = [call.data(givenA), call.data(givenB)];
  const shape = core.quantized_shape(a, b);
  const [m, k, n] = [a.rows, a.columns, b.columns];
  const types = [call.element(a.dtype), call.element(b.dtype)];
  const scaleC = isGiven(options.scaleC) ? checkedScale(core, "scale_c", options.scaleC, 1).values[0] : null;
  const named = options.outDtype === undefined ? null : call.element(call.dtype(options.outDtype, a.dtype));
  const out = core.result_dtype(named, scaleC !== null, types[0]);
  core.check_zero_c(isGiven(options.zeroC), out);
  /** @type {Scheme} */
  const scheme = {
    scaleA: checkedScale(core, "scale_a", options.scaleA, m),
    zeroA: checkedZero(core, "zero_a", options.zeroA, m, types[0]),
    scaleB: checkedScale(core, "scale_b", options.scaleB, n),
    zeroB: checkedZero(core, "zero_b", options.zeroB, n, types[1]),
    scaleC,
    zeroC: isGiven(options.zeroC) ? checkedZero(core, "zero_c", options.zeroC, 1, out).values[0] : 0,
    bias: isGiven(options.bias) ? checkedBias(core, options.bias, n) : null,
  };
  checkSums(core, scheme, k, types);
  const whole = await call.result(shape, out, a, b);
  if (!whole.size) return whole;
  if (!k) {
    scheme.zeroA = { values: [0], scalar: true };
    [a, b] = noTerms(a, b);
  }
  const tall = b.ndim === 2 && scheme.zeroA.scalar && scheme.scaleA.scalar && a.contiguous; // one product, no batch
  if (tall) await multiply(core, call, await rowsOf(call, a), b, scheme, reshaped(whole, [whole.size / n, n]));
  else await multiply(core, call, a, b, scheme, whole);
  return whole;
}

/** Compute `c` in pieces, one matrix of the batch at a time. @param {any} core @param {Call} call @param {Data} a @param {Data} b @param {Scheme} scheme @param {Data} c */
async function multiply(core, call, a, b, scheme, c) {
  const [m, k, n] = [a.rows, a.columns, b.columns];
  const { row, column, multiplier } = multipliers(scheme, c.dtype);
  const settings = {
    zero_a: scheme.zeroA.scalar ? scheme.zeroA.values[0] : null,
    zero_b: scheme.zeroB.scalar ? scheme.zeroB.values[0] : null,
    zero_c: scheme.zeroC,
    multiplier,
    scaled_rows: row !== null,
    scaled_columns: column !== null,
    bias: scheme.bias !== null,
  };
  const types = [a, b, c].map((each) => call.element(each.dtype));
  const whole = make(core.Quantized, [m, n, k, ...types, new core.Operand(k), new core.Operand(n)], settings);
  const terms = [];
  if (whole.by_row) terms.push(call.core.labelled(termsArray(scheme.zeroA, row, null, m), "mt", false));
  if (whole.by_column) terms.push(call.core.labelled(termsArray(scheme.zeroB, column, scheme.bias, n), "nt", false));
  const compute = (/** @type {DeviceArray[]} */ [x, y, ...more], /** @type {DeviceArray} */ into) =>
    call.run(core.quantized_of(whole, x, y, into, ...more), x, y, into, ...more);
  const left = call.core.labelled(await readable(call, a), `${call.core.BATCH}mk`);
  const right = call.core.labelled(await readable(call, b), `${call.core.BATCH}kn`);
  const result = call.core.labelled(c, `${call.core.BATCH}mn`, false);
  await inPieces(
    call,
    async (...all) => compute(all, /** @type {DeviceArray} */ (all.pop())),
    [left, right, ...terms],
    result,
    "mn",
    call.core.BATCH,
    2 * k * c.size,
  );
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

/** `Device.qmatmulWeights()`. @param {Call} call @param {any} given @param {BlockWeights} weights @param {any} options */
export async function qmatmulWeights(call, given, weights, options) {
  if (!(weights instanceof BlockWeights))
    throw new ProblemError("the weights are BlockWeights; make some with quantizeBlocks(w)");
  const core = await call.device.bundle.op("weights");
  const x = call.data(given);
  const [, n] = weights.shape;
  const shape = core.weighted_shape(x, weights.shape);
  const out = call.dtype(options.outDtype, x.dtype);
  core.check_floats("float matrix products", call.element(x.dtype), call.element(out));
  const own = await activationOf(call, options.activation);
  core.check_operands(own.operands, shape);
  const terms = make(core.Applied, [], { activation: own.name, values: own.numbers });
  const c = await call.result(shape, out, x, ...own.operands);
  if (!sizeOf([...x.shape, n])) {
    if (own.name && c.size) throw new ProblemError("an activation needs k of at least 1");
    return c instanceof DeviceArray ? call.device.zeros(c.shape, out) : c;
  }
  if (own.operands.length && shape.length > 2)
    throw new ProblemError("an epilogue with arrays needs a matrix x; reshape it to two axes");
  const compute = (/** @type {DeviceArray[]} */ arrays, /** @type {DeviceArray} */ into) => {
    const [given, more] = [[...arrays.slice(0, 4), into], arrays.slice(4)];
    const over = more.map((each) => each.broadcastTo(...into.shape));
    return call.run(core.weighted_of(weights, terms, over, ...given), ...given, ...over);
  };
  const parts = weights.parts.map((part, i) => call.core.labelled(call.data(part), `n${"wbb"[i]}`, false));
  const rows = call.core.labelled(await readable(call, await rowsOf(call, x)), "mk");
  const over = own.operands.map((each) =>
    call.core.labelled(asMatrices(each, shape.length, x.ndim === 1, false), "mn"),
  );
  const result = call.core.labelled(reshaped(c, [c.size / n, n]), "mn", false);
  await inPieces(
    call,
    async (...all) => compute(all, /** @type {DeviceArray} */ (all.pop())),
    [rows, ...parts, ...over],
    result,
    "mn",
    "",
    2 * x.size * n,
  );
  return c;
}
