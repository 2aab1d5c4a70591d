// @ts-check
/**
 * Calls of any size, as in webmm/calls/pieces.py: a call is cut into pieces along axes on which its results do not depend
 * on each other, until every piece fits. The limits are the size of a binding, the work of one dispatch, and, for host
 * arrays, `Device.memory`. Pieces of `DeviceArray`s are read and written in place; a piece that no binding can cover is
 * copied through the host.
 */

import { DeviceArray } from "../engine/array.js";
import { UnsupportedError } from "../errors.js";
import { ELEMENTS, HostArray, denseStrides, sizeOf } from "../host.js";
import { grouped } from "../text.js";
import { stridesOf, viewOf } from "./operands.js";

/** @typedef {import("./operands.js").Data} Data */
/** @typedef {import("../engine/plans.js").Call} Call */
/** The lengths of axes, and the range of a piece along each axis, by the axes' letters. @typedef {Map<string, number>} Lengths @typedef {Map<string, [number, number]>} Piece */

const ALIGNMENT = 256; // bytes; on every device, a binding may start at a multiple of this
const INDEX_LIMIT = 2 ** 32; // shaders index storage with u32
const GRAINS = [ALIGNMENT, 64, 4, 1]; // pieces are multiples of these: aligned for bindings if possible, and whole tiles

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

  /** @param {Lengths} steps lengths of a piece along the axes that are cut @returns {number} bytes of such a piece */
  nbytes(steps) {
    const lengths = this.data.shape.map((length, axis) => steps.get(this.axes[axis]) ?? length);
    return sizeOf(lengths) * ELEMENTS[this.data.dtype].itemsize;
  }

  /** @param {Piece} piece @returns {Data} the view of the data that belongs to a piece */
  within(piece) {
    const strides = stridesOf(this.data);
    const ranges = this.data.shape.map((length, axis) => piece.get(this.axes[axis]) ?? [0, length]);
    if (ranges.every(([start, stop], axis) => start === 0 && stop === this.data.shape[axis])) return this.data;
    const offset = ranges.reduce((sum, [start], axis) => sum + start * strides[axis], 0);
    return viewOf(
      this.data,
      ranges.map(([start, stop]) => stop - start),
      strides,
      offset,
    );
  }

  /** @param {Data} x a piece of the data @param {number} binding maximum size of a binding in bytes @param {boolean} [written] @returns {boolean} whether kernels can read, or if `written` write, it in place */
  inPlace(x, binding, written = false) {
    if (!(x instanceof DeviceArray) || x.strides.some((stride) => stride < 0)) return false;
    const { itemsize } = ELEMENTS[x.dtype];
    const end = x.offset + x.shape.reduce((sum, length, axis) => sum + (length - 1) * x.strides[axis], 0) + 1;
    const step = ALIGNMENT / itemsize;
    const first = Math.floor(x.offset / step) * step; // the binding's first element
    if (Math.ceil((end * itemsize) / 16) * 16 - first * itemsize > binding || end - first > INDEX_LIMIT) return false;
    return (this.strided && !written) || (x.contiguous && (this.strided || first === x.offset));
  }
}

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
  const everything = [...operands, result];
  const { flops: maxFlops, binding } = limits(call, "float32");
  const lengths = new Map(everything.flatMap((one) => one.data.shape.map((length, axis) => [one.axes[axis], length])));
  const whole = new Map([...each, ...along].map((letter) => [letter, lengths.get(letter) ?? 1]));
  const start = new Map([...whole].map(([letter, length]) => [letter, each.includes(letter) ? 1 : length]));
  const steps = stepsOf(everything, whole, start, maxBuffer(call), call.device.memory, flops / maxFlops);
  const pieces = [...piecesOf(whole, steps)];
  const throughHost = !result.onHost && !pieces.every((piece) => result.inPlace(result.within(piece), binding, true));
  const { shape, dtype } = result.data;
  const into = throughHost
    ? new Labelled(new HostArray(ELEMENTS[dtype].of(sizeOf(shape)), shape, dtype), result.axes)
    : result;
  for (const piece of pieces) {
    /** @type {DeviceArray[]} */
    const moved = [];
    const resident = async (/** @type {Labelled} */ one) => {
      const part = one.within(piece);
      if (part instanceof DeviceArray && one.inPlace(part, binding)) return part;
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
        const ranges = into.data.shape.map((length, axis) => piece.get(into.axes[axis]) ?? [0, length]);
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

/**
 * The length of pieces along each axis: beginning with `start`, operands and results are halved until they fit. Each is
 * cut along the outermost of its axes that can be cut, so that pieces are contiguous.
 * @param {Labelled[]} everything @param {Lengths} whole lengths of the axes @param {Lengths} start @param {number} maxBytes of a buffer
 * @param {number} memory bytes for the pieces of all host arrays @param {number} dispatches that the uncut problem would need
 * @returns {Lengths} throws UnsupportedError if a piece that cannot be cut further exceeds `maxBytes`
 */
export function stepsOf(everything, whole, start, maxBytes, memory, dispatches) {
  const steps = new Map(start);
  const isCut = (/** @type {string} */ letter) => (steps.get(letter) ?? 0) < (whole.get(letter) ?? 0);
  const pieceBytes = (/** @type {Labelled} */ one) =>
    one.nbytes(steps) + ([...one.axes].some(isCut) && !one.onHost ? 2 * ALIGNMENT : 0);
  const nextCut = () => {
    let large = everything.filter((one) => pieceBytes(one) > maxBytes);
    const moving = everything.filter((one) => one.onHost);
    const slots = [...whole.keys()].some(isCut) ? 2 : 1; // two pieces may be on the device at a time
    if (!large.length && slots * moving.reduce((sum, one) => sum + pieceBytes(one), 0) > memory) {
      large = moving.sort((x, y) => pieceBytes(y) - pieceBytes(x));
    }
    let letters = large.flatMap((one) => [...one.axes].filter((letter) => steps.has(letter)));
    const share = [...whole].reduce((product, [letter, length]) => product * ((steps.get(letter) ?? 1) / length), 1);
    if (!large.length && dispatches * share > 1) {
      letters = [...[...steps.keys()].filter((letter) => (steps.get(letter) ?? 1) > ALIGNMENT), ...steps.keys()];
    }
    return letters.find((letter) => (steps.get(letter) ?? 1) > 1);
  };
  for (let letter = nextCut(); letter; letter = nextCut()) steps.set(letter, halved(steps.get(letter) ?? 1));
  for (const one of everything) {
    if (one.nbytes(steps) > maxBytes) {
      throw new UnsupportedError(
        `the smallest piece of an operand takes ${grouped(one.nbytes(steps))} bytes, and a binding and a buffer hold ` +
          `${grouped(maxBytes)} (maxStorageBufferBindingSize, maxBufferSize)`,
      );
    }
  }
  return steps;
}

/** @param {number} length above 1 @returns {number} half of it, rounded up to a multiple of the largest grain of which it has more than two */
function halved(length) {
  const grain = GRAINS.find((each) => length > 2 * each) ?? 1;
  return Math.ceil(length / (2 * grain)) * grain;
}

/** @param {Lengths} whole @param {Lengths} steps @returns {Generator<Piece>} all pieces, in row-major order */
function* piecesOf(whole, steps) {
  const letters = [...whole.keys()];
  const cuts = letters.map((letter) => {
    const [length, step] = [whole.get(letter) ?? 1, steps.get(letter) ?? 1];
    return Array.from(
      { length: Math.ceil(length / step) },
      (_, i) => /** @type {[number, number]} */ ([i * step, Math.min((i + 1) * step, length)]),
    );
  });
  const count = sizeOf(cuts.map((cut) => cut.length));
  const strides = denseStrides(cuts.map((cut) => cut.length));
  for (let i = 0; i < count; i++)
    yield new Map(
      letters.map((letter, axis) => [letter, cuts[axis][Math.floor(i / strides[axis]) % cuts[axis].length]]),
    );
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

/** @param {...DeviceArray} arrays that are not `strided` @returns {number[]} their offsets, for a problem's `starts`: [] if all are 0 */
export function startsOf(...arrays) {
  const starts = arrays.map((array) => array.offset);
  return starts.some(Boolean) ? starts : [];
}
