/// <reference lib="esnext.disposable" preserve="true" />
// @ts-check
/** Arrays of any rank on a device, and views of them, as in webmm/engine/array.py. */

import { FreedArrayError } from "../errors.js";
import { ELEMENTS, Shaped, checkedShape, sizeOf } from "../host.js";
import { provide } from "../python.js";
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

/** @param {unknown[]} operands @returns {boolean} whether one of them is on a device, as the result is then */
export const isResident = (...operands) => operands.some((x) => x instanceof DeviceArray);

// For the checks of webmm/engine/aliasing.py, which are translated:
provide("webmm.engine.view.View", isResident);
provide("webmm.engine.aliasing.overlap", (/** @type {DeviceArray} */ out, /** @type {DeviceArray} */ x) =>
  out.shares(x),
);

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
export class DeviceArray extends Shaped {
  #storage;

  /** @param {Storage} storage @param {readonly number[]} shape @param {ElementType} dtype @param {readonly number[]} [strides] @param {number} [offset] */
  constructor(storage, shape, dtype, strides, offset) {
    super(shape, dtype, strides, offset);
    this.#storage = storage;
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

  // Views

  /** A view with the axes reversed; no copy. */
  get T() {
    return this.transpose();
  }

  /** A view with the last two axes exchanged, which transposes each matrix of a batch; no copy. */
  get mT() {
    return this.#view(this.device.core.matrices_transposed(this));
  }

  /** Permute the axes. @param {...number} axes each axis once; by default all of them, reversed @returns {DeviceArray} a view; no copy */
  transpose(...axes) {
    return this.#view(this.device.core.transposed(this, axes));
  }

  /**
   * Select a part of the array, by an index or a range per axis; negative indices count from the end.
   *
   *     x.slice([2, 5], null, -1) // NumPy's x[2:5, :, -1]
   * @param {...Range} ranges missing ones select the whole axis @returns {DeviceArray} a view; no copy
   */
  slice(...ranges) {
    const given = (/** @type {Range} */ range) =>
      Array.isArray(range) ? [0, 1, 2].map((i) => range[i] ?? null) : (range ?? null);
    return this.#view(this.device.core.sliced(this, ranges.map(given)));
  }

  /** Give a contiguous array another shape. @param {...number} shape one length may be -1: it follows from the others @returns {DeviceArray} a view; no copy */
  reshape(...shape) {
    const known = sizeOf(shape.filter((length) => length !== -1));
    const lengths = checkedShape(shape.map((length) => (length === -1 ? this.size / known : length)));
    return this.#view(this.device.core.reshaped(this, lengths, shape));
  }

  /** Repeat the array along new leading axes and axes of length 1. @param {...number} shape @returns {DeviceArray} a view; no copy */
  broadcastTo(...shape) {
    return this.#view(this.device.core.broadcast(this, checkedShape(shape)));
  }

  /** @param {{shape: readonly number[], strides: readonly number[], offset: number}} layout a translated `Layout` */
  #view({ shape, strides, offset }) {
    return new DeviceArray(this.storage, shape, this.dtype, strides, offset);
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
