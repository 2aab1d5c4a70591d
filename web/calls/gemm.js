// @ts-check
/** The calls for floating-point matrix products, as in webmm/calls/gemm.py. */

import { DeviceArray, checkSeparate } from "../engine/array.js";
import { like } from "../engine/transfer.js";
import { ProblemError } from "../errors.js";
import { HostArray } from "../host.js";
import { make } from "../python.js";
import { broadcastShape, readable, reshaped, stridesOf, transposed, viewOf } from "./operands.js";
import { flag, number, oneOf } from "./options.js";
import { Labelled, inPieces, limits } from "./pieces.js";

/** @typedef {import("./operands.js").Data} Data */
/** @typedef {import("../engine/plans.js").Call} Call */
/** @typedef {import("../host.js").ElementType} ElementType */
/** The checked options of `matmul`; `terms` are alpha and the activation. @typedef {{bias: Data | null, residual: Data | null, terms: Record<string, any>, out: ElementType, precision: string, kernel: any}} Settings */

export const MATMUL = /** @type {const} */ ([
  "bias",
  "activation",
  "residual",
  "alpha",
  "outDtype",
  "precision",
  "transposeA",
  "transposeB",
  "kernel",
  "config",
]);
export const GEMM = /** @type {const} */ (["alpha", "beta", "precision"]);

/** `Device.matmul()`. @param {Call} call @param {any} givenA @param {any} givenB @param {any} options */
export async function matmul(call, givenA, givenB, options) {
  let [a, b] = [call.data(givenA), call.data(givenB)];
  if (flag("transposeA", options.transposeA)) a = transposed(a);
  if (flag("transposeB", options.transposeB)) b = transposed(b);
  const shape = resultShape(a, b);
  const left = a.ndim > 1 ? a : reshapedVector(a, [1, a.shape[0]]);
  const right = b.ndim > 1 ? b : reshapedVector(b, [b.shape[0], 1]);
  const batch = broadcastShape(left.shape.slice(0, -2), right.shape.slice(0, -2)) ?? [];
  const product = [...batch, left.shape[left.ndim - 2], right.shape[right.ndim - 1]];
  const settings = settingsOf(call, a.dtype, options, product, shape);
  const given = [a, b, settings.bias, settings.residual];
  const resident = given.some((x) => x instanceof DeviceArray);
  const c = await call.result(product, settings.out, resident);
  if (c.size) await fill(call, left, right, c, settings);
  return c instanceof DeviceArray ? reshaped(c, shape) : like(c.data, shape, c.dtype);
}

/**
 * Check the options of `matmul`.
 * @param {Call} call @param {ElementType} dtype of the operands @param {any} options
 * @param {number[]} product shape of the product of matrices @param {number[]} shape of the result, without the axes of vectors @returns {Settings}
 */
function settingsOf(call, dtype, options, product, shape) {
  const { core } = call;
  const bias = options.bias === undefined || options.bias === null ? null : call.data(options.bias);
  const residual = options.residual === undefined || options.residual === null ? null : call.data(options.residual);
  if (bias) checkBias(bias, product[product.length - 2], product[product.length - 1], dtype);
  if (residual && String(residual.shape) !== String(shape)) {
    throw new ProblemError(`residual has shape [${residual.shape}]; it must have the result's shape, [${shape}]`);
  }
  const activation = options.activation ? oneOf("activation", options.activation, core.ACTIVATIONS.keys()) : "";
  const precision =
    options.precision === undefined ? "highest" : oneOf("precision", options.precision, core.PRECISIONS);
  const out = call.dtype(options.outDtype, dtype);
  make(core.gemm, [1, 1, 1], { dtype: call.element(dtype), out_dtype: call.element(out) }); // throws for unsupported dtypes
  const kernel = call.device.kernelNamed(options.kernel, options.config, "gemm");
  return { bias, residual, terms: { alpha: number("alpha", options.alpha, 1), activation }, out, precision, kernel };
}

