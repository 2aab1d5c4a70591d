/**
 * Calls of any size, as in webmm/calls/pieces.py: a call is cut along axes with independent results until every piece fits the
 * limits: the size of a binding, the work of one dispatch, and, for host arrays, `Device.memory`. Pieces of `DeviceArray`s are
 * read and written in place; a piece that no binding can cover is copied through the host.
 */

import { isResident } from "../engine/array.js";
import { copyElements } from "../engine/transfer.js";
import { HostArray, zeros } from "../host.js";
import { provide } from "../python.js";
import { laidOut } from "./operands.js";

/** @import { Python } from "../bundle.js" */
/** @import { DeviceArray } from "../engine/array.js" */
/** @import { Data } from "./operands.js" */
/** @import { Call } from "../engine/plans.js" */
/** A translated `Piece`: the range along each axis that is cut, by the axes' letters. @typedef {{at: Map<string, [number, number]>}} Piece */
/** Queues a piece, given its operands and its result. @typedef {(...arrays: DeviceArray[]) => Promise<unknown>} Compute */
/** The same, given its place first. @typedef {(piece: Piece, ...arrays: DeviceArray[]) => Promise<unknown>} PlacedCompute */
/** A translated `Labelled`: an operand or a result with a letter for each of its axes. @typedef {Python} Labelled */

/** @param {Data} x @param {string} axes @param {Piece} piece @returns where its elements are in an array with these axes */
function layoutOf({ shape, strides, offset }, axes, { at }) {
  const ranges = shape.map((length, axis) => at.get(axes[axis]) ?? [0, length]);
  const first = ranges.reduce((sum, [start], axis) => sum + start * strides[axis], offset);
  return { shape: ranges.map(([start, stop]) => stop - start), strides, offset: first };
}

provide("webmm.engine.device.Array", isResident);
provide("webmm.calls.executor.piece_of", (x, axes, piece) => laidOut(x, layoutOf(x, axes, piece)));

/** @param {Call} call @returns {number} the most bytes that a dispatch can bind of a buffer */
export const bindingOf = ({ core, device }) => core.dispatch_limits(device.choices.described).binding;

/** As `inPlacedPieces()`, for pieces that do not depend on where they are. @param {Call} call @param {Compute} compute @param {[Labelled[], Labelled, string, string?, number?]} more */
export const inPieces = (call, compute, ...more) => inPlacedPieces(call, (_, ...arrays) => compute(...arrays), ...more);

/**
 * Compute `result` in pieces: cut along the axes with the letters `along` if necessary, and into pieces of length 1 along `each`.
 * @param {Call} call @param {PlacedCompute} compute @param {Labelled[]} operands @param {Labelled} result
 * @param {string} along @param {string} [each] @param {number} [flops] of the whole call
 */
export async function inPlacedPieces(call, compute, operands, result, along, each = "", flops = 0) {
  const { core, device } = call;
  const [binding, limits] = [bindingOf(call), [device.choices.described, device.memory]];
  /** @type {Piece[]} */
  const pieces = core.planned_pieces(...limits, operands, result, along, each, flops);
  const { data, axes } = result;
  const throughHost = core.goes_through_host(result, pieces, binding);
  /** @type {Data} */
  const whole = throughHost ? zeros(data.shape, data.dtype) : data;
  for (const piece of pieces) {
    /** @type {DeviceArray[]} */
    const moved = [];
    const own = async (/** @type {Promise<DeviceArray>} */ made) => {
      call.complete = false;
      return moved[moved.push(await made) - 1];
    };
    try {
      const arrays = [];
      for (const one of operands.map((operand) => operand.within(piece))) {
        const there = one.on_host || one.in_place(binding) ? one.data : await call.read(one.data);
        arrays.push(isResident(there) ? there : await own(device.array(there)));
      }
      const place = layoutOf(whole, axes, piece);
      const host = whole instanceof HostArray ? whole : null;
      const target = /** @type {DeviceArray} */ (
        host ? await own(device.empty(place.shape, host.dtype)) : laidOut(whole, place)
      );
      await compute(piece, ...arrays, target);
      if (host) copyElements(place.shape, await target.read(), { ...place, data: host.data });
    } finally {
      for (const array of moved) array.free();
    }
  }
  if (throughHost) device.write(data, /** @type {HostArray} */ (whole));
}
