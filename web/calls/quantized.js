// @ts-check
/** The calls for products of quantised matrices and with quantised weights, as in webmm/calls. */

import { DeviceArray } from "../engine/array.js";
import { ProblemError } from "../errors.js";
import { ELEMENTS, HostArray, sizeOf } from "../host.js";
import { make } from "../python.js";
import { labelled } from "./gemm.js";
import { broadcastShape, isDense, readable, reshaped, rowsOf } from "./operands.js";
import { checkOptions, flag, oneOf } from "./options.js";
import { Labelled, inPieces, startsOf } from "./pieces.js";
import {
  checkSums,
  checkedBias,
  checkedScale,
  checkedZero,
  multipliers,
  emptyProduct,
  spread,
  termsArray,
} from "./scheme.js";

/** @typedef {import("./operands.js").Data} Data */
/** @typedef {import("../engine/plans.js").Call} Call */
/** @typedef {import("../host.js").ElementType} ElementType */
/** @typedef {import("./scheme.js").Scheme} Scheme */

export const QMATMUL = /** @type {const} */ ([
  "scaleA",
  "zeroA",
  "scaleB",
  "zeroB",
  "scaleC",
  "zeroC",
  "bias",
  "outDtype",
]);
export const QUANTIZE_BLOCKS = /** @type {const} */ (["bits", "block", "symmetric"]);
export const QMATMUL_WEIGHTS = /** @type {const} */ (["outDtype"]);
const BYTES = ["uint8", "int8"];

/** `Device.qmatmul()`. @param {Call} call @param {any} givenA @param {any} givenB @param {any} options */
export async function qmatmul(call, givenA, givenB, options) {
  let [a, b] = [call.data(givenA), call.data(givenB)];
  const batch = batchOf(a, b);
  const [m, k, n] = [a.shape[a.ndim - 2], a.shape[a.ndim - 1], b.shape[b.ndim - 1]];
  const scaleC =
    options.scaleC === undefined || options.scaleC === null
      ? null
      : checkedScale("scaleC", options.scaleC, 1).values[0];
  const out = outType(call, options.outDtype, scaleC, a.dtype);
  /** @type {Scheme} */
  const scheme = {
    scaleA: checkedScale("scaleA", options.scaleA, m),
    zeroA: checkedZero("zeroA", options.zeroA, m, a.dtype),
    scaleB: checkedScale("scaleB", options.scaleB, n),
    zeroB: checkedZero("zeroB", options.zeroB, n, b.dtype),
    scaleC,
    zeroC: zeroOf(options.zeroC, out),
    bias: options.bias === undefined || options.bias === null ? null : checkedBias(options.bias, n),
  };
  checkSums(scheme, k, a.dtype, b.dtype);
  const whole = await call.result([...batch, m, n], out, a instanceof DeviceArray || b instanceof DeviceArray);
  if (!whole.size) return whole;
  if (!k) return repeated(call, whole, emptyProduct(scheme, m, n, out));
  /** @type {Data} */
  let c = whole;
  if (b.ndim === 2 && scheme.zeroA.scalar && scheme.scaleA.scalar && isDense(a))
    [a, c] = [await rowsOf(call, a), reshaped(c, [c.size / n, n])]; // one tall product instead of a batch
  await multiply(call, a, b, scheme, c);
  return whole;
}

