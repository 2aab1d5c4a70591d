/**
 * Calls on matrices in .npy files, which may be larger than memory, as in webmm/dask/files.py: cut into pieces by the
 * translation of webmm/cut/files.py. A piece is read from the files while the device computes the one before.
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
import { ELEMENTS, HostArray, Shaped } from "./host.js";
import { npyHead, npyHeader } from "./matrix.js";

/** @import { Device } from "./engine/device.js" */
/** @import { DeviceArray } from "./engine/array.js" */
/** @import { ElementType } from "./host.js" */
/** The first element, and one past the last. @typedef {[number, number]} Range */
/** A translated `FilePiece`. @typedef {{reads: [Range, Range][], row: number, column: number, partial: boolean, last: boolean}} Piece */
/** A part of a file, and its position. @typedef {[at: number, part: BlobPart]} Part */
/** Write bytes of the result from a position of its file on. @typedef {(bytes: Uint8Array, position: number) => unknown} Write */
/** @typedef {"gemm" | "reduce:sum" | "reduce:mean" | "reduce:prod" | "reduce:max" | "reduce:min" | "reduce:argmax" | "reduce:argmin" | "reduce:logsumexp" | "softmax" | "layer_norm" | "rms_norm" | "gelu"} FileOp */

/** NumPy's names of element types. @type {Record<string, ElementType>} */
const TYPES = { f2: "float16", f4: "float32", f8: "float64", i1: "int8", u1: "uint8", i4: "int32" };
const HEADER = 2 ** 16; // bytes, which hold any header of a matrix
const MEMORY = 2 ** 28; // bytes of pieces on the device at a time, by default
const LEAST = 2 ** 12; // with less, pieces would be a few elements each
const RUN = 2 ** 16; // bytes; shorter runs are not read one by one, but together with what is between them

