// @ts-check
/** The calls for floating-point matrix products, as in webmm/calls/gemm.py. */

import { DeviceArray, checkSeparate } from "../engine/array.js";
import { like } from "../engine/transfer.js";
import { ProblemError } from "../errors.js";
import { HostArray } from "../host.js";
import { dataclasses, make } from "../python.js";
import { isGiven, readable, reshaped, spreadView, spreadShape, transposed, viewOf } from "./operands.js";
import { flag, number, oneOf } from "./options.js";
import { Labelled, inPieces, limits, ofProduct } from "./pieces.js";

/** @import { Data } from "./operands.js" */
/** @import { Applied, Epilogue } from "../epilogue.js" */
/** @import { Call } from "../engine/plans.js" */
/** @import { ElementType } from "../host.js" */
/** @import { Python } from "../bundle.js" */
/** The checked options of `matmul`; `terms` are translated `Terms`. @typedef {{bias: Data | null, residual: Data | null, operands: Data[], spreads: number[][], terms: Python, out: ElementType, precision: string, kernel: any}} Settings */

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
  const { core } = call;
  let [a, b] = [call.data(givenA), call.data(givenB)];
  if (flag("transposeA", options.transposeA)) a = transposed(a);
  if (flag("transposeB", options.transposeB)) b = transposed(b);
  const shape = core.result_shape(a, b);
  const product = core.matrix_shape(a, b);
  const own = await activationOf(call, options.activation);
  const settings = settingsOf(call, a.dtype, options, product, shape, own);
  core.check_operands(own.operands, shape);
  settings.spreads = own.operands.map((x) => spreadShape(x, shape, [a.ndim === 1, b.ndim === 1]));
  const resident = [a, b, settings.bias, settings.residual, ...own.operands].some((x) => x instanceof DeviceArray);
  const c = await call.result(product, settings.out, resident);
  const left = a.ndim > 1 ? a : viewOf(a, [1, a.size], [a.size * a.strides[0], a.strides[0]]);
  const right = b.ndim > 1 ? b : viewOf(b, [b.size, 1], [b.strides[0], 1]);
  if (c.size) await fill(call, left, right, c, settings);
  return c instanceof DeviceArray ? reshaped(c, shape) : like(c.data, shape, c.dtype);
}

/**
 * Check the options of `matmul`.
 * @param {Call} call @param {ElementType} dtype of the operands @param {any} options
 * @param {number[]} product shape of the product of matrices @param {number[]} shape of the result, without the axes of vectors
 * @param {Applied} own the activation @returns {Settings}
 */
function settingsOf(call, dtype, options, product, shape, own) {
  const { core } = call;
  const bias = isGiven(options.bias) ? call.data(options.bias) : null;
  const residual = isGiven(options.residual) ? call.data(options.residual) : null;
  if (bias) core.check_bias(bias, product, call.element(dtype));
  if (residual) core.check_residual(residual, shape);
  const { precision = core.PRECISIONS[0] } = options;
  const out = call.dtype(options.outDtype, dtype);
  make(core.gemm, [1, 1, 1], { dtype: call.element(dtype), out_dtype: call.element(out), precision }); // throws for what is unsupported
  const kernel = call.device.kernelNamed(options.kernel, options.config, "gemm");
  const given = {
    alpha: number("alpha", options.alpha, 1),
    beta: residual ? 1 : 0,
    bias: core.bias_kind(bias),
    activation: own.name,
    values: own.numbers,
  };
  const { operands } = own;
  return { bias, residual, operands, spreads: [], terms: make(core.Terms, [], given), out, precision, kernel };
}

/** @param {Call} call @param {unknown} activation an option @returns {Promise<Applied>} its name for problems, and its values */
export async function activationOf(call, activation) {
  // The page does not load the class: it has no field for functions of one's own.
  if (typeof activation === "object" && activation && "applied" in activation)
    return /** @type {Epilogue} */ (activation).applied(call);
  const name = activation ? oneOf("activation", activation, call.core.ACTIVATIONS.keys()) : "";
  return { name, numbers: [], operands: [] };
}