/** Compute `c` in pieces, one matrix of the batch at a time. @param {Call} call @param {Data} a @param {Data} b @param {Scheme} scheme @param {Data} c */
async function multiply(call, a, b, scheme, c) {
  const { core } = call;
  const [m, k, n] = [a.shape[a.ndim - 2], a.shape[a.ndim - 1], b.shape[b.ndim - 1]];
  const { row, column } = multipliers(scheme, c.dtype);
  const scalar = row === null && column !== null && column.length === 1;
  const settings = {
    zero_a: scheme.zeroA.scalar ? scheme.zeroA.values[0] : null,
    zero_b: scheme.zeroB.scalar ? scheme.zeroB.values[0] : null,
    zero_c: scheme.zeroC,
    multiplier: scalar ? column[0] : [0, 0],
    scaled_rows: row !== null,
    scaled_columns: column !== null && !scalar,
    bias: scheme.bias !== null,
  };
  const byRow = settings.zero_a === null || settings.scaled_rows;
  const byColumn = settings.zero_b === null || settings.scaled_columns || settings.bias;
  const terms = [];
  if (byRow) terms.push(new Labelled(termsArray(scheme.zeroA, row, null, m), "mt", false));
  if (byColumn) terms.push(new Labelled(termsArray(scheme.zeroB, scalar ? null : column, scheme.bias, n), "nt", false));
  const compute = (/** @type {DeviceArray[]} */ [x, y, ...more], /** @type {DeviceArray} */ into) => {
    [x, y, into] = [x, y, into].map((each) => (each.ndim > 2 ? each.slice(...Array(each.ndim - 2).fill(0)) : each));
    const types = [x, y, into].map((each) => call.element(each.dtype));
    const operands = [core.matrix_operand(x), core.matrix_operand(y)];
    const problem = make(core.Quantized, [...into.shape, k, ...types, ...operands], {
      ...settings,
      starts: startsOf(into, ...more),
    });
    return call.run(problem, [x, y, into, ...more]);
  };
  const batch = "ABCDEFGHIJKLMNOPQRSTUVWXYZ".slice(0, c.ndim - 2);
  const operands = [
    labelled(await readable(call, a), batch, "mk"),
    labelled(await readable(call, b), batch, "kn"),
    ...terms,
  ];
  await inPieces(call, compute, operands, new Labelled(c, `${batch}mn`, false), "mn", {
    each: batch,
    flops: 2 * k * c.size,
  });
}

/** Set every matrix of the batch `c` to `matrix`. @param {Call} call @param {Data} c @param {HostArray} matrix @returns {Data} the batch */
function repeated(call, c, matrix) {
  const data = ELEMENTS[c.dtype].of(c.size);
  for (let i = 0; i < c.size; i += matrix.size) data.set(matrix.data, i);
  const host = new HostArray(data, c.shape, c.dtype);
  if (!(c instanceof DeviceArray)) return host;
  call.complete = false;
  call.device.write(c, host);
  return c;
}

/** @param {Data} a @param {Data} b @returns {number[]} the batch shape of their product; throws ProblemError if shapes or dtypes do not fit */
function batchOf(a, b) {
  if (Math.min(a.ndim, b.ndim) < 2)
    throw new ProblemError(
      `quantised products take matrices, not arrays of shapes [${a.shape}] and [${b.shape}]; reshape them`,
    );
  const [columns, rows] = [a.shape[a.ndim - 1], b.shape[b.ndim - 2]];
  if (columns !== rows)
    throw new ProblemError(
      `a [${a.shape}] and b [${b.shape}] do not fit: the inner sizes ${columns} and ${rows} differ`,
    );
  const batch = broadcastShape(a.shape.slice(0, -2), b.shape.slice(0, -2));
  if (!batch) throw new ProblemError(`the batches of a [${a.shape}] and b [${b.shape}] do not broadcast`);
  for (const [name, x] of /** @type {[string, Data][]} */ ([
    ["a", a],
    ["b", b],
  ])) {
    if (!BYTES.includes(x.dtype))
      throw new ProblemError(`${name} is ${x.dtype}; quantised operands must be uint8 or int8`);
  }
  return batch;
}

/** @param {Call} call @param {string | undefined} given @param {number | null} scaleC @param {ElementType} otherwise @returns {ElementType} */
function outType(call, given, scaleC, otherwise) {
  if (given === undefined) return scaleC === null ? "float32" : otherwise;
  const out = call.dtype(given, otherwise);
  if (![...BYTES, "int32", "float32"].includes(out))
    throw new ProblemError(`outDtype ${out} is not supported; choose int8, uint8, int32 or float32`);
  const byte = BYTES.includes(out);
  if (byte !== (scaleC !== null)) {
    throw new ProblemError(
      `outDtype ${out} ${byte ? "needs scaleC, the scale of the result" : "is not requantised; omit scaleC"}`,
    );
  }
  return out;
}