/** Compute `c`; host operands that exceed a limit are cut into pieces. @param {Call} call @param {Data} a @param {Data} b @param {Data} c @param {Settings} settings */
async function fill(call, a, b, c, settings) {
  if (c instanceof DeviceArray) {
    if (settings.residual) await copyInto(call, settings.residual, c);
    const [left, right] = [await call.array(await readable(call, a)), await call.array(await readable(call, b))];
    const bias = await biasOf(call, settings.bias, left.dtype);
    return multiply(call, left, right, c, bias, { ...settings.terms, beta: settings.residual ? 1 : 0 }, settings);
  }
  const batch = "ABCDEFGHIJKLMNOPQRSTUVWXYZ".slice(0, c.ndim - 2);
  const biasAxes = settings.bias ? (settings.bias.ndim === 1 ? "n" : "mt") : "";
  const operands = [labelled(a, batch, "mk"), labelled(b, batch, "kn")];
  if (settings.bias) operands.push(new Labelled(settings.bias, biasAxes));
  if (settings.residual) operands.push(new Labelled(reshaped(settings.residual, c.shape), `${batch}mn`, false));
  const compute = async (/** @type {DeviceArray[]} */ arrays, /** @type {DeviceArray} */ into) => {
    const [x, y, ...others] = arrays;
    const bias = settings.bias ? await biasOf(call, /** @type {DeviceArray} */ (others.shift()), x.dtype) : null;
    if (settings.residual) await copyInto(call, others[0], into);
    await multiply(call, x, y, into, bias, { ...settings.terms, beta: settings.residual ? 1 : 0 }, settings);
  };
  await inPieces(call, compute, operands, new Labelled(c, `${batch}mn`, false), `${batch}mn`);
}

/** Label a batch of matrices with the batch's letters, and broadcast axes with "1". @param {Data} x @param {string} batch @param {string} axes letters of the matrix axes */
export function labelled(x, batch, axes) {
  const letters = batch.slice(batch.length - (x.ndim - 2));
  return new Labelled(x, [...letters].map((letter, axis) => (x.shape[axis] > 1 ? letter : "1")).join("") + axes);
}

/** `Device.gemm()`: set c ← alpha·a·b + beta·c. @param {Call} call @param {any} a @param {any} b @param {any} c @param {any} options */
export async function gemm(call, a, b, c, options) {
  if (![a, b, c].every((x) => x instanceof DeviceArray))
    throw new ProblemError(
      "gemm() works in place and takes only arrays on a device; create one with await device.array(x)",
    );
  for (const x of [a, b, c]) call.data(x);
  checkSeparate("c", c, { a, b });
  if (Math.min(a.ndim, b.ndim, c.ndim) < 2)
    throw new ProblemError("gemm() takes matrices or batches of matrices, with at least 2 axes");
  const shape = resultShape(a, b);
  const sameMatrices = String(shape.slice(-2)) === String(c.shape.slice(-2));
  if (!sameMatrices || String(broadcastShape(shape, c.shape)) !== String(c.shape))
    throw new ProblemError(
      `a @ b has shape [${shape}]; c [${c.shape}] must have the same last two axes and broadcast its batch`,
    );
  if (c.shape.some((/** @type {number} */ length, /** @type {number} */ axis) => length > 1 && !c.strides[axis])) {
    throw new ProblemError(
      "c repeats its elements, as a broadcast view does; pass an array that stores each element once",
    );
  }
  const precision =
    options.precision === undefined ? "highest" : oneOf("precision", options.precision, call.core.PRECISIONS);
  const terms = { alpha: number("alpha", options.alpha, 1), beta: number("beta", options.beta, 0), activation: "" };
  if (c.size) await multiply(call, a, b, c, null, terms, { precision, kernel: undefined });
  return c;
}

/**
 * Queue c ← activation(alpha·a·b + bias) + beta·c, for arrays of at least two axes.
 * @param {Call} call @param {DeviceArray} a @param {DeviceArray} b @param {DeviceArray} c @param {DeviceArray | null} bias
 * @param {Record<string, any>} terms alpha, beta and the activation @param {{precision: string, kernel: any}} settings
 */
export async function multiply(call, a, b, c, bias, terms, { precision, kernel }) {
  const { core, device } = call;
  let [x, y, z] = [a, b, c];
  if (!x.shape[x.ndim - 1]) [x, y] = await zeroOperands(call, x, y);
  [x, y] = [await call.array(await readable(call, x)), await call.array(await readable(call, y))];
  const batch = z.shape.slice(0, -2);
  [x, y] = [x, y].map((each) => each.broadcastTo(...batch, ...each.shape.slice(-2)));
  const target = core.matrix_operand(z);
  if (target === null)
    throw new ProblemError("neither the rows nor the columns of c have unit stride; pass a contiguous array");
  let kind = bias ? (bias.ndim === 1 ? "column" : "row") : "";
  if (target.transposed) {
    [x, y, z] = [y.mT, x.mT, z.mT]; // Cᵀ = Bᵀ·Aᵀ is row-major
    kind = { "": "", column: "row", row: "column" }[kind] ?? "";
  }
  const [left, right, out] = [x, y, z].map((each) => core.matrix_operand(each));
  const [rows, columns] = z.shape.slice(-2);
  const template = make(
    core.Gemm,
    [rows, columns, x.shape[x.ndim - 1], 1, call.element(x.dtype), call.element(z.dtype), left, right, out],
    {
      bias_offset: bias ? bias.offset : 0,
      precision,
      bias: kind,
      ...terms,
    },
  );
  for (const problem of core.problems(template, core.batch_axes(x, y, z))) {
    for (const piece of core.pieces(problem, device.choices.described, limits(call, x.dtype))) {
      const size = piece.problem.m * piece.problem.n;
      const { name } = call.element(x.dtype).sums;
      const into = piece.apart && !piece.last ? await partialSums(call, size, name) : z;
      const added = piece.apart && piece.last ? await partialSums(call, size, name) : bias;
      const more = piece.problem.bias && added ? [added] : [];
      await call.run(piece.problem, [x, y, into, ...more], kernel);
    }
  }
}

