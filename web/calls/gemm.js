/** The calls for floating-point matrix products, as in webmm/calls/gemm.py. */

import { DeviceArray, checkSeparate } from "../engine/array.js";
import { like } from "../engine/transfer.js";
import { ProblemError } from "../errors.js";
import { HostArray } from "../host.js";
import { make } from "../python.js";
import { asMatrices, dense, forward, isGiven, noTerms, readable, reshaped, transposed } from "./operands.js";
import { flag, number, oneOf } from "./options.js";
import { LETTERS, Labelled, inPieces } from "./pieces.js";

/** @import { Data } from "./operands.js" */
/** @import { Applied, Epilogue } from "../epilogue.js" */
/** @import { Call } from "../engine/plans.js" */
/** @import { ElementType } from "../host.js" */
/** @import { Python } from "../bundle.js" */
/** Settings of the products of a call, and its array for partial sums, if there is one. @typedef {{precision: string, kernel?: any, sums?: DeviceArray}} Settings */

export const [MATMUL, GEMM] = [
  "bias activation residual alpha outDtype precision transposeA transposeB kernel config",
  "alpha beta precision",
].map((names) => names.split(" "));

/** `Device.matmul()`. @param {Call} call @param {any} givenA @param {any} givenB @param {any} options */
export async function matmul(call, givenA, givenB, options) {
  const { core } = call;
  let [a, b] = [call.data(givenA), call.data(givenB)];
  if (flag("transposeA", options.transposeA)) a = transposed(call, a);
  if (flag("transposeB", options.transposeB)) b = transposed(call, b);
  const own = await activationOf(call, options.activation);
  const [bias, residual] = [options.bias, options.residual].map((x) => (isGiven(x) ? call.data(x) : null));
  const shape = core.shape_with(a, b, bias, residual, own.operands);
  const { precision = core.PRECISIONS[0] } = options;
  const out = call.dtype(options.outDtype, a.dtype);
  make(core.gemm, [1, 1, 1], { dtype: call.element(a.dtype), out_dtype: call.element(out), precision }); // throws for what is unsupported
  const kernel = call.device.kernelNamed(options.kernel, options.config, "gemm");
  const terms = make(core.Terms, [], {
    alpha: number("alpha", options.alpha, 1),
    beta: residual ? 1 : 0,
    bias: core.bias_kind(bias),
    activation: own.name,
    values: own.numbers,
  });
  const c = await call.result(core.matrix_shape(a, b), out, a, b, bias, residual, ...own.operands);
  const vectors = [a.ndim === 1, b.ndim === 1];
  const [left, right] = [a, b].map((x, i) => (vectors[i] ? asMatrices(x, 1, [i === 0, i === 1]) : x));
  const [added, ...over] = [residual, ...own.operands].map((x) => x && asMatrices(x, shape.length, vectors));
  if (c.size) await fill(call, left, right, c, [bias, added, ...over], terms, { precision, kernel });
  return c instanceof DeviceArray ? reshaped(c, shape) : like(c.data, shape, c.dtype);
}

/** @param {Call} call @param {unknown} activation an option @returns {Promise<Applied>} its name for problems, and its values */
export async function activationOf(call, activation) {
  // The page does not load the class: it has no field for functions of one's own.
  if (typeof activation === "object" && activation && "applied" in activation)
    return /** @type {Epilogue} */ (activation).applied(call);
  const name = activation ? oneOf("activation", activation, call.core.ACTIVATIONS.keys()) : "";
  return { name, numbers: [], operands: [] };
}

/**
 * Compute `c`; host operands that exceed a limit are cut into pieces.
 * @param {Call} call @param {Data} a @param {Data} b @param {Data} c @param {(Data | null)[]} more the bias, the residual, and the operands of the activation
 * @param {Python} terms a translated `Terms` @param {Settings} settings
 */
