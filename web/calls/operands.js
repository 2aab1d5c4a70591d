// @ts-check
/** Operands of calls, in host memory or on a device: views, matrices, axes. */

import { ProblemError } from "../errors.js";
import { DeviceArray } from "../engine/array.js";
import { gathered } from "../engine/transfer.js";
import { ELEMENTS, HostArray, denseStrides, sizeOf } from "../host.js";

/** An array in host memory or on a device. @typedef {DeviceArray | HostArray} Data */
/** @typedef {import("../engine/plans.js").Call} Call */

/** @param {Data} x @returns {readonly number[]} in elements */
export const stridesOf = (x) => (x instanceof DeviceArray ? x.strides : denseStrides(x.shape));

/**
 * A view of an array, given by shape, strides and offset in elements.
 * @param {Data} x @param {readonly number[]} shape @param {readonly number[]} strides @param {number} [offset]
 * @returns {Data} a view; of a host array whose elements would not be dense, a copy
 */
export function viewOf(x, shape, strides, offset = 0) {
  if (x instanceof DeviceArray) return new DeviceArray(x.storage, shape, x.dtype, strides, x.offset + offset);
  const dense = denseStrides(shape);
  const size = sizeOf(shape);
  const plain = shape.every((length, axis) => length === 1 || strides[axis] === dense[axis]);
  const data = plain
    ? x.data.subarray(offset, offset + size)
    : gathered(x.data, ELEMENTS[x.dtype].of(size), shape, strides, offset);
  return new HostArray(data, shape, x.dtype);
}

/** @param {Data} x @param {number[]} axes @returns {Data} the array with its axes in this order */
export function permuted(x, axes) {
  const strides = stridesOf(x);
  return viewOf(
    x,
    axes.map((axis) => x.shape[axis]),
    axes.map((axis) => strides[axis]),
  );
}

/** @param {Data} x @returns {Data} the array with its last two axes exchanged */
export function transposed(x) {
  if (x.ndim < 2) throw new ProblemError(`an array of shape [${x.shape}] holds no matrices to transpose`);
  const axes = x.shape.map((_, axis) => axis);
  return permuted(x, [...axes.slice(0, -2), x.ndim - 1, x.ndim - 2]);
}

/** @param {Data} x a contiguous array @param {readonly number[]} shape @returns {Data} the array in another shape */
export const reshaped = (x, shape) => viewOf(x, shape, denseStrides(shape));

/** @param {Data} x @returns {boolean} */
export const isDense = (x) => !(x instanceof DeviceArray) || x.contiguous;

/** @param {Call} call @param {Data} x @returns {Promise<Data>} the array if it is dense, else a copy in host memory */
export const dense = async (call, x) => (isDense(x) ? x : call.read(/** @type {DeviceArray} */ (x)));

/** @param {Call} call @param {Data} x @returns {Promise<Data>} the array if kernels can read its matrices with their strides, else a copy in host memory */
export const readable = async (call, x) =>
  x instanceof DeviceArray && call.core.matrix_operand(x) === null ? call.read(x) : x;

/** @param {Call} call @param {Data} x @returns {Promise<Data>} a matrix whose rows are the array's last axis */
export async function rowsOf(call, x) {
  if (x.ndim === 2) return x;
  const columns = x.shape[x.ndim - 1];
  return reshaped(await dense(call, x), [columns ? x.size / columns : 0, columns]);
}

/** @param {readonly number[]} a @param {readonly number[]} b @returns {number[] | null} the common shape of two batches by NumPy's rules */
export function broadcastShape(a, b) {
  const length = Math.max(a.length, b.length);
  const [x, y] = [a, b].map((shape) => [...Array(length - shape.length).fill(1), ...shape]);
  if (x.some((n, axis) => n !== y[axis] && n !== 1 && y[axis] !== 1)) return null;
  return x.map((n, axis) => (n === 1 ? y[axis] : n));
}

/** @param {Data} x @param {unknown} axis one, several, or null for all @returns {number[]} non-negative, in increasing order; throws ProblemError for an axis out of range or named twice */
export function axesOf(x, axis) {
  const given = axis === null || axis === undefined ? x.shape.map((_, i) => i) : Array.isArray(axis) ? axis : [axis];
  for (const each of given) {
    if (!Number.isInteger(each)) throw new ProblemError(`an axis must be an integer, not ${JSON.stringify(each)}`);
    if (each < -x.ndim || each >= x.ndim)
      throw new ProblemError(`axis ${axis} is out of range: x has ${x.ndim} axes, of shape [${x.shape}]`);
  }
  const axes = given.map((each) => (each < 0 ? each + x.ndim : each)).sort((i, j) => i - j);
  if (new Set(axes).size < axes.length) throw new ProblemError(`axis ${axis} names an axis twice`);
  return axes;
}
