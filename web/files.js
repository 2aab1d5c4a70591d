// @ts-check
/**
 * Calls on matrices in .npy files, which may be larger than memory, as in webmm/dask/files.py: cut into pieces by the
 * translation of webmm/cut/arrays.py. A piece is read from the files while the device computes the one before.
 *
 *     const [a, b] = await Promise.all([...chosen].map((file) => NpyFile.open(file)));
 *     const c = await applyToFiles(gpu, "gemm", [a, b]);
 *     link.href = URL.createObjectURL(c.blob);
 *
 * Node opens files with `fs.openAsBlob()`.
 */

import { oneOf } from "./calls/options.js";
import { GELU, NORMALISE } from "./calls/reduce.js";
import { ProblemError } from "./errors.js";
import { ELEMENTS, HostArray } from "./host.js";
import { npyHead, npyHeader } from "./matrix.js";

/** @import { Device } from "./engine/device.js" */
/** @import { DeviceArray } from "./engine/array.js" */
/** @import { ElementType } from "./host.js" */
/** The first element, and one past the last. @typedef {[number, number]} Range */
/** The range along each axis, by its letter. @typedef {Map<string, Range>} At */
/** Write bytes of the result from a position of its file on. @typedef {(bytes: Uint8Array, position: number) => unknown} Write */
/** @typedef {"gemm" | "reduce:sum" | "reduce:mean" | "reduce:prod" | "reduce:max" | "reduce:min" | "reduce:argmax" | "reduce:argmin" | "reduce:logsumexp" | "softmax" | "layer_norm" | "rms_norm" | "gelu"} FileOp */

/** NumPy's names of element types. @type {Record<string, ElementType>} */
const TYPES = { f2: "float16", f4: "float32", f8: "float64", i1: "int8", u1: "uint8", i4: "int32" };
const HEADER = 2 ** 16; // bytes, which hold any header of a matrix
const MEMORY = 2 ** 28; // bytes of pieces on the device at a time, by default
const LEAST = 2 ** 12; // with less, pieces would be a few elements each
const RUN = 2 ** 16; // bytes; shorter runs are not read one by one, but together with what is between them

/** A matrix in a .npy file. Its elements are read when they are needed. */
export class NpyFile {
  /**
   * @param {Blob} blob the file @param {number} start where its elements start, in bytes @param {[number, number]} shape
   * @param {ElementType} dtype @param {boolean} [fortran] whether it stores columns one after another
   */
  constructor(blob, start, shape, dtype, fortran = false) {
    this.blob = blob;
    this.start = start;
    this.shape = shape;
    this.dtype = dtype;
    this.fortran = fortran;
    const need = start + shape[0] * shape[1] * ELEMENTS[dtype].itemsize;
    if (blob.size < need)
      throw new ProblemError(
        `the .npy file is cut short: ${shape.join("×")} ${dtype} needs ${need} bytes; it has ${blob.size}`,
      );
  }

  /** Open a .npy file; only its header is read. @param {Blob} blob such as a File @returns {Promise<NpyFile>} throws ProblemError for anything but a matrix of numbers of a supported dtype */
  static async open(blob) {
    const { start, type, little, rows, columns, fortran } = npyHeader(await blob.slice(0, HEADER).arrayBuffer());
    const dtype = TYPES[type];
    if (!dtype || (!little && ELEMENTS[dtype].itemsize > 1))
      throw new ProblemError(
        `the .npy file has dtype ${little ? "<" : ">"}${type}; save it as one of ${Object.keys(TYPES)}, little-endian`,
      );
    return new NpyFile(blob, start, [rows, columns], dtype, fortran);
  }

  get rows() {
    return this.shape[0];
  }

  get columns() {
    return this.shape[1];
  }

