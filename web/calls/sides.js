/** Arrays on either side, for the steps of calls that are translated: the versions of webmm/calls/sides.py. */

import { DeviceArray, isResident } from "../engine/array.js";
import { ELEMENTS, HostArray, sizeOf, zeros } from "../host.js";
import { provide } from "../python.js";
import { laidOut, reshaped, viewOf } from "./operands.js";
import "./pieces.js";

/** @import { Data } from "./operands.js" */
/** @import { Call } from "../engine/plans.js" */
/** @import { Kernel, Problem } from "../engine/launch.js" */

/** @param {Call} call @param {Data} x @param {(x: Data) => any} find a translated `Layout` of an array, or null if that takes a copy @returns {Promise<Data>} the array with its layout, a copy if need be */
async function arranged(call, x, find) {
  const layout = find(x);
  return layout ? laidOut(x, layout) : arranged(call, await dense(call, x), find);
}

/** @param {Call} call @param {Data} x @returns {Promise<Data>} the array if it is dense, else a copy in host memory */
const dense = async (call, x) => (x.contiguous ? x : call.read(/** @type {DeviceArray} */ (x)));

/** @param {Call} call @param {Data} target dense @param {Data} data whose elements are converted and written there */
async function assign(call, target, data) {
  if (target instanceof HostArray) return target.data.set(/** @type {HostArray} */ (data).as(target.dtype).data);
  call.complete = false;
  if (data instanceof HostArray) return call.device.write(target, data);
  const { itemsize } = ELEMENTS[target.dtype];
  const [from, to, nbytes] = [data.offset, target.offset, data.size].map((count) => count * itemsize);
  const direct = data.contiguous && data.dtype === target.dtype && [from, to, nbytes].every((each) => each % 4 === 0);
  if (!direct) return call.device.write(target, await data.read());
  const [source, into] = [data.buffer, target.buffer];
  call.device.submissions.commands((encoder) => encoder.copyBufferToBuffer(source, from, into, to, nbytes));
}

/** What is done with an array of a call. @type {Record<string, (call: Call, x: Data, ...more: any[]) => unknown>} */
const OF_CALLS = {
  arranged,
  assign,
  at_index: (call, x, index) => laidOut(x, call.core.sliced(x, index)),
  beside: async (call, x, ...operands) =>
    x instanceof HostArray && isResident(...operands) ? call.device.array(x) : x,
  binding_of: ({ core, device }) => core.dispatch_limits(device.choices.described).binding,
  converted: async (call, x, dtype) => (x instanceof HostArray ? x.as(dtype.name) : call.array(x, dtype)),
  dense,
  described: (call) => call.device.choices.described,
  forward: async (call, x) =>
    call.array(x.strides.some((stride) => stride < 0) ? await call.read(/** @type {DeviceArray} */ (x)) : x),
  from_start: (call, x) => (x.offset ? call.read(/** @type {DeviceArray} */ (x)) : dense(call, x)),
  in_shape: async (call, x, shape) => reshaped(await dense(call, x), shape),
  kept: (_, x) => x,
  on_host: async (call, x) => (x instanceof HostArray ? x : call.read(x)),
  owned: (call, x) => (x instanceof DeviceArray ? call.own(x) : x),
  permuted: (call, x, axes) => laidOut(x, call.core.transposed(x, axes)),
  spread: (call, x, shape) => laidOut(x, call.core.broadcast(x, shape)),
};

const OTHERS = {
  /** @param {number[]} shape @param {any} dtype @param {number} value */
  filled: (shape, { name }, value) =>
    HostArray.from(new Float64Array(sizeOf(shape)).fill(value), { shape, dtype: name }),
  is_resident: isResident,
  laid_out: laidOut,
  /** @param {Data} a @param {Data} b */
  no_terms: (a, b) => [zeros(a.shape.with(-1, 1), a.dtype), zeros(b.shape.with(-2, 1), b.dtype)],
  /** @param {Data} x @param {number} axis @param {number} start @param {number} count */
  range_of: (x, axis, start, count) =>
    viewOf(x, x.shape.with(axis, count), x.strides, start * /** @type {number} */ (x.strides.at(axis))),
  reshaped,
  /** @param {Call} call @param {Kernel} kernel @param {Problem} problem @param {...DeviceArray} arrays */
  run_kernel: (call, kernel, problem, ...arrays) => call.queue(problem, arrays, kernel),
};

for (const [name, f] of Object.entries({ ...OF_CALLS, ...OTHERS })) provide(`webmm.calls.sides.${name}`, f);
provide("webmm.calls.product.fill", assign);
