/** Arrays on either side, for the steps of calls that are translated: the versions of webmm/calls/sides.py. */

import { isResident } from "../engine/array.js";
import { provide } from "../python.js";
import { arranged, asMatrices, dense, forward, laidOut, noTerms, partOf, readable, reshaped } from "./operands.js";
import { inPieces } from "./pieces.js";

/** @import { Data } from "./operands.js" */
/** @import { Labelled } from "./pieces.js" */
/** @import { Call } from "../engine/plans.js" */
/** @import { DeviceArray } from "../engine/array.js" */
/** Queues a piece, given its operands and its result. @typedef {(...arrays: DeviceArray[]) => Promise<unknown>} Compute */
/** The same, given its place first. @typedef {(piece: any, ...arrays: DeviceArray[]) => Promise<unknown>} PlacedCompute */

const SIDES = {
  is_resident: isResident,
  reshaped,
  part_of: partOf,
  laid_out: laidOut,
  /** @param {Call} call @param {Data} x @param {number[]} shape */
  spread: (call, x, shape) => laidOut(x, call.core.broadcast(x, shape)),
  /** @param {Data} x @param {number} ndim @param {boolean} rows @param {boolean} columns */
  as_matrices: (x, ndim, rows, columns) => asMatrices(x, ndim, [rows, columns]),
  /** @param {Call} call @param {Data} x @param {number} axis */
  as_ikj: (call, x, axis) => arranged(call, x, (x) => call.core.ikj(x, axis)),
  dense,
  /** @param {Call} call */
  described: (call) => call.device.choices.described,
  /** @param {Call} call @param {Data} x */
  forward: async (call, x) => call.array(await forward(call, x)),
  /** @param {Call} call @param {Data} x */
  from_start: (call, x) => (x.offset ? call.read(/** @type {DeviceArray} */ (x)) : dense(call, x)),
  no_terms: noTerms,
  readable,
  /** @param {Call} call @param {Compute} compute @param {Labelled[]} operands @param {Labelled} result @param {string} along @param {string} [each] @param {number} [flops] */
  in_pieces: (call, compute, operands, result, along, each, flops) =>
    inPieces(call, (arrays, into) => compute(...arrays, into), operands, result, along, { each, flops }),
  /** @param {Call} call @param {PlacedCompute} compute @param {Labelled[]} operands @param {Labelled} result @param {string} along @param {string} [each] @param {number} [flops] */
  in_placed_pieces: (call, compute, operands, result, along, each, flops) =>
    inPieces(call, (arrays, into, piece) => compute(piece, ...arrays, into), operands, result, along, { each, flops }),
};

for (const [name, f] of Object.entries(SIDES)) provide(`webmm.calls.sides.${name}`, f);
