/** Arrays of any rank in host memory; dtypes have the names of NumPy. */

import { ProblemError } from "./errors.js";
import { fromHalves, toHalves } from "./half.js";

/** @typedef {"float32" | "float16" | "float64" | "int8" | "uint8" | "int32" | "uint32" | "bool"} ElementType */
/** @typedef {Float32Array | Uint16Array | Float64Array | Int8Array | Uint8Array | Int32Array | Uint32Array} Elements float16 is stored as bits, in a Uint16Array */
/** @typedef {number | boolean | readonly Nested[]} Nested */
/** Host data that calls accept as an array: a number, nested lists, a typed array or a HostArray. @typedef {HostArray | ArrayBufferView | Nested} HostData */

/** @type {Record<ElementType, {itemsize: 1 | 2 | 4 | 8, of: (count: number) => Elements, over: (buffer: ArrayBuffer, count: number) => Elements}>} */
export const ELEMENTS = {
  float32: { itemsize: 4, of: (n) => new Float32Array(n), over: (buffer, n) => new Float32Array(buffer, 0, n) },
  float16: { itemsize: 2, of: (n) => new Uint16Array(n), over: (buffer, n) => new Uint16Array(buffer, 0, n) },
  float64: { itemsize: 8, of: (n) => new Float64Array(n), over: (buffer, n) => new Float64Array(buffer, 0, n) },
  int8: { itemsize: 1, of: (n) => new Int8Array(n), over: (buffer, n) => new Int8Array(buffer, 0, n) },
  uint8: { itemsize: 1, of: (n) => new Uint8Array(n), over: (buffer, n) => new Uint8Array(buffer, 0, n) },
  int32: { itemsize: 4, of: (n) => new Int32Array(n), over: (buffer, n) => new Int32Array(buffer, 0, n) },
  uint32: { itemsize: 4, of: (n) => new Uint32Array(n), over: (buffer, n) => new Uint32Array(buffer, 0, n) },
  bool: { itemsize: 1, of: (n) => new Uint8Array(n), over: (buffer, n) => new Uint8Array(buffer, 0, n) },
};
/** The dtype of a typed array, by its class; a Uint16Array holds float16 bits. @type {Record<string, ElementType>} */
const TYPES = {
  Float32Array: "float32",
  Float16Array: "float16",
  Uint16Array: "float16",
  Float64Array: "float64",
  Int8Array: "int8",
  Uint8Array: "uint8",
  Uint8ClampedArray: "uint8",
  Int32Array: "int32",
  Uint32Array: "uint32",
};

/** @param {string} name @returns {ElementType} the same; throws ProblemError for a dtype that is not supported */
export function elementType(name) {
  if (Object.hasOwn(ELEMENTS, name)) return /** @type {ElementType} */ (name);
  throw new ProblemError(`dtype ${name} is not supported; use one of ${Object.keys(ELEMENTS).join(", ")}`);
}

/** @param {readonly number[]} shape @returns {number} the number of elements */
export const sizeOf = (shape) => shape.reduce((product, length) => product * length, 1);

/** @param {readonly number[]} shape @returns {number[]} the strides, in elements, of a row-major array */
export function denseStrides(shape) {
  const strides = shape.map(() => 1);
  for (let axis = shape.length - 2; axis >= 0; axis--) strides[axis] = strides[axis + 1] * shape[axis + 1];
  return strides;
}

/** @param {unknown} shape @returns {number[]} the lengths; throws ProblemError unless they are non-negative integers */
export function checkedShape(shape) {
  const lengths = typeof shape === "number" ? [shape] : shape;
  if (!Array.isArray(lengths) || !lengths.every((length) => Number.isSafeInteger(length) && length >= 0))
    throw new ProblemError(`a shape must be a list of whole numbers, such as [2, 3], not ${JSON.stringify(shape)}`);
  return [...lengths];
}

/** What arrays in host memory and on devices have in common; `strides` and `offset` count elements. */
export class Shaped {
  /** @param {readonly number[]} shape @param {ElementType} dtype @param {readonly number[]} [strides] @param {number} [offset] */
  constructor(shape, dtype, strides = denseStrides(shape), offset = 0) {
    this.shape = shape;
    this.dtype = dtype;
    this.strides = strides;
    this.offset = offset;
  }

  /** The number of axes. */
  get ndim() {
    return this.shape.length;
  }

  /** The number of elements. */
  get size() {
    return sizeOf(this.shape);
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
    return isDense(this.shape, this.strides);
  }
}

/** @param {readonly number[]} shape @param {readonly number[]} strides @returns {boolean} whether they are those of a row-major array without gaps */
export function isDense(shape, strides) {
  const dense = denseStrides(shape);
  return shape.every((length, axis) => length === 1 || strides[axis] === dense[axis]);
}

/**
 * A dense row-major array in host memory. `data` is the typed array with the elements, float16 as bits in a Uint16Array;
 * `floats()` and `toList()` return them as numbers.
 *
 *     HostArray.from([[1, 2], [3, 4]]).shape; // [2, 2]
 */
