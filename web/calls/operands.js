/** Operands of calls, in host memory or on a device: views, matrices, axes. */

import { DeviceArray } from "../engine/array.js";
import { gathered } from "../engine/transfer.js";
import { HostArray, denseStrides, isDense, sizeOf, zeros } from "../host.js";

/** An array in host memory or on a device. @typedef {DeviceArray | HostArray} Data */
/** @import { Call } from "../engine/plans.js" */

/** @param {Data} x @param {readonly number[]} shape @param {readonly number[]} strides in elements @param {number} [offset] likewise @returns {Data} a view; of a host array whose elements would not be dense, a copy */
export function viewOf(x, shape, strides, offset = 0) {
  if (x instanceof DeviceArray) return new DeviceArray(x.storage, shape, x.dtype, strides, x.offset + offset);
  if (!isDense(shape, strides)) return gathered(x.data, shape, strides, offset, x.dtype);
  return new HostArray(x.data.subarray(offset, offset + sizeOf(shape)), shape, x.dtype);
}

/** @param {Data} x @param {{shape: readonly number[], strides: readonly number[], offset: number}} layout a translated `Layout` @returns {Data} the view with this layout */
export const laidOut = (x, { shape, strides, offset }) => viewOf(x, shape, strides, offset - x.offset);

/** @param {Call} call @param {Data} x @returns {Data} the array with its last two axes exchanged */
export const transposed = ({ core }, x) => laidOut(x, core.matrices_transposed(x));

/**
 * Give an array the axes of a product of matrices, with length 1 where it broadcasts.
 * @param {Data} x @param {number} ndim of the operand or the result that it is or is added to, without the axes that vectors lack
 * @param {boolean} rows whether it gets an axis of rows, since a is a vector @param {boolean} columns likewise, for b @returns {Data} a view
 */
export function asMatrices(x, ndim, rows, columns) {
  const [shape, strides] = [x.shape, x.strides].map((each, i) => {
    const none = 1 - i; // a length of 1, a stride of 0
    const all = [...Array(ndim - x.ndim).fill(none), ...each, ...(columns ? [none] : [])];
    return rows ? all.toSpliced(-1, 0, none) : all;
  });
  return viewOf(x, shape, strides);
}

/** @param {Data} x @param {number} axis @param {number} start @param {number} count @returns {Data} that range of an axis, as `viewOf()` */
export const partOf = (x, axis, start, count) =>
  viewOf(x, x.shape.with(axis, count), x.strides, start * /** @type {number} */ (x.strides.at(axis)));

/** @param {Call} call @param {Data} x @param {(x: Data) => any} find a translated `Layout` of an array, or null if that takes a copy @returns {Promise<Data>} the array with its layout, a copy if need be */
export async function arranged(call, x, find) {
  const layout = find(x);
  return layout ? laidOut(x, layout) : arranged(call, await dense(call, x), find);
}

/** @param {any} x data or a list @returns {any} a list of whole numbers, which has no dtype, as int32; all else as it is */
export const asIntegers = (x) =>
  [x].flat(Infinity).every((each) => each === (each | 0)) ? HostArray.from(x, { dtype: "int32" }) : x;

/** @param {unknown} option @returns {boolean} whether it was given */
export const isGiven = (option) => option !== undefined && option !== null;

/** @param {Data} x a contiguous array @param {readonly number[]} shape @returns {Data} the array in another shape */
export const reshaped = (x, shape) => viewOf(x, shape, denseStrides(shape));

/** @param {Call} call @param {Data} x @returns {Promise<Data>} the array if it is dense, else a copy in host memory */
export const dense = async (call, x) => (x.contiguous ? x : call.read(/** @type {DeviceArray} */ (x)));

/** @param {Call} call @param {Data} x @returns {Promise<Data>} the array if kernels can read its matrices with their strides, else a copy in host memory */
export const readable = async (call, x) =>
  x instanceof DeviceArray && call.core.matrix_operand(x) === null ? call.read(x) : x;

/** For k = 0: operands of zeros with k = 1, whose product is the same. @param {Data} a @param {Data} b @returns {Data[]} */
export const noTerms = (a, b) => [zeros(a.shape.with(-1, 1), a.dtype), zeros(b.shape.with(-2, 1), b.dtype)];

/** @param {Call} call @param {Data} x @returns {Promise<Data>} the array if it has no negative strides, else a copy in host memory */
export const forward = async (call, x) =>
  x instanceof DeviceArray && x.strides.some((stride) => stride < 0) ? call.read(x) : x;

/** @param {Call} call @param {Data} x @returns {Promise<Data>} a matrix whose rows are the array's last axis */
export async function rowsOf(call, x) {
  if (x.ndim === 2) return x;
  const columns = x.shape[x.ndim - 1];
  return reshaped(await dense(call, x), [columns ? x.size / columns : 0, columns]);
}
