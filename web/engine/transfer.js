/** Uploads and downloads of arrays and views. */

import { ProblemError } from "../errors.js";
import { ELEMENTS, HostArray, sizeOf, zeros } from "../host.js";
import { Matrix } from "../matrix.js";
import { roundUp } from "./pool.js";

/** @import { ElementType, Elements } from "../host.js" */
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
  const { shape, strides, size, dtype } = array;
  const { itemsize, over } = ELEMENTS[dtype];
  if (size === 0) return zeros(shape, dtype);
  const [first, count] = device.core.span_of(array, itemsize);
  const bytes = await device.read(array.buffer, roundUp(count * itemsize, 4), first * itemsize);
  const span = over(bytes, count);
  if (array.contiguous && array.offset === first) return like(span, shape, dtype);
  return like(gathered(span, shape, strides, array.offset - first, dtype).data, shape, dtype);
}

/** @param {Elements} data @param {readonly number[]} shape @param {ElementType} dtype @returns {HostArray} a Matrix for a 2-D array of floats */
export function like(data, shape, dtype) {
  if ((dtype !== "float32" && dtype !== "float16") || shape.length !== 2 || !sizeOf(shape))
    return new HostArray(data, shape, dtype);
  return new Matrix(/** @type {Float32Array | Uint16Array} */ (data), shape, dtype);
}

/** @param {Elements} data @param {readonly number[]} shape @param {readonly number[]} strides @param {number} offset @param {ElementType} dtype @returns {HostArray} the view's elements in row-major order */
export function gathered(data, shape, strides, offset, dtype) {
  const all = zeros(shape, dtype);
  copyElements(shape, { data, strides, offset }, all);
  return all;
}

const RUN = 16; // elements; fewer are faster copied one by one
/** @typedef {{data: Elements, strides: readonly number[], offset: number}} Placed */

/** Copy an array of that shape into another one. @param {readonly number[]} shape @param {Placed} from @param {Placed} to */
export function copyElements(shape, from, to) {
  const last = shape.length - 1;
  const [length, step, stride] = last < 0 ? [1, 0, 0] : [shape[last], from.strides[last], to.strides[last]];
  const at = shape.map(() => 0); // the indices along all axes but the last
  const [given, made] = [from.data, to.data];
  let [source, target] = [from.offset, to.offset];
  for (let rows = sizeOf(shape.slice(0, -1)); rows > 0; rows--) {
    if (length > RUN && step === 1 && stride === 1) made.set(given.subarray(source, source + length), target);
    else for (let i = 0; i < length; i++) made[target + i * stride] = given[source + i * step];
    for (let axis = last - 1; axis >= 0; axis--) {
      const steps = ++at[axis] < shape[axis] ? 1 : 1 - shape[axis]; // one, or from the last index back to the first
      source += steps * from.strides[axis];
      target += steps * to.strides[axis];
      if (steps === 1) break;
      at[axis] = 0;
    }
  }
}