  /** @param {Range} rows @param {Range} columns @returns {Promise<HostArray>} these elements, in the order of the file: transposed if it is `fortran` */
  async read(rows, columns) {
    const [[from, to], [first, last]] = this.fortran ? [columns, rows] : [rows, columns];
    const { itemsize, over } = ELEMENTS[this.dtype];
    const line = this.shape[this.fortran ? 0 : 1];
    const bytes = async (/** @type {number} */ start, /** @type {number} */ count) => {
      const at = this.start + start * itemsize;
      return over(await this.blob.slice(at, at + count * itemsize).arrayBuffer(), count);
    };
    const [height, width] = [to - from, last - first];
    if (width === line) return new HostArray(await bytes(from * line, height * line), [height, line], this.dtype);
    const data = ELEMENTS[this.dtype].of(height * width);
    const together = width * itemsize < RUN ? Math.max(1, Math.floor(RUN / (line * itemsize))) : 1;
    for (let row = 0; row < height; row += together) {
      const count = Math.min(together, height - row);
      const found = await bytes((from + row) * line + first, (count - 1) * line + width);
      for (let i = 0; i < count; i++) data.set(found.subarray(i * line, i * line + width), (row + i) * width);
    }
    return new HostArray(data, [height, width], this.dtype);
  }
}

/**
 * An op on files: the letters of the axes of its operands and of its result, with "1" for an axis of length 1; those along
 * which it is cut; the options that its call takes; and what computes a piece of it.
 * @typedef {object} Op
 * @property {string[]} letters
 * @property {string} along
 * @property {readonly string[]} options
 * @property {(device: Device, operands: DeviceArray[], options: Record<string, any>) => Promise<DeviceArray>} compute
 */

/** @param {Device} device @param {boolean} rows whether ops of one matrix are along its rows @returns {Record<string, Op>} the ops by name */
function opsOf({ core }, rows) {
  const [axis, along, of, one] = rows ? [1, "m", "mk", "m1"] : [0, "n", "kn", "1n"];
  /** @param {Op["options"]} options @param {(device: Device, x: DeviceArray, options: any) => Promise<DeviceArray>} call */
  const ofOne = (options, call, result = of) => ({
    ...{ letters: [of, result], along, options },
    compute: (/** @type {Device} */ device, /** @type {DeviceArray[]} */ [x], /** @type {any} */ given) =>
      call(device, x, given),
  });
  const norm = (/** @type {"layerNorm" | "rmsNorm"} */ name, /** @type {Op["options"]} */ options) =>
    ofOne(options, async (device, x, given) => (rows ? device[name](x, given) : (await device[name](x.mT, given)).mT));
  const reduction = (/** @type {any} */ name) =>
    ofOne(["outDtype"], (device, x, given) => device.reduce(x, name, { axis, keepdims: true, ...given }), one);
  return {
    ...Object.fromEntries([...core.OPERATIONS.keys()].map((name) => [`reduce:${name}`, reduction(name)])),
    gemm: {
      ...{ letters: ["mk", "kn", "mn"], along: "mnk", options: ["alpha", "precision"] },
      compute: (device, [a, b], given) => device.matmul(a, b, given),
    },
    softmax: ofOne([], (device, x) => device.softmax(x, { axis })),
    layer_norm: norm("layerNorm", NORMALISE.layer_norm),
    rms_norm: norm("rmsNorm", NORMALISE.rms_norm),
    gelu: ofOne(GELU, (device, x, given) => device.gelu(x, given)),
  };
}

/**
 * Compute an op of matrices in files.
 *
 *     const c = await applyToFiles(gpu, "gemm", [a, b]); // A·B
 *     const y = await applyToFiles(gpu, "softmax", [x], { axis: 0 });
 * @param {Device} device
 * @param {FileOp} op
 * @param {NpyFile[]} operands two for "gemm", else one
 * @param {{axis?: number, memory?: number, write?: Write, progress?: (done: number, total: number) => unknown} & Record<string, any>} [options]
 *   `axis`: of an op of one matrix, by default the last; reductions keep it, with length 1. `memory`: bytes of pieces on
 *   the device at a time. `write`: receives the bytes of the result's .npy file, not always in order, instead of the
 *   browser. All others are those of the call: `alpha` and `precision`, `weight`, `bias` and `eps`, `outDtype`, `approximate`.
 * @returns {Promise<NpyFile | null>} the result, which browsers keep on disk if it is large; null with `write`.
 *   Throws ProblemError for operands that do not fit, and as the call does.
 */
