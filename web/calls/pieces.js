// @ts-check
/**
 * Any size: a call is cut along the axes on which its results do not depend on each other, until every piece fits, as
 * webmm/calls/pieces.py does it. What fits is what a binding holds, what one dispatch may do, and, of the host's arrays,
 * `Device.memory`. Pieces of arrays on the device are read and written where they lie; those that no binding shows are
 * copied through the host.
 */

import { DeviceArray } from "../engine/array.js";
import { UnsupportedError } from "../errors.js";
import { ELEMENTS, HostArray, denseStrides, sizeOf } from "../host.js";
import { grouped } from "../text.js";
import { seen, stridesOf } from "./operands.js";

/** @typedef {import("./operands.js").Data} Data */
/** @typedef {import("../engine/plans.js").Call} Call */
/** Lengths, or where a piece begins and ends, by the letters of axes. @typedef {Map<string, number>} Lengths @typedef {Map<string, [number, number]>} Piece */

const ALIGNMENT = 256; // bytes at whose multiples a binding may start on every device
const INDEX_LIMIT = 2 ** 32; // shaders index storage with u32
const GRAINS = [ALIGNMENT, 64, 4, 1]; // rows of any length then begin where bindings may, and tiles stay whole

/**
 * An operand or a result, with a letter for each of its axes: those of the same letter are cut together. Kernels find one
 * that is `anywhere` at any element of its buffer, and read it with any strides that are not negative; others must begin
 * where a binding may, and be dense, as results are.
 */
export class Labelled {
  /** @param {Data} data @param {string} axes @param {boolean} [anywhere] */
  constructor(data, axes, anywhere = true) {
    this.data = data;
    this.axes = axes;
    this.anywhere = anywhere;
    this.onHost = !(data instanceof DeviceArray);
  }

  /** @param {Lengths} steps @returns {number} bytes of a piece of that length along each axis that is cut */
  nbytes(steps) {
    const lengths = this.data.shape.map((length, axis) => steps.get(this.axes[axis]) ?? length);
    return sizeOf(lengths) * ELEMENTS[this.data.dtype].itemsize;
  }

  /** @param {Piece} piece @returns {Data} the part of it that belongs to a piece */
  within(piece) {
    const strides = stridesOf(this.data);
    const ranges = this.data.shape.map((length, axis) => piece.get(this.axes[axis]) ?? [0, length]);
    if (ranges.every(([start, stop], axis) => start === 0 && stop === this.data.shape[axis])) return this.data;
    const offset = ranges.reduce((sum, [start], axis) => sum + start * strides[axis], 0);
    return seen(
      this.data,
      ranges.map(([start, stop]) => stop - start),
      strides,
      offset,
    );
  }

  /** @param {Data} x a part of it @param {number} binding bytes that one holds @param {boolean} [written] @returns {boolean} whether kernels can read or write it as it lies */
  inPlace(x, binding, written = false) {
    if (!(x instanceof DeviceArray) || x.strides.some((stride) => stride < 0)) return false;
    const { itemsize } = ELEMENTS[x.dtype];
    const end = x.offset + x.shape.reduce((sum, length, axis) => sum + (length - 1) * x.strides[axis], 0) + 1;
    const step = ALIGNMENT / itemsize;
    const first = Math.floor(x.offset / step) * step; // where the window opens
    if (Math.ceil((end * itemsize) / 16) * 16 - first * itemsize > binding || end - first > INDEX_LIMIT) return false;
    return (this.anywhere && !written) || (x.contiguous && (this.anywhere || first === x.offset));
  }
}

/** @param {Call} call @returns {number} bytes that a binding and a buffer hold */
const room = ({ device: { limits } }) => Math.min(limits.maxStorageBufferBindingSize, limits.maxBufferSize);

/** @param {Call} call @param {Data} x @returns {number} the bytes of `x` that a piece may have */
export function mostAtOnce(call, x) {
  const most = room(call) - 2 * ALIGNMENT; // a window opens before what it shows
  return x instanceof DeviceArray ? most : Math.min(most, call.device.memory / 4);
}

/** @param {Call} call @param {import("../host.js").ElementType} dtype @returns {any} what one dispatch may do to products of `dtype` */
export const limits = (call, dtype) => call.core.limits(call.device.choices.described, call.element(dtype));

/**
 * Have `compute` fill `result`, cut along the axes with the letters `along`, of pieces with a length of 1 along `each`.
 * @param {Call} call @param {(arrays: DeviceArray[], into: DeviceArray) => Promise<unknown>} compute of arrays for a piece's operands and its result
 * @param {Labelled[]} operands @param {Labelled} result @param {string} along @param {{each?: string, flops?: number}} [options]
 */
