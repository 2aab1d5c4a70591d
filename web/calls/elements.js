/** Expressions of the elements of arrays, as in webmm/calls/expression.py, and the calls that are made of them. */

import { Epilogue } from "../epilogue.js";
import { ProblemError } from "../errors.js";
import { provide } from "../python.js";
import { activationOf } from "./gemm.js";
import { flag } from "./options.js";

/** @import { Call } from "../engine/plans.js" */
/** @import { Engine as Device } from "../engine/engine.js" */

/** @param {Device} device @returns {Promise<any>} the translated modules of expressions */
export async function expressions({ bundle }) {
  const late = await bundle.module("elements.js");
  provide("webmm.choose.elementwise._fused", () => [new late.Fused(), new late.Fused(late.COMPATIBLE)]);
  return late;
}

/** `Device.map()`. @param {Call} call @param {any} given @param {any} f */
export async function map(call, given, f) {
  if (!f) throw new ProblemError("map() needs a function: the name of an activation, or an Epilogue");
  const x = call.data(given);
  const { name } = await activationOf(call, f);
  if (!(f instanceof Epilogue)) return call.core.mapped(call, x, name);
  const core = await expressions(call.device);
  const functions = f.links.map((each) => each.applied(call));
  return core.in_turn(call, x, await Promise.all(functions));
}

/** `Device.rotary()`. @param {Call} call @param {any} x @param {any} cos @param {any} sin @param {any} options */
export async function rotary(call, x, cos, sin, options) {
  const core = await expressions(call.device);
  const [source, ...tables] = [x, cos, sin].map((each) => call.data(each));
  return core.rotated(call, source, ...tables, flag("interleaved", options.interleaved));
}
