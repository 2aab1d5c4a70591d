/** Uploads and downloads of arrays and views. */

import { ProblemError } from "../errors.js";
import { ELEMENTS, HostArray, sizeOf } from "../host.js";
import { Matrix } from "../matrix.js";
import { roundUp } from "./pool.js";

/** @import { Elements } from "../host.js" */
/** @import { DeviceArray } from "./array.js" */
/** @import { Engine as Device } from "./engine.js" */

/** Overwrite `target`, which must be contiguous and consist of whole 32-bit words, with `host`. @param {Device} device @param {HostArray} host @param {DeviceArray} target */
export function upload(device, host, target) {
  const { itemsize } = ELEMENTS[target.dtype];
  const [start, nbytes] = [target.offset * itemsize, target.size * itemsize];
  if (host.size !== target.size)
    throw new ProblemError(`${host.size} elements cannot fill an array of shape [${target.shape}]`);
  if (!target.contiguous || start % 4 || (nbytes % 4 && start + nbytes < target.storage.nbytes)) {
    throw new ProblemError("only a contiguous array that starts and ends at multiples of four bytes can be written to");
  }
  if (!nbytes) return;
  device.flush(); // dispatches queued earlier must read the old contents
  const { data } = host.as(target.dtype);
  const whole = data.byteLength % 4 ? padded(data) : data; // WebGPU writes whole words
  device.wgpu.queue.writeBuffer(target.buffer, start, whole.buffer, whole.byteOffset, whole.byteLength);
}

/** @param {Elements} data @returns {Uint8Array} its bytes, padded with zeros to whole words */
function padded(data) {
  const bytes = new Uint8Array(roundUp(data.byteLength, 4));
  bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  return bytes;
}

/** @param {Device} device @param {DeviceArray} array @returns {Promise<HostArray>} its elements, as a Matrix for a 2-D array of floats */
export async function download(device, array) {
  const { itemsize, of, over } = ELEMENTS[array.dtype];
  const { shape, strides, size } = array;
  if (size === 0) return new HostArray(of(0), shape, array.dtype);
  const reach = shape.map((length, axis) => (length - 1) * strides[axis]);
  const first = array.offset + reach.reduce((sum, far) => sum + Math.min(0, far), 0);
  const skipped = ((first * itemsize) % 4) / itemsize; // WebGPU copies start at whole words
  const count = reach.reduce((sum, far) => sum + Math.abs(far), 1) + skipped;
  const bytes = await device.read(array.buffer, roundUp(count * itemsize, 4), (first - skipped) * itemsize);
  const span = over(bytes, count);
  if (array.contiguous && !skipped) return like(span, shape, array.dtype);
  return like(gathered(span, of(size), shape, strides, array.offset - first + skipped), shape, array.dtype);
}

/** @param {Elements} data @param {readonly number[]} shape @param {import("../host.js").ElementType} dtype @returns {HostArray} a Matrix for a 2-D array of floats */
export function like(data, shape, dtype) {
  if ((dtype !== "float32" && dtype !== "float16") || shape.length !== 2 || !sizeOf(shape))
    return new HostArray(data, shape, dtype);
  return new Matrix(/** @type {Float32Array | Uint16Array} */ (data), shape, dtype);
}

/** @param {Elements} span @param {Elements} out @param {readonly number[]} shape @param {readonly number[]} strides @param {number} start @returns {Elements} `out`, filled with the view's elements in row-major order */
export function gathered(span, out, shape, strides, start) {
  const last = shape.length - 1;
  const [length, step] = last < 0 ? [1, 0] : [shape[last], strides[last]];
  const at = shape.map(() => 0); // the indices along all axes but the last
  for (let to = 0, from = start; to < out.length;) {
    for (let i = 0; i < length; i++) out[to++] = span[from + i * step];
    for (let axis = last - 1; axis >= 0; axis--) {
      from += strides[axis];
      if (++at[axis] < shape[axis]) break;
      from -= at[axis] * strides[axis];
      at[axis] = 0;
    }
  }
  return out;
}
