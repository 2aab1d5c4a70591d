/** The calls for reductions, softmax, normalisations and elementwise functions, as in webmm/calls. */

import { provide } from "../python.js";
import { flag, ifGiven, number } from "./options.js";

/** @import { Data } from "./operands.js" */
/** @import { Call } from "../engine/plans.js" */

export const REDUCE = ["axis", "keepdims", "outDtype", "y"];
export const NORMALISE = { softmax: ["axis"], layer_norm: ["weight", "bias", "eps"], rms_norm: ["weight", "eps"] };
export const GELU = ["approximate"];

provide("webmm.calls.reduce.combine", async (/** @type {[any, any, any, number, number, any]} */ ...given) =>
  (await import("../reduction.js")).combine(...given),
);

/** `Device.reduce()`. @param {Call} call @param {any} x @param {any} op @param {any} options @returns {Promise<Data>} */
export async function reduce(call, x, op, { axis = null, keepdims, outDtype, y }) {
  const { core } = call;
  const operation = core.OPERATIONS.get(op) ?? (await (await import("../reduction.js")).declared(call, op));
  const given = [call.data(x), ifGiven(y, (other) => call.data(other))].filter((each) => each !== null);
  return core.reduced(call, given, operation, axis, flag("keepdims", keepdims), call.element(outDtype));
}

/** `Device.softmax()`, `layerNorm()` and `rmsNorm()`. @param {Call} call @param {"softmax" | "layer_norm" | "rms_norm"} name @param {any} x @param {any} options */
export function normalise(call, name, x, { axis = -1, weight = null, bias = null, eps }) {
  const epsilon = name === "softmax" ? 0 : number("eps", eps, 1e-5);
  return call.core.normalised(call, call.data(x), name, axis, weight, bias, epsilon);
}

/** `Device.gelu()`. @param {Call} call @param {any} given @param {any} options */
export const gelu = async (call, given, options) =>
  call.core.mapped(call, call.data(given), flag("approximate", options.approximate) ? "gelu_tanh" : "gelu");
