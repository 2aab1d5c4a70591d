/**
 * Calls of any size, as in webmm/calls/pieces.py: a call is cut along axes with independent results until every piece fits the
 * limits: the size of a binding, the work of one dispatch, and, for host arrays, `Device.memory`. Pieces of `DeviceArray`s are
 * read and written in place; a piece that no binding can cover is copied through the host.
 */

import { DeviceArray } from "../engine/array.js";
import { ELEMENTS, HostArray, denseStrides, sizeOf } from "../host.js";
import { viewOf } from "./operands.js";

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

  /** @param {Piece} piece @returns {[number, number][]} the range of a piece along each axis */
  ranges(piece) {
    return this.data.shape.map((length, axis) => piece.at.get(this.axes[axis]) ?? [0, length]);
  }

  /** @param {Piece} piece @returns {Labelled} what belongs to a piece */
  within(piece) {
    const { strides } = this.data;
    const ranges = this.ranges(piece);
    const lengths = ranges.map(([start, stop]) => stop - start);
    const offset = ranges.reduce((sum, [start], axis) => sum + start * strides[axis], 0);
    return new Labelled(viewOf(this.data, lengths, strides, offset), this.axes, this.strided, this.placed);
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
  const whole = throughHost ? new HostArray(ELEMENTS[dtype].of(sizeOf(shape)), shape, dtype) : result.data;
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
      const ranges = into.ranges(piece);
      const lengths = ranges.map(([from, to]) => to - from);
      const target = into.onHost ? await own(device.empty(lengths, dtype)) : into.within(piece).data;
      await compute(arrays, /** @type {DeviceArray} */ (target), piece);
      if (whole instanceof HostArray) place(await /** @type {DeviceArray} */ (target).read(), whole, ranges);
    } finally {
      for (const array of moved) array.free();
    }
  }
  if (throughHost) device.write(/** @type {DeviceArray} */ (result.data), /** @type {HostArray} */ (whole));
}

/** Copy `part` into `whole`, at its ranges along the axes. @param {HostArray} part @param {HostArray} whole @param {[number, number][]} ranges */
function place(part, whole, ranges) {
  const last = part.columns ?? 1;
  const copied = (/** @type {number} */ axis, /** @type {number} */ from, /** @type {number} */ to) => {
    const start = axis < part.ndim ? to + ranges[axis][0] * whole.strides[axis] : to;
    if (axis >= part.ndim - 1) return whole.data.set(part.data.subarray(from, from + last), start);
    for (let i = 0; i < part.shape[axis]; i++)
      copied(axis + 1, from + i * part.strides[axis], start + i * whole.strides[axis]);
  };
  copied(0, 0, 0);
}
