/** Arrays on either side, for the steps of calls that are translated: the versions of webmm/calls/sides.py. */

import { DeviceArray, isResident } from "../engine/array.js";
import { HostArray, sizeOf } from "../host.js";
import { provide } from "../python.js";
import {
  arranged,
  asMatrices,
  dense,
  forward,
  laidOut,
  noTerms,
  partOf,
  readable,
  reshaped,
  rowsOf,
} from "./operands.js";
import { bindingOf, inPieces, inPlacedPieces } from "./pieces.js";

/** @import { Data } from "./operands.js" */
/** @import { Call } from "../engine/plans.js" */
/** @import { Kernel, Problem } from "../engine/launch.js" */

const SIDES = {
  is_resident: isResident,
  reshaped,
  part_of: partOf,
  laid_out: laidOut,
  /** @param {Call} call @param {Data} x @param {number[]} shape */
  spread: (call, x, shape) => laidOut(x, call.core.broadcast(x, shape)),
  as_matrices: asMatrices,
  /** @param {Call} call @param {Data} x @param {number} axis */
  as_ikj: (call, x, axis) => arranged(call, x, (x) => call.core.ikj(x, axis)),
  arranged,
  /** @param {Call} call @param {Data} target @param {HostArray} data */
  assign: (call, target, data) => {
    if (target instanceof HostArray) return target.data.set(data.as(target.dtype).data);
    call.complete = false;
    call.device.write(target, data);
  },
  /** @param {Call} call @param {Data} x @param {...Data} operands */
  beside: async (call, x, ...operands) =>
    x instanceof HostArray && isResident(...operands) ? call.device.array(x) : x,
  binding_of: bindingOf,
  /** @param {Call} call @param {Data} x @param {any} dtype */
  converted: async (call, x, dtype) => (x instanceof HostArray ? x.as(dtype.name) : call.array(x, dtype)),
  dense,
  /** @param {Call} call */
  described: (call) => call.device.choices.described,
  /** @param {number[]} shape @param {any} dtype @param {number} value */
  filled: (shape, { name }, value) => HostArray.from(Array(sizeOf(shape)).fill(value), { shape, dtype: name }),
  /** @param {Call} call @param {Data} x */
  forward: async (call, x) => call.array(await forward(call, x)),
  /** @param {Call} call @param {Data} x */
  from_start: (call, x) => (x.offset ? call.read(/** @type {DeviceArray} */ (x)) : dense(call, x)),
  kept: (/** @type {Call} */ _, /** @type {Data} */ x) => x,
  no_terms: noTerms,
  /** @param {Call} call @param {Data} x */
  on_host: async (call, x) => (x instanceof HostArray ? x : call.read(x)),
  /** @param {Call} call @param {Data} x */
  owned: (call, x) => (x instanceof DeviceArray ? call.own(x) : x),
  /** @param {Call} call @param {Data} x @param {number[]} index */
  part_at: (call, x, index) => laidOut(x, call.core.sliced(x, index)),
  /** @param {Call} call @param {Data} x @param {number[]} axes */
  permuted: (call, x, axes) => laidOut(x, call.core.transposed(x, axes)),
  readable,
  rows_of: rowsOf,
  in_pieces: inPieces,
  in_placed_pieces: inPlacedPieces,
  /** @param {Call} call @param {Kernel} kernel @param {Problem} problem @param {...DeviceArray} arrays */
  run_kernel: (call, kernel, problem, ...arrays) => call.queue(problem, arrays, kernel),
};

for (const [name, f] of Object.entries(SIDES)) provide(`webmm.calls.sides.${name}`, f);