export async function applyToFiles(device, op, operands, options = {}) {
  const { axis = -1, memory = MEMORY, write, progress, ...more } = options;
  if (![-2, -1, 0, 1].includes(axis))
    throw new ProblemError(`axis ${axis} is out of range for a matrix; choose 0 or 1`);
  if (!(typeof memory === "number" && memory >= LEAST))
    throw new ProblemError(`memory is a number of bytes, at least ${LEAST}, not ${memory}`);
  const ops = opsOf(device, (axis + 2) % 2 === 1);
  const called = ops[oneOf("op", op, Object.keys(ops))];
  const shape = check(called, op, operands, more);
  const pieces = piecesOf(device, called, operands, shape, memory);
  const [{ dtype, shape: first }] = operands;
  const result = new Result(shape, write);
  let next = read(called, operands, pieces[0]);
  /** @type {DeviceArray | null} */
  let sum = null; // of the products along k so far
  try {
    for (const [i, at] of pieces.entries()) {
      const hosts = await next;
      if (i + 1 < pieces.length) (next = read(called, operands, pieces[i + 1])).catch(() => {}); // awaited above
      const [from, to] = called.along.includes("k") ? (at.get("k") ?? [0, first[1]]) : [0, first[1]];
      sum = await computed(device, called, operands, hosts, to - from < first[1], more, sum);
      if (to === first[1]) {
        const found = await sum.read();
        sum.free();
        sum = null;
        await result.put(
          called.along.includes("k") ? found.as(dtype) : found,
          at.get("m")?.[0] ?? 0,
          at.get("n")?.[0] ?? 0,
        );
      }
      await progress?.(i + 1, pieces.length);
    }
  } finally {
    sum?.free();
  }
  return result.finished();
}

/** @param {Op} called @param {string} op @param {unknown} operands @param {Record<string, any>} options @returns {[number, number]} the shape of the result */
function check({ letters, options: known }, op, operands, options) {
  const count = letters.length - 1;
  if (!Array.isArray(operands) || operands.length !== count || !operands.every((x) => x instanceof NpyFile))
    throw new ProblemError(`${op} takes a list of ${count} NpyFile; open a file with await NpyFile.open(blob)`);
  const [a, b = a] = operands;
  if (a.dtype !== b.dtype) throw new ProblemError(`A is ${a.dtype}, B is ${b.dtype}; cast one of them`);
  for (const name of Object.keys(options)) oneOf("option", name, known);
  if (count > 1 && a.columns !== b.rows)
    throw new ProblemError(`A has ${a.columns} columns, B has ${b.rows} rows; they must be equal`);
  const [rows, columns] = letters[count];
  return [rows === "1" ? 1 : a.rows, columns === "1" ? 1 : b.columns];
}

/** @param {Device} device @param {Op} called @param {NpyFile[]} operands @param {[number, number]} shape @param {number} memory @returns {At[]} with k, if it is cut, innermost */
function piecesOf({ core, limits }, called, operands, shape, memory) {
  const result = { shape, dtype: /** @type {ElementType} */ ("float64"), fortran: false }; // no result is longer
  const arrays = [...operands, result].map(({ shape, dtype, fortran }, i) => {
    const [axes, lengths] = [[...called.letters[i]], [...shape]].map((each) => (fortran ? each.reverse() : each));
    return new core.Extents(axes.join(""), lengths, ELEMENTS[dtype].itemsize, true);
  });
  const binding = Math.min(limits.maxStorageBufferBindingSize, limits.maxBufferSize);
  const pieces = core.array_pieces(arrays, called.along, "", new core.Limits(binding, Infinity, memory), 0);
  return [...pieces].map(({ at }) => at);
}

