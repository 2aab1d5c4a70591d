/** Operands of calls, in host memory or on a device, and views of them. */

import { DeviceArray } from "../engine/array.js";
import { gathered } from "../engine/transfer.js";
import { HostArray, denseStrides, isDense, sizeOf } from "../host.js";

/** An array in host memory or on a device. @typedef {DeviceArray | HostArray} Data */

/** @param {Data} x @param {readonly number[]} shape @param {readonly number[]} strides in elements @param {number} [offset] likewise @returns {Data} a view; of a host array whose elements would not be dense, a copy */
export function viewOf(x, shape, strides, offset = 0) {
  if (x instanceof DeviceArray) return new DeviceArray(x.storage, shape, x.dtype, strides, x.offset + offset);
  if (!isDense(shape, strides)) return gathered(x.data, shape, strides, offset, x.dtype);
  return new HostArray(x.data.subarray(offset, offset + sizeOf(shape)), shape, x.dtype);
}

/** @param {Data} x @param {{shape: readonly number[], strides: readonly number[], offset: number}} layout a translated `Layout` @returns {Data} the view with this layout */
export const laidOut = (x, { shape, strides, offset }) => viewOf(x, shape, strides, offset - x.offset);

/** @param {Data} x a contiguous array @param {readonly number[]} shape @returns {Data} the array in another shape */
export const reshaped = (x, shape) => viewOf(x, shape, denseStrides(shape));
