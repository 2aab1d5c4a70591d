/// <reference lib="esnext.disposable" preserve="true" />
// @ts-check
/** Arrays of any rank on a device, and views of them, as in webmm/engine/array.py. */

import { FreedArrayError, ProblemError } from "../errors.js";
import { ELEMENTS, checkedShape, denseStrides, sizeOf } from "../host.js";
import { download } from "./transfer.js";

/** @import { ElementType, HostArray } from "../host.js" */
/** @import { Engine as Device } from "./engine.js" */
/** One axis of `slice()`: null for all of it, an index, which drops the axis, or [start, stop, step]. @typedef {null | undefined | number | readonly (number | null | undefined)[]} Range */

/** The owner of a GPU buffer, which returns to the device's pool when it is freed. */
export class Storage {
  /** @param {Device} device @param {GPUBuffer} buffer @param {number} nbytes of data: the buffer may be larger */
  constructor(device, buffer, nbytes) {
    this.device = device;
    /** @type {GPUBuffer | null} null after `free()` */
    this.buffer = buffer;
    this.nbytes = nbytes;
  }

  /** Return the buffer to the pool; freeing twice is harmless. */
  free() {
    if (this.buffer) this.device.pool.give(this.buffer, this.nbytes);
    this.buffer = null;
  }
}

/**
 * Throw ProblemError if `out`, called `name`, shares its buffer with an array that is read while it is written: a view
 * counts by the array that it was made of, also where the call would copy it.
 * @param {string} name @param {DeviceArray} out @param {Record<string, DeviceArray>} read
 */
export function checkSeparate(name, out, read) {
  const other = Object.keys(read).find((each) => out.shares(read[each]));
  if (other)
    throw new ProblemError(
      `${name} shares its buffer with ${other}, which is read while ${name} is written; pass a separate array`,
    );
}

const MAX_SIGNATURES = 4096;
/** @type {Map<string, number>} */
const signatures = new Map();
let signatureCount = 0;

/** @param {string} text @returns {number} equal for equal texts, until the table is full */
function signatureOf(text) {
  const known = signatures.get(text);
  if (known) return known;
  if (signatures.size >= MAX_SIGNATURES) signatures.clear(); // arrays keep the numbers that they have
  signatures.set(text, ++signatureCount);
  return signatureCount;
}

