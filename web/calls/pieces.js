/**
 * Calls of any size, as in webmm/calls/pieces.py: a call is cut along axes with independent results until every piece fits the
 * limits: the size of a binding, the work of one dispatch, and, for host arrays, `Device.memory`. Pieces of `DeviceArray`s are
 * read and written in place; a piece that no binding can cover is copied through the host.
 */

import { DeviceArray } from "../engine/array.js";
import { copyElements } from "../engine/transfer.js";
import { ELEMENTS, HostArray, zeros } from "../host.js";
import { laidOut } from "./operands.js";

/** @import { Data } from "./operands.js" */
/** @import { Call } from "../engine/plans.js" */
/** A translated `Piece`: the range along each axis that is cut, by the axes' letters. @typedef {{at: Map<string, [number, number]>}} Piece */

/** Letters for the axes of arrays of any rank, or of any batch. */
export const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/**
 * An operand or a result with a letter for each of its axes, the last of `axes`. Axes with the same letter are cut
 * together; an axis of length 1, which may broadcast, is not cut. If `strided`, kernels accept any element offset and any
 * non-negative strides; otherwise the data must be dense and aligned for a binding, as results are unless they are
 * `placed`: written with any strides, too.
 */
export class Labelled {
  /** @param {Data} data @param {string} axes @param {boolean} [strided] @param {boolean} [placed] */
  constructor(data, axes, strided = true, placed = false) {
    this.data = data;
    this.axes = data.shape.map((length, at) => (length === 1 ? "1" : axes.at(at - data.ndim))).join("");
    this.strided = strided;
    this.placed = placed;
    this.onHost = !(data instanceof DeviceArray);
  }

  /** @param {Piece} piece @returns where its elements are */
  layout({ at }) {
    const { shape, strides, offset } = this.data;
    const ranges = shape.map((length, axis) => at.get(this.axes[axis]) ?? [0, length]);
    const first = ranges.reduce((sum, [start], axis) => sum + start * strides[axis], offset);
    return { shape: ranges.map(([start, stop]) => stop - start), strides, offset: first };
  }

  /** @param {Piece} piece @returns {Labelled} what belongs to a piece */
  within(piece) {
    return new Labelled(laidOut(this.data, this.layout(piece)), this.axes, this.strided, this.placed);
  }

  /** @param {Call} call @param {number} binding maximum size of a binding in bytes @param {boolean} [written] @returns {boolean} whether kernels can read, or if `written` write, it in place */
  inPlace({ core }, binding, written = false) {
    return !this.onHost && core.in_place(this.data, binding, this.strided, written && !this.placed);
  }
}

/** @param {Call} call @returns {number} the most bytes that a dispatch can bind of a buffer */
export const bindingOf = ({ core, device }) => core.dispatch_limits(device.choices.described).binding;

/**
 * Compute `result` in pieces: cut along the axes with the letters `along` if necessary, and into pieces of length 1 along `each`.
 * @param {Call} call @param {(arrays: DeviceArray[], into: DeviceArray, piece: Piece) => Promise<unknown>} compute queues one piece, given its operands, its result and its place
 * @param {Labelled[]} operands @param {Labelled} result @param {string} along @param {{each?: string, flops?: number}} [options]
 */
export async function inPieces(call, compute, operands, result, along, { each = "", flops = 0 } = {}) {
  const { core, device } = call;
  const binding = bindingOf(call);
  const cut = (/** @type {string} */ letters) => [...letters].filter((letter) => result.axes.includes(letter)).join("");
  const arrays = [...operands, result].map(
    ({ data, axes, onHost }) => new core.Extents(axes, data.shape, ELEMENTS[data.dtype].itemsize, onHost),
  );
  const most = core.moving_limits(device.choices.described, device.memory);
  /** @type {Piece[]} */
  const pieces = [...core.array_pieces(arrays, cut(along), cut(each), most, flops)];
  const throughHost = !result.onHost && !pieces.every((piece) => result.within(piece).inPlace(call, binding, true));
  const { shape, dtype } = result.data;
  const whole = throughHost ? zeros(shape, dtype) : result.data;
  const into = new Labelled(whole, result.axes);
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
        const inPlace = one.onHost || one.inPlace(call, binding);
        const data = inPlace ? one.data : await call.read(/** @type {DeviceArray} */ (one.data));
        arrays.push(data instanceof DeviceArray ? data : await own(device.array(data)));
      }
      const place = into.layout(piece);
      const made = into.onHost ? await own(device.empty(place.shape, dtype)) : laidOut(whole, place);
      const target = /** @type {DeviceArray} */ (made);
      await compute(arrays, target, piece);
      if (whole instanceof HostArray) copyElements(place.shape, await target.read(), { ...place, data: whole.data });
    } finally {
      for (const array of moved) array.free();
    }
  }
  if (throughHost) device.write(/** @type {DeviceArray} */ (result.data), /** @type {HostArray} */ (whole));
}
