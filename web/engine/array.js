// @ts-check
/** Arrays that live on a device, of any rank, and views of them: webmm/engine/array.py. */

import { FreedArrayError, ProblemError } from "../errors.js";
import { ELEMENTS, checkedShape, denseStrides, sizeOf } from "../host.js";

/** @typedef {import("../host.js").ElementType} ElementType */
/** @typedef {import("../host.js").HostArray} HostArray */
/** @typedef {import("./engine.js").Engine} Device */
/** What `slice()` takes for an axis: all of it, one place, which drops the axis, or [start, stop, step]. @typedef {null | undefined | number | readonly (number | null | undefined)[]} Range */

/** What owns a GPU buffer until it is freed, and then gives it back to the device's pool. */
export class Storage {
  /** @param {Device} device @param {GPUBuffer} buffer @param {number} nbytes of data: the buffer may be larger */
  constructor(device, buffer, nbytes) {
    this.device = device;
    /** @type {GPUBuffer | null} null once it is freed */
    this.buffer = buffer;
    this.nbytes = nbytes;
  }

  /** Give the memory back; doing so again is harmless. */
  free() {
    if (this.buffer) this.device.recycle(this.buffer, this.nbytes);
    this.buffer = null;
  }
}

const MAX_SIGNATURES = 4096;
/** @type {Map<string, number>} */
const signatures = new Map();
let signaturesSeen = 0;

/** @param {string} text @returns {number} */
function signatureOf(text) {
  const known = signatures.get(text);
  if (known) return known;
  if (signatures.size >= MAX_SIGNATURES) signatures.clear(); // what has a number keeps it
  signatures.set(text, ++signaturesSeen);
  return signaturesSeen;
}

/**
 * An array on a device, or a view of one: slices and transposes share the buffer and copy nothing. `free()` gives the
 * buffer back at once, for all arrays that share it; any use after that throws FreedArrayError. Strides and offset count
 * elements.
 */
export class DeviceArray {
  #storage;

  /**
   * @param {Storage} storage @param {readonly number[]} shape @param {ElementType} dtype
   * @param {readonly number[]} [strides] @param {number} [offset]
   */
  constructor(storage, shape, dtype, strides = denseStrides(shape), offset = 0) {
    this.#storage = storage;
    this.shape = shape;
    this.dtype = dtype;
    this.strides = strides;
    this.offset = offset;
    this.known = 0;
  }

  /** What a call's way depends on, besides what is in the array: a number, the same for arrays that lie alike. */
  get signature() {
    return (this.known ||= signatureOf(
      `${this.dtype}[${this.shape}](${this.strides})${this.offset}/${this.#storage.nbytes}`,
    ));
  }