export class HostArray extends Shaped {
  /** @param {Elements} data @param {readonly number[]} shape @param {ElementType} dtype */
  constructor(data, shape, dtype) {
    super(shape, dtype);
    if (data.length !== sizeOf(shape)) {
      throw new ProblemError(
        `an array of shape [${shape}] needs ${sizeOf(shape)} elements; the data has ${data.length}`,
      );
    }
    const { constructor } = ELEMENTS[dtype].of(0);
    if (data.constructor !== constructor) {
      const expected = constructor.name + (dtype === "float16" ? " of bits" : "");
      throw new ProblemError(`${dtype} data must be a ${expected}, not a ${data.constructor.name}`);
    }
    this.data = data;
  }

  /** @returns {Float32Array} the elements as float32; for a float32 array `data` itself, not a copy */
  floats() {
    if (this.data instanceof Float32Array) return this.data;
    return this.data instanceof Uint16Array ? fromHalves(this.data) : Float32Array.from(this.data);
  }

  /** @param {ElementType} dtype @returns {HostArray} this array converted to `dtype` */
  as(dtype) {
    if (dtype === this.dtype) return this;
    const numbers = this.data instanceof Uint16Array ? fromHalves(this.data) : this.data;
    return new HostArray(stored(numbers, elementType(dtype)), this.shape, dtype);
  }

  /** @returns {any} the elements as nested lists, or a number for an array without axes */
  toList() {
    const numbers = this.data instanceof Uint16Array ? fromHalves(this.data) : this.data;
    const strides = denseStrides(this.shape);
    /** @type {(axis: number, at: number) => any} */
    const list = (axis, at) =>
      axis === this.shape.length
        ? numbers[at]
        : Array.from({ length: this.shape[axis] }, (_, i) => list(axis + 1, at + i * strides[axis]));
    return list(0, 0);
  }

  /**
   * Make an array.
   *
   *     HostArray.from(new Float32Array(6), { shape: [2, 3] });
   * @param {HostData} x a HostArray, a typed array, a number, or nested lists of numbers or booleans
   * @param {{shape?: readonly number[], dtype?: ElementType}} [options] `shape` is by default one axis, or that of the nested
   *   lists; `dtype` is that of the typed array, float32 for numbers and lists, and bool for booleans
   * @returns {HostArray} sharing memory with `x` unless it is converted; throws ProblemError for invalid data
   */
  static from(x, { shape, dtype } = {}) {
    if (dtype !== undefined) elementType(dtype);
    const lengths = shape === undefined ? undefined : checkedShape(shape);
    if (x instanceof HostArray) {
      const same = x.as(dtype ?? x.dtype);
      return lengths ? new HostArray(same.data, lengths, same.dtype) : same;
    }
    if (ArrayBuffer.isView(x)) return ofTyped(/** @type {any} */ (x), lengths, dtype);
    const found = nestedShape(x);
    const numbers = /** @type {any[]} */ ([x]).flat(Infinity);
    const type = dtype ?? (typeof numbers[0] === "boolean" ? "bool" : "float32");
    return new HostArray(stored(numbers, type), lengths ?? found, type);
  }
}

/** @param {readonly number[]} shape @param {ElementType} dtype */
export const zeros = (shape, dtype) => new HostArray(ELEMENTS[dtype].of(sizeOf(shape)), shape, dtype);

/** @param {ArrayLike<number>} numbers @param {ElementType} dtype @returns {Elements} the numbers converted to that dtype */
function stored(numbers, dtype) {
  if (dtype === "float16") return toHalves(numbers);
  const data = ELEMENTS[dtype].of(numbers.length);
  data.set(numbers);
  return data;
}

/** @param {any} x a typed array @param {number[] | undefined} shape @param {ElementType | undefined} dtype */
function ofTyped(x, shape = [x.length], dtype) {
  const { name } = x.constructor;
  const natural = TYPES[name];
  if (!natural && dtype && name === "Int16Array") return new HostArray(stored(x, dtype), shape, dtype);
  if (!natural)
    throw new ProblemError(
      `a ${name} is not supported; convert it with {dtype: "float32"}, or use one of ${Object.keys(TYPES).join(", ")}`,
    );
  /** @type {any} */
  const { constructor: Plain } = ELEMENTS[natural].of(0);
  const plain = x.constructor === Plain ? x : new Plain(x.buffer, x.byteOffset, x.length);
  return new HostArray(plain, shape, natural).as(dtype ?? natural);
}

/** @param {any} x @returns {number[]} the shape of nested lists; throws ProblemError if they have none */
function nestedShape(x) {
  if (typeof x === "number" || typeof x === "boolean") return [];
  if (!Array.isArray(x))
    throw new ProblemError(`an array must be a number, a list of numbers or a typed array, not ${typeof x}`);
  if (x.length === 0) return [0];
  const [first, ...others] = x.map(nestedShape);
  if (others.some((other) => other.join() !== first.join()))
    throw new ProblemError("nested lists must have equal lengths and depths");
  return [x.length, ...first];
}
