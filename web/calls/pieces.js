/** Pieces of arrays, for the translated webmm/page/pieces.py, which cuts calls of any size. */

import { isResident } from "../engine/array.js";
import { copyElements } from "../engine/transfer.js";
import { provide } from "../python.js";
import { laidOut } from "./operands.js";

/** @import { Python } from "../bundle.js" */
/** @import { DeviceArray } from "../engine/array.js" */
/** @import { Data } from "./operands.js" */
/** @import { Call } from "../engine/plans.js" */
/** A translated `Piece`: the range along each axis that is cut, by the axes' letters. @typedef {{at: Map<string, [number, number]>}} Piece */
/** A translated `Labelled`: an operand or a result with a letter for each of its axes. @typedef {Python} Labelled */

/** @param {Data} x @param {string} axes @param {Piece} piece @returns where its elements are in an array with these axes */
function layoutOf({ shape, strides, offset }, axes, { at }) {
  const ranges = shape.map((length, axis) => at.get(axes[axis]) ?? [0, length]);
  const first = ranges.reduce((sum, [start], axis) => sum + start * strides[axis], offset);
  return { shape: ranges.map(([start, stop]) => stop - start), strides, offset: first };
}

provide("webmm.engine.device.Array", isResident);
provide("webmm.calls.executor.piece_of", (x, axes, piece) => laidOut(x, layoutOf(x, axes, piece)));
provide("webmm.page.pieces.store", async (/** @type {[Call, DeviceArray, Labelled, Piece]} */ ...[, x, whole, piece]) =>
  copyElements(x.shape, await x.read(), { ...layoutOf(whole.data, whole.axes, piece), data: whole.data.data }),
);

/** @param {Call} call @param {any[]} given */
const inPlacedPieces = (call, ...given) => call.core.in_placed_pieces(call, ...given);
provide("webmm.calls.pieces.in_placed_pieces", inPlacedPieces);
provide(
  "webmm.calls.pieces.in_pieces",
  (/** @type {Call} */ call, /** @type {any} */ compute, /** @type {any[]} */ ...more) =>
    inPlacedPieces(call, (/** @type {any[]} */ ...[, ...arrays]) => compute(...arrays), ...more),
);