async function fill(call, a, b, c, [bias, residual, ...over], terms, settings) {
  const given = [bias, residual, ...over].filter((x) => x !== null);
  const compute = async (/** @type {Data[]} */ [x, y, ...others], /** @type {DeviceArray} */ into) => {
    const added = bias && (await call.array(await dense(call, others[0]), x.dtype));
    if (residual) await copyInto(call, others[bias ? 1 : 0], into);
    await multiply(call, x, y, into, added, terms, settings, others.slice(given.length - over.length));
  };
  if (c instanceof DeviceArray) return compute([a, b, ...given], c);
  const matrices = (/** @type {Data} */ x) => new Labelled(x, `${LETTERS}mn`);
  const operands = [new Labelled(a, `${LETTERS}mk`), new Labelled(b, `${LETTERS}kn`), ...given.map(matrices)];
  await inPieces(call, compute, operands, new Labelled(c, `${LETTERS}mn`, false), `${LETTERS}mn`);
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
  if (c.size) await multiply(call, a, b, c, null, make(core.Terms, [], given), { precision });
  return c;
}

/**
 * Queue c ← activation(alpha·a·b + bias) + beta·c, for arrays of at least two axes.
 * @param {Call} call @param {Data} a @param {Data} b @param {DeviceArray} c @param {DeviceArray | null} bias
 * @param {Python} terms a translated `Terms` @param {Settings} settings @param {Data[]} [spread] operands of the activation, which broadcast to `c`
 */
export async function multiply(call, a, b, c, bias, terms, settings, spread = []) {
  const operands = [];
  for (const x of a.columns ? [a, b] : noTerms(a, b)) {
    const array = await call.array(await readable(call, x));
    operands.push(array.broadcastTo(...c.shape.slice(0, -2), ...array.shape.slice(-2)));
  }
  const over = [];
  for (const x of spread) over.push((await call.array(await forward(call, x))).broadcastTo(...c.shape));
  const described = call.device.choices.described;
  const dispatches = call.core.product_dispatches([...operands, c], bias, terms, settings.precision, over, described);
  for (const { problem, arrays, size, sums } of dispatches) {
    const given = [];
    for (const x of arrays) given.push(x ?? (await partialSums(call, settings, size, sums.name)));
    await call.queue(problem, given, settings.kernel);
  }
}

/** @param {Call} call @param {Settings} settings @param {number} size @param {ElementType} dtype @returns {Promise<DeviceArray>} the call's array for partial sums over k, with at least `size` elements */
async function partialSums(call, settings, size, dtype) {
  if (!settings.sums || settings.sums.size < size) settings.sums = call.own(await call.empty([size], dtype));
  return settings.sums;
}

/** Copy `from` into `to`, which is dense, converting the dtype. @param {Call} call @param {Data} from @param {DeviceArray} to */
async function copyInto(call, from, to) {
  if (from instanceof DeviceArray) {
    const whole = [from.offset, to.offset, from.nbytes].every((each) => each % 4 === 0);
    if (whole && from.contiguous && from.dtype === to.dtype) return call.copy(from, to);
  }
  call.complete = false;
  call.device.write(to, from instanceof DeviceArray ? await call.read(from) : from);
}

/** float64 sums are products with ones: set y[i, j] to the sum of x[i, k, j] over k, or to the mean if `mean`. @param {Call} call @param {DeviceArray} x @param {DeviceArray} y @param {boolean} mean */
export async function sumOverK(call, x, y, mean) {
  const [outer, length, inner] = x.shape;
  const ones = await call.array(new HostArray(new Float64Array(length).fill(1), [1, length], "float64"));
  const terms = make(call.core.Terms, [], { alpha: mean ? 1 / length : 1 });
  const settings = { precision: "highest" };
  if (inner === 1) await multiply(call, x.slice(null, null, 0), ones.mT, y, null, terms, settings);
  else await multiply(call, ones, x, y.reshape(outer, 1, inner), null, terms, settings);
}
