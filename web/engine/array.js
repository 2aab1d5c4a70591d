// @ts-check
/** Matrices that live on a device. */

import { ProblemError } from "../errors.js";

/** @typedef {import("../matrix.js").DType} DType */
/** @typedef {import("../matrix.js").Matrix} Matrix */
/** @typedef {import("./device.js").Device} Device */

/** A matrix that lives on a device. */
export class DeviceArray {
  /** @type {GPUBuffer | null} */
  #buffer;

  /** @param {Device} device @param {GPUBuffer} buffer @param {[number, number]} shape @param {DType} dtype */
  constructor(device, buffer, shape, dtype) {
    this.device = device;
    this.#buffer = buffer;
    this.shape = shape;
    this.dtype = dtype;
  }

  get rows() {
    return this.shape[0];
  }

  get columns() {
    return this.shape[1];
  }

  get buffer() {
    if (!this.#buffer) throw new ProblemError("this array was freed");
    return this.#buffer;
  }

  /** @returns {Promise<Matrix>} a copy in host memory */
  read() {
    return this.device.download(this);
  }

  /** Give the memory back; freeing twice is harmless. */
  free() {
    if (this.#buffer) this.device.recycle(this.#buffer);
    this.#buffer = null;
  }
}