/** A matrix in a .npy file. Its elements are read when they are needed. */
export class NpyFile extends Shaped {
  /** @param {Blob} blob the file @param {number} start where its elements start, in bytes @param {[number, number]} shape @param {ElementType} dtype @param {boolean} [fortran] whether it stores columns one after another */
  constructor(blob, start, shape, dtype, fortran = false) {
    super(shape, dtype);
    this.blob = blob;
    this.start = start;
    this.fortran = fortran;
    const need = start + this.size * ELEMENTS[dtype].itemsize;
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

/** What computes a piece of an op. @typedef {(device: Device, operands: DeviceArray[], options: any, axis: number) => Promise<DeviceArray>} Compute */
/** An op on files: the options that its call takes, and what computes a piece of it. @typedef {[options: readonly string[], compute: Compute]} Op */

/** Norms along the first axis are those of the transpose. @param {(x: DeviceArray) => Promise<DeviceArray>} norm @param {DeviceArray} x @param {number} axis */
const along = async (norm, x, axis) => (axis ? norm(x) : (await norm(x.mT)).mT);

/** The ops but for reductions. @type {Record<string, Op>} */
const OPS = {
  gemm: [["alpha", "precision"], (device, [a, b], given) => device.matmul(a, b, given)],
  softmax: [[], (device, [x], _, axis) => device.softmax(x, { axis })],
  layer_norm: [NORMALISE.layer_norm, (device, [x], given, axis) => along((x) => device.layerNorm(x, given), x, axis)],
  rms_norm: [NORMALISE.rms_norm, (device, [x], given, axis) => along((x) => device.rmsNorm(x, given), x, axis)],
  gelu: [GELU, (device, [x], given) => device.gelu(x, given)],
};

/** @param {any} name of a reduction @returns {[string, Op]} */
const reduction = (name) => [
  `reduce:${name}`,
  [["outDtype"], (device, [x], given, axis) => device.reduce(x, name, { axis, keepdims: true, ...given })],
];

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
  if (!(typeof memory === "number" && memory >= LEAST))
    throw new ProblemError(`memory is a number of bytes, at least ${LEAST}, not ${memory}`);
  const ops = { ...Object.fromEntries([...device.core.OPERATIONS.keys()].map(reduction)), ...OPS };
  const [known, compute] = ops[oneOf("op", op, Object.keys(ops))];
  const { file_pieces, result_shape, side_of } = await device.bundle.module("cut.js");
  const side = side_of(axis);
  check(op, known, operands, more);
  const limits = device.core.moving_limits(device.choices.described, memory);
  const shape = result_shape(op, side, operands);
  /** @type {Piece[]} */
  const pieces = [...file_pieces(op, side, operands, limits)];
  const wide = operands[0].dtype === "float64" ? "float64" : "float32";
  const read = (/** @type {Piece} */ { reads }) =>
    Promise.all(operands.map((x, i) => x.read(reads[i][0], reads[i][1])));
  /** @type {Part[]} */
  const kept = [];
  const put = writer(shape, write, kept);
  let next = read(pieces[0]);
  /** @type {DeviceArray | null} */
  let sum = null; // of the products along k so far
  try {
    for (const [i, { row, column, partial, last }] of pieces.entries()) {
      const hosts = await next;
      if (i + 1 < pieces.length) (next = read(pieces[i + 1])).catch(() => {}); // awaited above
      const given = partial ? { ...more, outDtype: wide } : more;
      sum = await onDevice(device, operands, hosts, async (views) =>
        sum ? device.gemm(views[0], views[1], sum, { ...more, beta: 1 }) : compute(device, views, given, side),
      );
      if (last) {
        const found = await sum.read();
        sum.free();
        sum = null;
        await put(op === "gemm" ? found.as(operands[0].dtype) : found, row, column);
      }
      await progress?.(i + 1, pieces.length);
    }
  } finally {
    sum?.free();
  }
  return write ? null : NpyFile.open(new Blob(kept.sort(([a], [b]) => a - b).map(([, part]) => part)));
}

/** @param {string} op @param {readonly string[]} known @param {unknown} operands @param {object} options */
function check(op, known, operands, options) {
  const count = op === "gemm" ? 2 : 1;
  if (!Array.isArray(operands) || operands.length !== count || !operands.every((x) => x instanceof NpyFile))
    throw new ProblemError(`${op} takes a list of ${count} NpyFile; open a file with await NpyFile.open(blob)`);
  for (const name of Object.keys(options)) oneOf("option", name, known);
}

/** @param {Device} device @param {NpyFile[]} operands @param {HostArray[]} hosts their elements @param {(views: DeviceArray[]) => Promise<DeviceArray>} compute @returns {Promise<DeviceArray>} what it computes of copies on the device */
async function onDevice(device, operands, hosts, compute) {
  /** @type {DeviceArray[]} */
  const arrays = [];
  try {
    for (const host of hosts) arrays.push(await device.array(host));
    return await compute(arrays.map((x, i) => (operands[i].fortran ? x.mT : x)));
  } finally {
    for (const array of arrays) array.free();
  }
}

/** @param {[number, number]} shape of a result @param {Write | undefined} write @param {Part[]} kept of its .npy file, if there is no function to write it @returns what stores a piece, given the row and the column of its first element */
function writer(shape, write, kept) {
  let head = new Uint8Array();
  const put = /** @type {(part: any, at: number) => unknown} */ (write ?? ((part, at) => kept.push([at, part])));
  return async (/** @type {HostArray} */ piece, /** @type {number} */ row, /** @type {number} */ column) => {
    const { data, dtype } = piece;
    if (!head.length) {
      const type = Object.keys(TYPES).find((name) => TYPES[name] === dtype);
      head = npyHead(type ?? "", shape);
      await put(head, 0);
    }
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    const whole = write ? bytes : new Blob([/** @type {any} */ (bytes)]); // a large one is kept on disk
    const lines = piece.columns === shape[1] ? 1 : piece.rows;
    for (let i = 0; i < lines; i++) {
      const line = whole.slice((i * bytes.length) / lines, ((i + 1) * bytes.length) / lines);
      await put(line, head.length + ((row + i) * shape[1] + column) * ELEMENTS[dtype].itemsize);
    }
  };
}