/** @type {WeakMap<Call, DeviceArray>} the array for partial sums over k of each call */
const sums = new WeakMap();

/** @param {Call} call @param {number} size @param {ElementType} dtype @returns {Promise<DeviceArray>} the call's array for partial sums, with at least `size` elements */
async function partialSums(call, size, dtype) {
  const known = sums.get(call);
  if (known && known.size >= size) return known;
  const made = call.own(await call.empty([size], dtype));
  sums.set(call, made);
  return made;
}

/** For k = 0: operands of zeros with k = 1, whose product is the same. @param {Call} call @param {DeviceArray} a @param {DeviceArray} b */
async function zeroOperands(call, a, b) {
  const zero = await call.array(new HostArray(new Float32Array(1), [1], "float32"), a.dtype);
  return [
    zero.broadcastTo(...a.shape.slice(0, -1), 1),
    zero.broadcastTo(...b.shape.slice(0, -2), 1, b.shape[b.ndim - 1]),
  ];
}

/** Copy `from` into `to`, which is dense, converting the dtype. @param {Call} call @param {Data} from @param {DeviceArray} to */
async function copyInto(call, from, to) {
  const same =
    from instanceof DeviceArray &&
    from.contiguous &&
    from.dtype === to.dtype &&
    !(from.offset % 4) &&
    !(from.nbytes % 4) &&
    !(to.offset % 4);
  if (same) return call.copy(from, to);
  const host = from instanceof DeviceArray ? await call.read(from) : from;
  call.complete = false;
  call.device.write(to, host);
}

/** @param {Call} call @param {Data | null} bias @param {ElementType} dtype @returns {Promise<DeviceArray | null>} the bias on the device, in that dtype and with unit stride */
async function biasOf(call, bias, dtype) {
  if (!bias) return null;
  const array = await call.array(bias, dtype);
  if (array.strides[0] === 1 || array.shape[0] === 1) return array;
  return call.array(await call.read(array), dtype);
}

/** Throw ProblemError if the bias does not fit. @param {Data} bias @param {number} rows @param {number} columns @param {ElementType} dtype of the operands */
function checkBias(bias, rows, columns, dtype) {
  if (bias.dtype !== dtype && bias.dtype !== "float32")
    throw new ProblemError(`bias is ${bias.dtype}; it must be ${dtype}, as the operands are, or float32`);
  const shape = String(bias.shape);
  if (shape !== String([columns]) && shape !== String([rows, 1])) {
    throw new ProblemError(`bias has shape [${shape}]; it must be [${columns}], or [${rows}, 1] for one per row`);
  }
}

/** @param {Data} a @param {Data} b @returns {number[]} the shape of NumPy's a @ b; throws ProblemError if it is not defined */
export function resultShape(a, b) {
  if (!a.ndim || !b.ndim)
    throw new ProblemError(
      "a matrix product takes vectors, matrices or batches of matrices; to scale the result, use alpha",
    );
  if (a.dtype !== b.dtype) throw new ProblemError(`a is ${a.dtype}, b is ${b.dtype}; cast one of them`);
  const inner = b.ndim > 1 ? b.shape[b.ndim - 2] : b.shape[0];
  if (a.shape[a.ndim - 1] !== inner) {
    throw new ProblemError(
      `a [${a.shape}] and b [${b.shape}] do not fit: the inner sizes ${a.shape[a.ndim - 1]} and ${inner} differ`,
    );
  }
  const batch = broadcastShape(a.shape.slice(0, -2), b.shape.slice(0, -2));
  if (!batch) throw new ProblemError(`the batches of a [${a.shape}] and b [${b.shape}] do not broadcast`);
  return [...batch, ...(a.ndim > 1 ? a.shape.slice(-2, -1) : []), ...(b.ndim > 1 ? b.shape.slice(-1) : [])];
}

/** @param {Data} x a vector @param {number[]} shape with one row or one column @returns {Data} the vector as a matrix */
function reshapedVector(x, shape) {
  const [stride] = stridesOf(x);
  return viewOf(x, shape, shape[0] === 1 ? [shape[1] * stride, stride] : [stride, 1]);
}
