/** The calls for floating-point matrix products, as in webmm/calls/gemm.py. */

import { DeviceArray } from "../engine/array.js";
import { like } from "../engine/transfer.js";
import { ProblemError } from "../errors.js";
import { Dict, make, provide } from "../python.js";
import { laidOut } from "./operands.js";
import { flag, ifGiven, number, oneOf } from "./options.js";

/** @import { Applied, Epilogue } from "../epilogue.js" */
/** @import { Call } from "../engine/plans.js" */

export const [MATMUL, GEMM] = [
  "bias activation residual alpha outDtype precision transposeA transposeB kernel config",
  "alpha beta precision",
].map((names) => names.split(" "));

/** `Device.matmul()`. @param {Call} call @param {any} givenA @param {any} givenB @param {any} options */
export async function matmul(call, givenA, givenB, options) {
  const { core } = call;
  let [a, b] = [call.data(givenA), call.data(givenB)];
  if (flag("transposeA", options.transposeA)) a = laidOut(a, core.matrices_transposed(a));
  if (flag("transposeB", options.transposeB)) b = laidOut(b, core.matrices_transposed(b));
  const own = await activationOf(call, options.activation);
  const [bias, residual] = [options.bias, options.residual].map((x) => ifGiven(x, (given) => call.data(given)));
  call.kernel = call.device.kernelNamed(options.kernel, options.config, "gemm");
  const { precision = core.PRECISIONS[0] } = options;
  const [alpha, out] = [number("alpha", options.alpha, 1), call.element(options.outDtype)];
  const c = await core.matrix_product(call, a, b, bias, residual, own, alpha, precision, out);
  return c instanceof DeviceArray ? c : like(c.data, c.shape, c.dtype);
}

/** @param {Call} call @param {unknown} activation an option @returns {Promise<Applied>} its name for problems, and its values */
export async function activationOf(call, activation) {
  // The page does not load the class: it has no field for functions of one's own.
  if (typeof activation === "object" && activation && "applied" in activation)
    return /** @type {Epilogue} */ (activation).applied(call);
  const name = activation ? oneOf("activation", activation, call.core.ACTIVATIONS.keys()) : "";
  return { name, numbers: [], operands: [] };
}

/** `Device.gemm()`: set c ← alpha·a·b + beta·c. @param {Call} call @param {any} a @param {any} b @param {any} c @param {any} options */
export async function gemm(call, a, b, c, options) {
  const { core } = call;
  if (![a, b, c].every((x) => x instanceof DeviceArray))
    throw new ProblemError(
      "gemm() works in place and takes only arrays on a device; create one with await device.array(x)",
    );
  for (const x of [a, b, c]) call.data(x);
  core.check_separate("c", c, new Dict(Object.entries({ a, b })));
  core.check_in_place(a, b, c);
  const given = { alpha: number("alpha", options.alpha, 1), beta: number("beta", options.beta, 0) };
  const { precision = core.PRECISIONS[0] } = options;
  await core.multiplied(call, a, b, c, null, null, make(core.Terms, [], given), precision);
  return c;
}

provide("webmm.calls.doubles.add_up", async (/** @type {Call} */ call, /** @type {any[]} */ ...given) => {
  const [alpha, a, b, c] = await call.core.as_product(call, ...given);
  await call.core.multiplied(call, a, b, c, null, null, make(call.core.Terms, [], { alpha }), "highest");
});