/** @param {Op} called @param {NpyFile[]} operands @param {At} at @returns {Promise<HostArray[]>} the elements of each operand that a piece needs */
function read(called, operands, at) {
  return Promise.all(
    operands.map((x, i) => {
      const [rows, columns] = [...called.letters[i]].map((letter, side) => at.get(letter) ?? [0, x.shape[side]]);
      return x.read(/** @type {Range} */ (rows), /** @type {Range} */ (columns));
    }),
  );
}

/**
 * Compute a piece, or, for a `part` of k, add it to `sum`.
 * @param {Device} device @param {Op} called @param {NpyFile[]} operands @param {HostArray[]} hosts their elements
 * @param {boolean} part @param {Record<string, any>} options @param {DeviceArray | null} sum @returns {Promise<DeviceArray>}
 */
async function computed(device, called, operands, hosts, part, options, sum) {
  /** @type {DeviceArray[]} */
  const arrays = [];
  try {
    for (const host of hosts) arrays.push(await device.array(host));
    const views = arrays.map((x, i) => (operands[i].fortran ? x.mT : x));
    if (sum) return await device.gemm(views[0], views[1], sum, { ...options, beta: 1 });
    const outDtype = operands[0].dtype === "float64" ? "float64" : "float32";
    return await called.compute(device, views, part ? { ...options, outDtype } : options);
  } finally {
    for (const array of arrays) array.free();
  }
}

/** The .npy file of a result, whose pieces come in any order. */
class Result {
  /** @type {{row: number, column: number, shape: readonly number[], blob: Blob}[]} */
  #pieces = [];
  /** @type {ElementType | null} */
  #dtype = null;
  #head = new Uint8Array();

  /** @param {[number, number]} shape @param {Write | undefined} write */
  constructor(shape, write) {
    this.shape = shape;
    this.write = write;
  }

  /** Add a piece. @param {HostArray} piece @param {number} row @param {number} column of its first element */
  async put({ data, shape, dtype }, row, column) {
    if (!this.#dtype) {
      this.#dtype = dtype;
      const type = Object.keys(TYPES).find((name) => TYPES[name] === dtype);
      this.#head = npyHead(type ?? "", this.shape);
      await this.write?.(this.#head, 0);
    }
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    if (!this.write) {
      this.#pieces.push({ row, column, shape, blob: new Blob([/** @type {any} */ (bytes)]) });
      return;
    }
    const [lines, columns] = [shape[1] === this.shape[1] ? 1 : shape[0], this.shape[1]];
    const { itemsize } = ELEMENTS[dtype];
    for (let i = 0; i < lines; i++) {
      const line = bytes.subarray((i * bytes.length) / lines, ((i + 1) * bytes.length) / lines);
      await this.write(line, this.#head.length + ((row + i) * columns + column) * itemsize);
    }
  }

  /** @returns {NpyFile | null} the whole file; null if it was written */
  finished() {
    if (this.write) return null;
    const [pieces, parts] = [this.#pieces, /** @type {BlobPart[]} */ ([this.#head])];
    for (const row of new Set(pieces.map((piece) => piece.row))) {
      const across = pieces.filter((piece) => piece.row === row);
      const lines = across.length > 1 ? across[0].shape[0] : 1;
      for (let i = 0; i < lines; i++)
        for (const { blob } of across) parts.push(blob.slice((i * blob.size) / lines, ((i + 1) * blob.size) / lines));
    }
    return new NpyFile(new Blob(parts), this.#head.length, this.shape, /** @type {ElementType} */ (this.#dtype));
  }
}