/** @param {unknown} given @param {ElementType} out @returns {number} */
function zeroOf(given, out) {
  const named = given !== undefined && given !== null;
  if (BYTES.includes(out)) return named ? checkedZero("zeroC", given, 1, out).values[0] : 0;
  if (named) throw new ProblemError(`outDtype ${out} is not requantised; omit zeroC`);
  return 0;
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
  }

  /** Shape, bits and block size as text: what the plan of a product depends on, besides the layouts of the parts. */
  get kind() {
    return `${this.shape}x${this.bits}/${this.block}`;
  }

  /** @returns {[Data, Data, Data]} words, scales and zero points */
  get parts() {
    return [this.words, this.scales, this.zeros];
  }

  /** Copy the weights to a device, so that products do not upload them each time. @param {import("../engine/device.js").Device} device @returns {Promise<BlockWeights>} to be freed with `free()` */
  async to(device) {
    const [words, scales, zeros] = this.parts.map(async (part) =>
      device.array(part instanceof DeviceArray ? await part.read() : part),
    );
    return new BlockWeights(this.shape, this.bits, this.block, await words, await scales, await zeros);
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
  checkOptions("quantizeBlocks", options, QUANTIZE_BLOCKS);
  const { bits = 4, block = 32, symmetric } = options;
  oneOf("number of bits", bits, /** @type {any[]} */ ([8, 4]));
  oneOf("block", block, /** @type {any[]} */ ([32, 128]));
  const host = HostArray.from(w);
  if (host.ndim !== 2) throw new ProblemError(`w has shape [${host.shape}]; weights must be a (k, n) matrix`);
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
  return new BlockWeights(
    [k, n],
    bits,
    block,
    new HostArray(words, [n, words.length / n || 0], "uint32"),
    new HostArray(scales, [n, blocks], "float32"),
    new HostArray(Uint8Array.from(zeros), [n, blocks], "uint8"),
  );
}

/** `Device.qmatmulWeights()`. @param {Call} call @param {any} given @param {BlockWeights} weights @param {any} options */
export async function qmatmulWeights(call, given, weights, options) {
  if (!(weights instanceof BlockWeights))
    throw new ProblemError("the weights are BlockWeights; make some with quantizeBlocks(w)");
  const { core } = call;
  const x = call.data(given);
  const [k, n] = weights.shape;
  if (!x.ndim || x.shape[x.ndim - 1] !== k)
    throw new ProblemError(`x [${x.shape}] and weights [${k}, ${n}] do not fit: x must end with ${k}`);
  const out = call.dtype(options.outDtype, x.dtype);
  core.check_floats("float matrix products", call.element(x.dtype), call.element(out));
  const c = await call.result([...x.shape.slice(0, -1), n], out, x instanceof DeviceArray);
  if (!sizeOf([...x.shape, n])) return c instanceof DeviceArray ? call.device.zeros(c.shape, out) : c;
  const compute = (/** @type {DeviceArray[]} */ [rows, words, scales, zeros], /** @type {DeviceArray} */ into) => {
    const sizes = [rows.shape[0], words.shape[0], k, call.element(rows.dtype), call.element(into.dtype)];
    const problem = make(core.WeightOnly, [
      ...sizes,
      core.matrix_operand(rows),
      weights.bits,
      weights.block,
      startsOf(words, scales, zeros, into),
    ]);
    return call.run(problem, [rows, words, scales, zeros, into]);
  };
  const parts = weights.parts.map((part, i) => new Labelled(call.data(part), `n${"wbb"[i]}`, false));
  const rows = await readable(call, await rowsOf(call, x));
  await inPieces(
    call,
    compute,
    [new Labelled(rows, "mk"), ...parts],
    new Labelled(reshaped(c, [c.size / n, n]), "mn", false),
    "mn",
    { flops: 2 * x.size * n },
  );
  return c;
}