  /** What owns the buffer. Throws FreedArrayError after `free()`. */
  get storage() {
    if (!this.#storage.buffer) throw new FreedArrayError(`this ${this.shape.join("x")} ${this.dtype} array was freed`);
    return this.#storage;
  }

  get device() {
    return this.#storage.device;
  }

  get buffer() {
    return /** @type {GPUBuffer} */ (this.storage.buffer);
  }

  get ndim() {
    return this.shape.length;
  }

  /** Number of elements. */
  get size() {
    return sizeOf(this.shape);
  }

  /** Bytes of the elements. */
  get nbytes() {
    return this.size * ELEMENTS[this.dtype].itemsize;
  }

  /** Elements that the buffer holds. */
  get capacity() {
    return this.storage.nbytes / ELEMENTS[this.dtype].itemsize;
  }

  /** @param {DeviceArray} other @returns {boolean} whether both lie in one buffer */
  shares(other) {
    return this.#storage === other.#storage;
  }

  /** The length of the last axis but one. */
  get rows() {
    return this.shape[this.ndim - 2];
  }

  /** The length of the last axis. */
  get columns() {
    return this.shape[this.ndim - 1];
  }

  /** Whether the elements lie in row-major order without gaps. */
  get contiguous() {
    const dense = denseStrides(this.shape);
    return this.shape.every((length, axis) => length === 1 || this.strides[axis] === dense[axis]);
  }

  // Views

  /** The array with its axes reversed; no copy. */
  get T() {
    return this.transpose();
  }

  /** Each matrix of a batch transposed; no copy. */
  get mT() {
    if (this.ndim < 2) throw new ProblemError(`an array of shape [${this.shape}] holds no matrices to transpose`);
    const axes = this.shape.map((_, axis) => axis);
    axes.push(.../** @type {[number, number]} */ (axes.splice(-2).reverse()));
    return this.transpose(...axes);
  }

  /** @param {...number} axes by default all of them, reversed @returns {DeviceArray} a view; no copy */
  transpose(...axes) {
    const order = axes.length
      ? axes.map((axis) => this.#axis(axis))
      : this.shape.map((_, axis) => this.ndim - 1 - axis);
    if (order.length !== this.ndim || new Set(order).size !== this.ndim) {
      throw new ProblemError(`the axes [${axes}] do not name each of ${this.ndim} axes once`);
    }
    return this.#view(
      order.map((axis) => this.shape[axis]),
      order.map((axis) => this.strides[axis]),
    );
  }

  /**
   * A view of a part: a range per axis, counted from the end where it is negative.
   *
   *     x.slice([2, 5], null, -1) // NumPy's x[2:5, :, -1]
   * @param {...Range} ranges @returns {DeviceArray}
   */
  slice(...ranges) {
    if (ranges.length > this.ndim) throw new ProblemError(`${ranges.length} ranges for an array of ${this.ndim} axes`);
    const [shape, strides] = [/** @type {number[]} */ ([]), /** @type {number[]} */ ([])];
    let offset = this.offset;
    this.shape.forEach((length, axis) => {
      const range = ranges[axis] ?? [];
      if (typeof range === "number") {
        if (!Number.isInteger(range) || range < -length || range >= length) {
          throw new ProblemError(`place ${range} is out of range for axis ${axis}, of length ${length}`);
        }
        offset += (range < 0 ? range + length : range) * this.strides[axis];
        return;
      }
      const { start, count, step } = places(range, length);
      if (count) offset += start * this.strides[axis];
      shape.push(count);
      strides.push(step * this.strides[axis]);
    });
    return this.#view(shape, strides, offset);
  }

  /** @param {...number} shape one length may be -1: what is left @returns {DeviceArray} a view of a contiguous array; no copy */
  reshape(...shape) {
    const known = sizeOf(shape.filter((length) => length !== -1));
    const lengths = checkedShape(shape.map((length) => (length === -1 ? this.size / known : length)));
    if (sizeOf(lengths) !== this.size)
      throw new ProblemError(`an array of ${this.size} elements cannot have the shape [${shape}]`);
    if (!this.contiguous) throw new ProblemError("only a contiguous array can be reshaped without a copy");
    return this.#view(lengths, denseStrides(lengths));
  }

  /** @param {...number} shape @returns {DeviceArray} a view repeated along new axes and those of length 1; no copy */
  broadcastTo(...shape) {
    const lengths = checkedShape(shape);
    const extra = lengths.length - this.ndim;
    const fits = extra >= 0 && this.shape.every((length, axis) => length === lengths[axis + extra] || length === 1);
    if (!fits) throw new ProblemError(`an array of shape [${this.shape}] does not broadcast to [${shape}]`);
    const strides = lengths.map((length, axis) =>
      axis < extra || this.shape[axis - extra] !== length ? 0 : this.strides[axis - extra],
    );
    return this.#view(lengths, strides);
  }

  /** @param {readonly number[]} shape @param {readonly number[]} strides @param {number} [offset] */
  #view(shape, strides, offset = this.offset) {
    return new DeviceArray(this.storage, shape, this.dtype, strides, offset);
  }

  /** @param {number} axis */
  #axis(axis) {
    if (!Number.isInteger(axis) || axis < -this.ndim || axis >= this.ndim) {
      throw new ProblemError(`axis ${axis} is out of range: the array has ${this.ndim} axes`);
    }
    return axis < 0 ? axis + this.ndim : axis;
  }

  // Data

  /** @returns {Promise<HostArray>} a copy in host memory; of a view only its span is moved */
  read() {
    return this.device.download(this);
  }

  /** Give the buffer back now, for every array that shares it; doing so again is harmless. */
  free() {
    this.#storage.free();
  }

  /** At the end of a block that declared the array with `using`. */
  [Symbol.dispose]() {
    this.free();
  }

  /** @returns {string} */
  toString() {
    return `DeviceArray ${this.shape.join("x")} ${this.dtype} ${this.#storage.buffer ? `on ${this.device.info.name}` : "freed"}`;
  }
}

/** @param {readonly (number | null | undefined)[]} range @param {number} length the indices of Python's slice(start, stop, step) */
function places([start, stop, step], length) {
  const by = step ?? 1;
  for (const place of [start, stop, by]) {
    if (place != null && !Number.isInteger(place))
      throw new ProblemError(`a range is [start, stop, step] in whole numbers, not ${place}`);
  }
  if (by === 0) throw new ProblemError("the step of a range is not 0");
  const [least, most] = by > 0 ? [0, length] : [-1, length - 1];
  const clamped = (/** @type {number | null | undefined} */ place, /** @type {number} */ missing) =>
    place == null ? missing : Math.min(Math.max(place < 0 ? place + length : place, least), most);
  const [first, last] =
    by > 0 ? [clamped(start, 0), clamped(stop, length)] : [clamped(start, length - 1), clamped(stop, -1)];
  return { start: first, count: Math.max(0, Math.ceil((last - first) / by)), step: by };
}