/** Compute `c`; host operands that exceed a limit are cut into pieces. @param {Call} call @param {Data} a @param {Data} b @param {Data} c @param {Settings} settings */
async function fill(call, a, b, c, settings) {
  if (c instanceof DeviceArray) {
    if (settings.residual) await copyInto(call, settings.residual, c);
    const [left, right] = [await call.array(await readable(call, a)), await call.array(await readable(call, b))];
    const bias = await biasOf(call, settings.bias, left.dtype);
    const more = [];
    for (const [i, x] of settings.operands.entries()) more.push(spreadView(await call.array(x), settings.spreads[i]));
    return multiply(call, left, right, c, bias, settings.terms, settings, more);
  }
  const batch = c.ndim - 2;
  const operands = [ofProduct(call, a, "mk", batch), ofProduct(call, b, "kn", batch)];
  if (settings.bias) operands.push(new Labelled(settings.bias, settings.bias.ndim === 1 ? "n" : "mt"));
  if (settings.residual) operands.push(ofProduct(call, reshaped(settings.residual, c.shape), "mn", batch, false));
  settings.operands.forEach((x, i) => operands.push(spreadLabelled(call, reshaped(x, settings.spreads[i]), batch)));
  const compute = async (/** @type {DeviceArray[]} */ arrays, /** @type {DeviceArray} */ into) => {
    const [x, y, ...others] = arrays;
    const more = others.splice(others.length - settings.operands.length);
    const bias = settings.bias ? await biasOf(call, /** @type {DeviceArray} */ (others.shift()), x.dtype) : null;
    if (settings.residual) await copyInto(call, others[0], into);
    await multiply(call, x, y, into, bias, settings.terms, settings, more);
  };
  const result = ofProduct(call, c, "mn", batch, false);
  await inPieces(call, compute, operands, result, result.along);
}

/** `Device.gemm()`: set c ← alpha·a·b + beta·c. @param {Call} call @param {any} a @param {any} b @param {any} c @param {any} options */
export async function gemm(call, a, b, c, options) {
  const { core } = call;
  if (![a, b, c].every((x) => x instanceof DeviceArray))
    throw new ProblemError(
      "gemm() works in place and takes only arrays on a device; create one with await device.array(x)",
    );
  for (const x of [a, b, c]) call.data(x);
  checkSeparate("c", c, { a, b });
  core.check_in_place(a, b, c);
  const given = { alpha: number("alpha", options.alpha, 1), beta: number("beta", options.beta, 0) };
  const { precision = core.PRECISIONS[0] } = options;
  if (c.size) await multiply(call, a, b, c, null, make(core.Terms, [], given), { precision, kernel: undefined });
  return c;
}

/**
 * Queue c ← activation(alpha·a·b + bias) + beta·c, for arrays of at least two axes.
 * @param {Call} call @param {DeviceArray} a @param {DeviceArray} b @param {DeviceArray} c @param {DeviceArray | null} bias
 * @param {Python} terms a translated `Terms` @param {{precision: string, kernel: any}} settings
 * @param {DeviceArray[]} [spread] operands of the activation, with as many axes as `c`
 */
export async function multiply(call, a, b, c, bias, terms, { precision, kernel }, spread = []) {
  const { core, device } = call;
  const batch = c.shape.slice(0, -2);
  const operands = [];
  for (const x of a.shape[a.ndim - 1] ? [a, b] : await zeroOperands(call, a, b)) {
    const array = await call.array(await readable(call, x));
    operands.push(array.broadcastTo(...batch, ...array.shape.slice(-2)));
  }
  const [x, y, z, kind] = core.row_major(...operands, c, terms.bias);
  const over = spread.map((each) => each.broadcastTo(...c.shape)).map((each) => (z === c ? each : each.mT));
  const finish = dataclasses.replace(terms, { bias: kind });
  const first = core.problem_of(x, y, z, bias?.offset ?? 0, finish, precision, ...over);
  for (const problem of core.problems(first, core.batch_axes(x, y, z, ...over))) {
    for (const piece of core.pieces(problem, device.choices.described, limits(call, x.dtype))) {
      const size = piece.problem.m * piece.problem.n;
      const { name } = problem.dtype.sums;
      const into = piece.apart && !piece.last ? await partialSums(call, size, name) : z;
      const added = piece.apart && piece.last ? await partialSums(call, size, name) : bias;
      const more = piece.problem.bias && added ? [added] : [];
      if (piece.problem.spreads.length) more.push(...over);
      await call.run(piece.problem, [x, y, into, ...more], kernel);
    }
  }
}

/** @param {Call} call @param {Data} x an operand of an activation, with the axes of the product @param {number} batch the number of axes of its batch @returns {Labelled} its axes of length 1 are not cut */
export function spreadLabelled(call, x, batch) {
  const letters = [...call.core.product_axes(x.shape, "mn", batch)];
  return new Labelled(x, letters.map((letter, axis) => (x.shape[axis] === 1 ? "1" : letter)).join(""));
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