export async function inPieces(call, compute, operands, result, along, { each = "", flops = 0 } = {}) {
  const everything = [...operands, result];
  const { flops: most, binding } = limits(call, "float32");
  const lengths = new Map(everything.flatMap((one) => one.data.shape.map((length, axis) => [one.axes[axis], length])));
  const whole = new Map([...each, ...along].map((letter) => [letter, lengths.get(letter) ?? 1]));
  const start = new Map([...whole].map(([letter, length]) => [letter, each.includes(letter) ? 1 : length]));
  const steps = stepsOf(everything, whole, start, room(call), call.device.memory, flops / most);
  const pieces = [...piecesOf(whole, steps)];
  const throughHost = !result.onHost && !pieces.every((piece) => result.inPlace(result.within(piece), binding, true));
  const { shape, dtype } = result.data;
  const into = throughHost
    ? new Labelled(new HostArray(ELEMENTS[dtype].of(sizeOf(shape)), shape, dtype), result.axes)
    : result;
  for (const piece of pieces) {
    /** @type {DeviceArray[]} */
    const moved = [];
    const bring = async (/** @type {Labelled} */ one) => {
      const part = one.within(piece);
      if (part instanceof DeviceArray && one.inPlace(part, binding)) return part;
      const host = part instanceof DeviceArray ? await call.read(part) : part;
      call.complete = false;
      moved.push(await call.device.array(host));
      return moved[moved.length - 1];
    };
    try {
      const arrays = [];
      for (const one of operands) arrays.push(await bring(one));
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
 * How long pieces are along each axis, at most `start`: operands and results are halved until they fit. Each is cut along
 * the first of its axes that can be, its outermost: what is left of it lies together.
 * @param {Labelled[]} everything @param {Lengths} whole @param {Lengths} start @param {number} roomy @param {number} memory
 * @param {number} dispatches that all of it would take @returns {Lengths}
 */
export function stepsOf(everything, whole, start, roomy, memory, dispatches) {
  const steps = new Map(start);
  const isCut = (/** @type {string} */ letter) => (steps.get(letter) ?? 0) < (whole.get(letter) ?? 0);
  const share = (/** @type {Labelled} */ one) =>
    one.nbytes(steps) + ([...one.axes].some(isCut) && !one.onHost ? 2 * ALIGNMENT : 0);
  const nextCut = () => {
    let large = everything.filter((one) => share(one) > roomy);
    const moving = everything.filter((one) => one.onHost);
    const slots = [...whole.keys()].some(isCut) ? 2 : 1;
    if (!large.length && slots * moving.reduce((sum, one) => sum + share(one), 0) > memory) {
      large = moving.sort((x, y) => share(y) - share(x));
    }
    let letters = large.flatMap((one) => [...one.axes].filter((letter) => steps.has(letter)));
    const part = [...whole].reduce((product, [letter, length]) => product * ((steps.get(letter) ?? 1) / length), 1);
    if (!large.length && dispatches * part > 1) {
      letters = [...[...steps.keys()].filter((letter) => (steps.get(letter) ?? 1) > ALIGNMENT), ...steps.keys()];
    }
    return letters.find((letter) => (steps.get(letter) ?? 1) > 1);
  };
  for (let letter = nextCut(); letter; letter = nextCut()) steps.set(letter, halved(steps.get(letter) ?? 1));
  for (const one of everything) {
    if (one.nbytes(steps) > roomy) {
      throw new UnsupportedError(
        `the smallest piece of an operand takes ${grouped(one.nbytes(steps))} bytes, and a binding and a buffer hold ` +
          `${grouped(roomy)} (maxStorageBufferBindingSize, maxBufferSize)`,
      );
    }
  }
  return steps;
}

/** @param {number} length above 1 @returns {number} half of it, rounded up to whole grains, of the first kind of which there are several */
function halved(length) {
  const grain = GRAINS.find((each) => length > 2 * each) ?? 1;
  return Math.ceil(length / (2 * grain)) * grain;
}

/** @param {Lengths} whole @param {Lengths} steps @returns {Generator<Piece>} the last axis first, as NumPy counts */
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

/** Copy `part` into `whole`, from the places `starts` on. @param {HostArray} part @param {HostArray} whole @param {number[]} starts */
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

/** @param {...DeviceArray} arrays that are not `anywhere` @returns {number[]} where they start, as problems have it: [] where all do at 0 */
export function startsOf(...arrays) {
  const starts = arrays.map((array) => array.offset);
  return starts.some(Boolean) ? starts : [];
}