/**
 * An array on a device, or a view of one: slices, transposes and reshapes share the buffer and copy nothing. Make one with
 * `await device.array(data)`, and read it with `await array.read()`. `free()` releases the buffer at once, for all arrays
 * that share it; using any of them afterwards throws FreedArrayError. `strides` and `offset` count elements.
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
    this.knownSignature = 0;
  }

  /** A number that is equal for arrays of equal dtype, shape, strides, offset and buffer size: the plan of a call depends on it. */
  get signature() {
    return (this.knownSignature ||= signatureOf(
      `${this.dtype}[${this.shape}](${this.strides})${this.offset}/${this.#storage.nbytes}`,
    ));
  }

  /** The owner of the buffer. Throws FreedArrayError after `free()`. */
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

  /** The number of elements. */
  get size() {
    return sizeOf(this.shape);
  }

  /** The size of the elements in bytes. */
  get nbytes() {
    return this.size * ELEMENTS[this.dtype].itemsize;
  }

  /** The number of elements that the buffer holds. */
  get capacity() {
    return this.storage.nbytes / ELEMENTS[this.dtype].itemsize;
  }

  /** @param {DeviceArray} other @returns {boolean} whether both use the same buffer */
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

  /** Whether the elements are in row-major order without gaps. */
  get contiguous() {
    const dense = denseStrides(this.shape);
    return this.shape.every((length, axis) => length === 1 || this.strides[axis] === dense[axis]);
  }

  // Views

  /** A view with the axes reversed; no copy. */
  get T() {
    return this.transpose();
  }

  /** A view with the last two axes exchanged, which transposes each matrix of a batch; no copy. */
  get mT() {
    if (this.ndim < 2) throw new ProblemError(`an array of shape [${this.shape}] holds no matrices to transpose`);
    const axes = this.shape.map((_, axis) => axis);
    axes.push(.../** @type {[number, number]} */ (axes.splice(-2).reverse()));
    return this.transpose(...axes);
  }

  /** Permute the axes. @param {...number} axes each axis once; by default all of them, reversed @returns {DeviceArray} a view; no copy */
  transpose(...axes) {
    const order = axes.length
      ? axes.map((axis) => this.#axis(axis))
      : this.shape.map((_, axis) => this.ndim - 1 - axis);
    if (order.length !== this.ndim || new Set(order).size !== this.ndim) {
      throw new ProblemError(`the axes [${axes}] must name each of the array's ${this.ndim} axes once`);
    }
    return this.#view(
      order.map((axis) => this.shape[axis]),
      order.map((axis) => this.strides[axis]),
    );
  }

  /**
   * Select a part of the array, by an index or a range per axis; negative indices count from the end.
   *
   *     x.slice([2, 5], null, -1) // NumPy's x[2:5, :, -1]
   * @param {...Range} ranges missing ones select the whole axis @returns {DeviceArray} a view; no copy
   */
  slice(...ranges) {
    if (ranges.length > this.ndim) throw new ProblemError(`${ranges.length} ranges for an array of ${this.ndim} axes`);
    const [shape, strides] = [/** @type {number[]} */ ([]), /** @type {number[]} */ ([])];
    let offset = this.offset;
    this.shape.forEach((length, axis) => {
      const range = ranges[axis] ?? [];
      if (typeof range === "number") {
        if (!Number.isInteger(range) || range < -length || range >= length) {
          throw new ProblemError(`index ${range} is out of range for axis ${axis}, of length ${length}`);
        }
        offset += (range < 0 ? range + length : range) * this.strides[axis];
        return;
      }
      const { start, count, step } = indices(range, length);
      if (count) offset += start * this.strides[axis];
      shape.push(count);
      strides.push(step * this.strides[axis]);
    });
    return this.#view(shape, strides, offset);
  }

  /** Give a contiguous array another shape. @param {...number} shape one length may be -1: it follows from the others @returns {DeviceArray} a view; no copy */
  reshape(...shape) {
    const known = sizeOf(shape.filter((length) => length !== -1));
    const lengths = checkedShape(shape.map((length) => (length === -1 ? this.size / known : length)));
    if (sizeOf(lengths) !== this.size)
      throw new ProblemError(`an array of ${this.size} elements cannot have the shape [${shape}]`);
    if (!this.contiguous) throw new ProblemError("only a contiguous array can be reshaped without a copy");
    return this.#view(lengths, denseStrides(lengths));
  }

  /** Repeat the array along new leading axes and axes of length 1. @param {...number} shape @returns {DeviceArray} a view; no copy */
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

  /** Download the elements, after all work queued on them. @returns {Promise<HostArray>} a copy in host memory, a Matrix for a 2-D array of floats */
  read() {
    return download(this.device, this);
  }

  /** Release the buffer now, for every array that shares it; freeing twice is harmless. */
  free() {
    this.#storage.free();
  }

  /** Called at the end of a block that declares the array with `using`. */
  [Symbol.dispose]() {
    this.free();
  }

  /** @returns {string} */
  toString() {
    return `DeviceArray ${this.shape.join("x")} ${this.dtype} ${this.#storage.buffer ? `on ${this.device.info.name}` : "freed"}`;
  }
}

/** Resolve a range as Python's `slice(start, stop, step).indices(length)`. @param {readonly (number | null | undefined)[]} range @param {number} length */
function indices([start, stop, step], length) {
  const by = step ?? 1;
  for (const index of [start, stop, by]) {
    if (index != null && !Number.isInteger(index))
      throw new ProblemError(`a range is [start, stop, step] in whole numbers, not ${index}`);
  }
  if (by === 0) throw new ProblemError("the step of a range must not be 0");
  const [least, most] = by > 0 ? [0, length] : [-1, length - 1];
  const clamped = (/** @type {number | null | undefined} */ index, /** @type {number} */ missing) =>
    index == null ? missing : Math.min(Math.max(index < 0 ? index + length : index, least), most);
  const [first, last] =
    by > 0 ? [clamped(start, 0), clamped(stop, length)] : [clamped(start, length - 1), clamped(stop, -1)];
  return { start: first, count: Math.max(0, Math.ceil((last - first) / by)), step: by };
}
