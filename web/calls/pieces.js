// @ts-check
/**
 * Calls of any size, as in webmm/calls/pieces.py: a call is cut into pieces along axes on which its results do not depend
 * on each other, by the translation of webmm/cut/arrays.py, until every piece fits. The limits are the size of a binding, the work of one dispatch, and, for host
 * arrays, `Device.memory`. Pieces of `DeviceArray`s are read and written in place; a piece that no binding can cover is
 * copied through the host.
 */

import { DeviceArray } from "../engine/array.js";
import { ELEMENTS, HostArray, denseStrides, sizeOf } from "../host.js";
import { viewOf } from "./operands.js";

/** @import { Data } from "./operands.js" */
/** @import { Call } from "../engine/plans.js" */
/** A translated `Piece`: the range along each axis that is cut, by the axes' letters. @typedef {{at: Map<string, [number, number]>}} Piece */

const ALIGNMENT = 256; // bytes; on every device, a binding may start at a multiple of this

/**
 * An operand or a result with a letter for each of its axes; axes with the same letter are cut together. If `strided`,
 * kernels accept any element offset and any non-negative strides; otherwise the data must be dense and aligned for a
 * binding, as results are.
 */
export class Labelled {
  /** @param {Data} data @param {string} axes @param {boolean} [strided] */
  constructor(data, axes, strided = true) {
    this.data = data;
    this.axes = axes;
    this.strided = strided;
    this.onHost = !(data instanceof DeviceArray);
  }

  /** The letters of its axes, without those that broadcast. */
  get along() {
    return this.axes.replaceAll("1", "");
  }

  /** @param {Piece} piece @returns {[number, number][]} the range of a piece along each axis */
  ranges(piece) {
    return this.data.shape.map((length, axis) => piece.at.get(this.axes[axis]) ?? [0, length]);
  }

  /** @param {Piece} piece @returns {Data} the view of the data that belongs to a piece */
  within(piece) {
    const { strides } = this.data;
    const ranges = this.ranges(piece);
    if (ranges.every(([start, stop], axis) => start === 0 && stop === this.data.shape[axis])) return this.data;
    const offset = ranges.reduce((sum, [start], axis) => sum + start * strides[axis], 0);
    return viewOf(
      this.data,
      ranges.map(([start, stop]) => stop - start),
      strides,
      offset,
    );
  }

  /** @param {Call} call @param {Data} x a piece of the data @param {number} binding maximum size of a binding in bytes @param {boolean} [written] @returns {boolean} whether kernels can read, or if `written` write, it in place */
  inPlace({ core }, x, binding, written = false) {
    return x instanceof DeviceArray && core.in_place(x, binding, this.strided, written);
  }
}

/** @param {Call} call @param {Data} x @param {string} axes letters of the matrix axes @param {number} batch the number of axes of the batch @param {boolean} [strided] @returns {Labelled} an operand or a result of products */
export const ofProduct = ({ core }, x, axes, batch, strided) =>
  new Labelled(x, core.product_axes(x.shape, axes, batch), strided);

/** @param {Call} call @returns {number} the maximum size of a buffer that can be bound as a whole, in bytes */
const maxBuffer = ({ device: { limits } }) => Math.min(limits.maxStorageBufferBindingSize, limits.maxBufferSize);

/** @param {Call} call @param {Data} x @returns {number} the maximum size of a piece of `x` in bytes */
export function maxPiece(call, x) {
  const most = maxBuffer(call) - 2 * ALIGNMENT; // an aligned binding may begin before the piece
  return x instanceof DeviceArray ? most : Math.min(most, call.device.memory / 4);
}

/** @param {Call} call @param {import("../host.js").ElementType} dtype @returns {any} the limits of one dispatch for products of `dtype` */
export const limits = (call, dtype) => call.core.dispatch_limits(call.device.choices.described, call.element(dtype));

/**
 * Compute `result` in pieces: cut along the axes with the letters `along` if necessary, and into pieces of length 1 along `each`.
 * @param {Call} call @param {(arrays: DeviceArray[], into: DeviceArray) => Promise<unknown>} compute queues one piece, given its operands and its result
 * @param {Labelled[]} operands @param {Labelled} result @param {string} along @param {{each?: string, flops?: number}} [options]
 */
export async function inPieces(call, compute, operands, result, along, { each = "", flops = 0 } = {}) {
  const { core, device } = call;
  const { flops: most, binding } = limits(call, "float32");
  const arrays = [...operands, result].map(
    ({ data, axes, onHost }) => new core.Extents(axes, data.shape, ELEMENTS[data.dtype].itemsize, onHost),
  );
  /** @type {Piece[]} */
  const pieces = [
    ...core.array_pieces(arrays, along, each, new core.Limits(maxBuffer(call), most, device.memory), flops),
  ];
  const throughHost =
    !result.onHost && !pieces.every((piece) => result.inPlace(call, result.within(piece), binding, true));
  const { shape, dtype } = result.data;
  const into = throughHost
    ? new Labelled(new HostArray(ELEMENTS[dtype].of(sizeOf(shape)), shape, dtype), result.axes)
    : result;
  for (const piece of pieces) {
    /** @type {DeviceArray[]} */
    const moved = [];
    const resident = async (/** @type {Labelled} */ one) => {
      const part = one.within(piece);
      if (part instanceof DeviceArray && one.inPlace(call, part, binding)) return part;
      const host = part instanceof DeviceArray ? await call.read(part) : part;
      call.complete = false;
      moved.push(await call.device.array(host));
      return moved[moved.length - 1];
    };
    try {
      const arrays = [];
      for (const one of operands) arrays.push(await resident(one));
      if (into.data instanceof DeviceArray) {
        await compute(arrays, /** @type {DeviceArray} */ (into.within(piece)));
      } else {
        call.complete = false;
        const ranges = into.ranges(piece);
        const array = await call.device.empty(
          ranges.map(([from, to]) => to - from),
          dtype,
        );
        moved.push(array);
        await compute(arrays, array);
        place(
          await array.read(),
          into.data,
          ranges.map(([from]) => from),
        );
      }
    } finally {
      for (const array of moved) array.free();
    }
  }
  if (throughHost) call.device.write(/** @type {DeviceArray} */ (result.data), /** @type {HostArray} */ (into.data));
}

/** Copy `part` into `whole`, beginning at the indices `starts`. @param {HostArray} part @param {HostArray} whole @param {number[]} starts */
export function place(part, whole, starts) {
  const strides = denseStrides(whole.shape);
  const length = part.ndim ? part.shape[part.ndim - 1] : 1;
  const rows = length ? part.size / length : 0;
  const outer = denseStrides(part.shape.slice(0, -1));
  for (let row = 0; row < rows; row++) {
    let to = starts.reduce((sum, start, axis) => sum + start * strides[axis], 0);
    outer.forEach((stride, axis) => (to += (Math.floor(row / stride) % part.shape[axis]) * strides[axis]));
    whole.data.set(part.data.subarray(row * length, (row + 1) * length), to);
  }
}
