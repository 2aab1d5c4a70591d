/** The calls for reductions, softmax, normalisations and elementwise functions, as in webmm/calls. */

import { DeviceArray } from "../engine/array.js";
import { HostArray, sizeOf, zeros } from "../host.js";
import { make } from "../python.js";
import { sumOverK } from "./gemm.js";
import { dense, isGiven, laidOut, partOf, reshaped, viewOf } from "./operands.js";
import { flag, number } from "./options.js";
import { inPieces } from "./pieces.js";

/** @import { Data } from "./operands.js" */
/** @import { Call } from "../engine/plans.js" */
/** @import { ElementType } from "../host.js" */
/** @import { Declared } from "../reduction.js" */

export const REDUCE = ["axis", "keepdims", "outDtype", "y"];
export const NORMALISE = { softmax: ["axis"], layer_norm: ["weight", "bias", "eps"], rms_norm: ["weight", "eps"] };
export const GELU = ["approximate"];

/** `Device.reduce()`. @param {Call} call @param {any} given @param {any} op @param {any} options */
export async function reduce(call, given, op, options) {
  const { core } = call;
  const builtIn = core.OPERATIONS.has(op);
  const more = builtIn && !isGiven(options.y) ? null : await import("../reduction.js");
  const own = builtIn ? null : await /** @type {NonNullable<typeof more>} */ (more).declared(call, op);
  const operation = own?.operation ?? core.operation_of(op);
  const xs = more && isGiven(options.y) ? await more.together(call, given, options.y) : [call.data(given)];
  const [x] = xs;
  const axis = options.axis ?? null;
  const axes = core.axes_of(x, axis);
  const asked = options.outDtype === undefined ? null : call.element(call.dtype(options.outDtype, x.dtype));
  const out = core.reduced_dtype(operation, xs, asked, axis, axes).name;
  core.check_device(operation, call.element(x.dtype), call.device.capabilities.features, call.device.capabilities.name);
  const shape = core.reduced_shape(x, axes, flag("keepdims", options.keepdims));
  const onSide = async (/** @type {HostArray} */ y) => (x instanceof DeviceArray ? call.device.array(y) : y);
  if (!x.size) {
    const value = own ? own.none(x.dtype) : core.of_nothing(operation, x, axes);
    return onSide(new HostArray(new Float32Array(sizeOf(shape)).fill(value), shape, "float32").as(out));
  }
  const pieces = await eachAsIkj(call, xs, axes);
  const inParts = pieces.some((piece) => partLength(call, piece) < piece[0].shape[1]);
  const all = await call.result([sizeOf(shape)], out, inParts ? null : x);
  for (const [at, piece] of pieces.entries()) {
    const [outer, , inner] = piece[0].shape;
    await reduceInto(call, operation, piece, viewOf(all, [outer, inner], [inner, 1], at * outer * inner), own);
  }
  return reshaped(inParts ? await onSide(/** @type {HostArray} */ (all)) : all, shape);
}

/** @param {Call} call @param {Data[]} xs @returns {number} how much of k of x[i, k, j] can be reduced at once */
function partLength({ core, device: { choices, memory } }, xs) {
  const most = xs.map((x) => core.most_at_once(choices.described, memory, x instanceof DeviceArray));
  return core.k_at_once(xs, most);
}

/** Reduce x[i, k, j] over k into y[i, j], which is in host memory if k has to be split into parts. @param {Call} call @param {any} operation @param {Data[]} xs @param {Data} y @param {Declared | null} [own] */
async function reduceInto(call, operation, xs, y, own = null) {
  const { core } = call;
  const [outer, length, inner] = xs[0].shape;
  const step = partLength(call, xs);
  if (step < length) {
    const results = async (/** @type {any} */ operation, /** @type {ElementType} */ dtype) => {
      const parts = [];
      for (let start = 0; start < length; start += step) {
        const part = zeros([outer, inner], dtype);
        const views = xs.map((each) => partOf(each, 1, start, Math.min(step, length - start)));
        await reduceInto(call, operation, views, part);
        parts.push(part.data);
      }
      return parts;
    };
    const { inParts } = await import("../reduction.js");
    return inParts(core, operation, own, xs[0].dtype, { length, step, results }, /** @type {HostArray} */ (y));
  }
  const compute = (/** @type {DeviceArray[]} */ [from, other], /** @type {DeviceArray} */ to) => {
    if (from.dtype === "float64" && operation.multiplied) return sumOverK(call, from, to, operation.name === "mean");
    return call.run(core.reduction_of(operation, from, to, other ?? null), ...[from, to, other].filter(Boolean));
  };
  const labelled = xs.map((x) => core.labelled(x, "ikj"));
  await inPieces(
    call,
    async (...all) => compute(all, /** @type {DeviceArray} */ (all.pop())),
    labelled,
    core.labelled(y, "ij"),
    "ij",
  );
}

/** `Device.softmax()`, `layerNorm()` and `rmsNorm()`. @param {Call} call @param {"softmax" | "layer_norm" | "rms_norm"} name @param {any} x @param {any} options */
export function normalise(call, name, x, { axis = -1, weight = null, bias = null, eps }) {
  const epsilon = name === "softmax" ? 0 : number("eps", eps, 1e-5);
  return call.core.normalised(call, call.data(x), name, axis, weight, bias, epsilon);
}

/** `Device.gelu()`. @param {Call} call @param {any} given @param {any} options */
export const gelu = async (call, given, options) =>
  mapped(call, call.data(given), flag("approximate", options.approximate) ? "gelu_tanh" : "gelu");

/** @param {Call} call @param {Data} x @param {string} name of an activation @returns {Promise<Data>} it of each element */
export async function mapped(call, x, name) {
  call.core.check_floats("activations", call.element(x.dtype));
  const y = await call.result(x.shape, x.dtype, x);
  if (!x.size) return y;
  const compute = (/** @type {DeviceArray[]} */ [from], /** @type {DeviceArray} */ to) => {
    const problem = make(call.core.Elementwise, [name, from.size, call.element(from.dtype), from.offset, to.offset]);
    return call.run(problem, from, to);
  };
  const [from, to] = [await dense(call, x), y].map((each) => call.core.labelled(reshaped(each, [x.size]), "i"));
  await inPieces(call, async (...all) => compute(all, /** @type {DeviceArray} */ (all.pop())), [from], to, "i");
  return y;
}

// Arrays as x[i, k, j], reduced along k

/** @param {Call} call @param {Data[]} xs of one shape @param {number[]} axes @returns {Promise<Data[][]>} views x[i, k, j] of each, or copies in host memory, with k along all of `axes`; their results (i, j) are consecutive in the reduction's result */
async function eachAsIkj(call, xs, axes) {
  const all = call.core.each_ikj(xs, axes);
  if (all.length) return all.map((/** @type {any[]} */ layouts) => layouts.map((layout, n) => laidOut(xs[n], layout)));
  const { shape, size } = xs[0];
  const length = sizeOf(axes.map((axis) => shape[axis]));
  const order = [...[...shape.keys()].filter((axis) => !axes.includes(axis)), ...axes];
  const rows = [];
  for (const x of xs) {
    const ordered = await dense(call, laidOut(x, call.core.transposed(x, order)));
    rows.push(reshaped(ordered, [size / length, length, 1]));
  }
  return [rows];
}
