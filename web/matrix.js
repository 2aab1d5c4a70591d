/** Matrices in host memory, and reading and writing them as .npy and CSV. */

import { ProblemError } from "./errors.js";
import { toHalves } from "./half.js";
import { HostArray } from "./host.js";

/** @typedef {"float32" | "float16"} DType */

/** A dense row-major matrix of float32 or float16 in host memory; a HostArray with two axes. */
export class Matrix extends HostArray {
  /** @param {Float32Array | Uint16Array} data @param {readonly number[]} shape rows, columns @param {DType} [dtype] */
  constructor(data, shape, dtype = data instanceof Uint16Array ? "float16" : "float32") {
    if (shape.length !== 2 || !shape.every((length) => Number.isInteger(length) && length > 0))
      throw new ProblemError(`a matrix must have at least one row and one column, not shape ${shape.join("×")}`);
    if (!["float32", "float16"].includes(dtype))
      throw new ProblemError(`a matrix must be float32 or float16, not ${dtype}`);
    super(data, shape, dtype);
    /** @type {Float32Array | Uint16Array} */
    this.data = data;
    /** @type {[number, number]} */
    this.shape = [shape[0], shape[1]];
    /** @type {DType} */
    this.dtype = dtype;
  }

  /** @param {DType} dtype @returns {Matrix} this matrix converted to `dtype`, rounded to nearest */
  as(dtype) {
    if (dtype === this.dtype) return this;
    return new Matrix(dtype === "float16" ? toHalves(this.floats()) : this.floats(), this.shape, dtype);
  }

  /**
   * Make a float32 matrix of a list of rows.
   *
   *     Matrix.from([[1, 2], [3, 4]]);
   * @param {number[][]} rows
   * @returns {Matrix} throws ProblemError if the rows differ in length
   */
  static from(rows) {
    const columns = rows[0]?.length ?? 0;
    const ragged = rows.findIndex((row) => row.length !== columns);
    if (ragged >= 0)
      throw new ProblemError(`row ${ragged + 1} has ${rows[ragged].length} values, the first has ${columns}`);
    return new Matrix(Float32Array.from(rows.flat()), [rows.length, columns]);
  }

  /**
   * Make a matrix of random numbers, uniform in [-0.5, 0.5); equal seeds give equal matrices.
   * @param {number} rows @param {number} columns @param {number} [seed] @param {DType} [dtype]
   */
  static random(rows, columns, seed = 1, dtype = "float32") {
    const data = new Float32Array(rows * columns);
    let state = (seed * 2654435761) >>> 0 || 1;
    for (let i = 0; i < data.length; i++) {
      state ^= state << 13; // xorshift32
      state ^= state >>> 17;
      state ^= state << 5;
      data[i] = (state >>> 8) / 2 ** 24 - 0.5;
    }
    return new Matrix(data, [rows, columns]).as(dtype);
  }
}

// .npy

/** Arrays of NumPy's types; float16 as bits. @type {Record<string, new (buffer: ArrayBuffer) => ArrayLike<number | bigint>>} */
const TYPES = {
  ...{ f2: Uint16Array, f4: Float32Array, f8: Float64Array, b1: Uint8Array },
  ...{ i1: Int8Array, i2: Int16Array, i4: Int32Array, i8: BigInt64Array },
  ...{ u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, u8: BigUint64Array },
};

/**
 * Read a NumPy file (.npy) with a 2-D array of numbers. Dtypes other than float16 and float32 are rounded to float32;
 * pickled objects are rejected.
 * @param {ArrayBuffer} file
 * @returns {Matrix} throws ProblemError if the file is malformed, cut short, empty or not a 2-D array of numbers
 */
export function parseNpy(file) {
  const { start, type, little, rows, columns, fortran } = npyHeader(file);
  const size = Number(type[1]);
  const need = rows * columns * size;
  if (file.byteLength - start < need) {
    const have = (file.byteLength - start).toLocaleString("en");
    throw new ProblemError(
      `the .npy file is cut short: ${rows}×${columns} needs ${need.toLocaleString("en")} bytes of data; it has ${have}`,
    );
  }
  const bytes = new Uint8Array(file.slice(start, start + need));
  const stored = new TYPES[type]((little ? bytes : bytes.map((_, at) => bytes[at ^ (size - 1)])).buffer);
  if (stored instanceof Float32Array && !fortran) return new Matrix(stored, [rows, columns]);
  const data = type === "f2" ? new Uint16Array(stored.length) : new Float32Array(stored.length);
  for (let i = 0; i < data.length; i++)
    data[i] = Number(stored[fortran ? (i % columns) * rows + Math.floor(i / columns) : i]);
  return new Matrix(data, [rows, columns]);
}

/** @param {ArrayBuffer} file the start of a file, with its header */
export function npyHeader(file) {
  const bytes = new Uint8Array(file);
  const view = new DataView(file);
  if (bytes.length < 12 || String.fromCharCode(...bytes.subarray(0, 6)) !== "\x93NUMPY") {
    throw new ProblemError(
      "this is not a .npy file: it does not begin with NumPy's signature; write one with numpy.save()",
    );
  }
  const wide = bytes[6] > 1;
  const length = wide ? view.getUint32(8, true) : view.getUint16(8, true);
  const start = (wide ? 12 : 10) + length;
  if (start > bytes.length) throw new ProblemError("the .npy file is cut short: its header is incomplete");
  const header = new TextDecoder().decode(bytes.subarray(wide ? 12 : 10, start));
  const descr = /'descr':\s*'([^']*)'/.exec(header)?.[1];
  const shape = /'shape':\s*\(([^)]*)\)/.exec(header)?.[1];
  if (shape === undefined || !header.includes("'fortran_order'")) {
    throw new ProblemError("the header of the .npy file is malformed; write the file with numpy.save()");
  }
  const type = descr?.slice(1) ?? "";
  if (!descr || !Object.hasOwn(TYPES, type)) {
    throw new ProblemError(`the .npy file has dtype ${descr ?? "with fields"}, not numbers; save x.astype('float32')`);
  }
  const sizes = shape.split(",").flatMap((length) => (length.trim() ? [Number(length)] : []));
  if (sizes.length !== 2 || sizes.some((s) => !Number.isSafeInteger(s) || s < 0)) {
    throw new ProblemError(`the .npy file has shape (${shape.trim()}); a matrix must have two dimensions`);
  }
  if (sizes.includes(0)) throw new ProblemError(`the matrix in the .npy file is empty: shape (${shape.trim()})`);
  const fortran = /'fortran_order':\s*True/.test(header);
  return { start, type, little: descr[0] !== ">", rows: sizes[0], columns: sizes[1], fortran };
}

/** @param {Matrix} matrix @returns {ArrayBuffer} the contents of a NumPy file (.npy) */
export function toNpy(matrix) {
  const { data } = matrix;
  const head = npyHead(matrix.dtype === "float16" ? "f2" : "f4", matrix.shape);
  const file = new Uint8Array(head.length + data.byteLength);
  file.set(head);
  file.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), head.length);
  return file.buffer;
}

/** @param {string} type of the elements @param {readonly number[]} shape @returns {Uint8Array<ArrayBuffer>} what precedes the elements in a .npy file */
export function npyHead(type, [rows, columns]) {
  const header = `{'descr': '<${type}', 'fortran_order': False, 'shape': (${rows}, ${columns}), }`;
  const length = Math.ceil((header.length + 11) / 64) * 64; // the data starts at a multiple of 64 bytes
  const head = new TextEncoder().encode(`          ${header}`.padEnd(length - 1) + "\n");
  head.set([147, 78, 85, 77, 80, 89, 1, 0, (length - 10) & 255, (length - 10) >> 8]);
  return head;
}

// CSV

/**
 * Read rows of numbers separated by commas, semicolons, tabs or spaces; lines that begin with # are comments.
 * @param {string} text
 * @returns {Matrix} float32; throws ProblemError for text without numbers, unequal rows or a value that is not a number
 */
export function parseCsv(text) {
  const lines = text.replace(/^\uFEFF/, "").split(/\r\n|\r|\n/);
  /** @type {number[][]} */
  const rows = [];
  for (const [i, line] of lines.entries()) {
    const content = line.trim();
    if (content === "" || content.startsWith("#")) continue;
    const cells = content.split([";", ",", "\t"].find((each) => content.includes(each)) ?? /\s+/);
    const columns = rows[0]?.length ?? cells.length;
    if (cells.length !== columns)
      throw new ProblemError(`line ${i + 1} has ${cells.length} values, the lines before it have ${columns}`);
    rows.push(cells.map((cell, j) => numberIn(cell, i + 1, j + 1)));
  }
  if (!rows.length) throw new ProblemError("the text contains no numbers; write one row per line, such as 1, 2, 3");
  return Matrix.from(rows);
}

/** @param {string} cell @param {number} line @param {number} column */
function numberIn(cell, line, column) {
  const word = cell.trim().replace(/^(['"])(.*)\1$/, "$2");
  const value = Number(word.replace(/^([+-]?)inf$/i, "$1Infinity"));
  if (word === "" || (Number.isNaN(value) && word.toLowerCase() !== "nan")) {
    const what = word === "" ? "is empty" : `is not a number: “${word.slice(0, 30)}”`;
    throw new ProblemError(`line ${line}, value ${column} ${what}`);
  }
  return value;
}

/** @param {Matrix} matrix @returns {string} CSV with enough digits to read every value back exactly */
export function toCsv(matrix) {
  const [floats, { rows, columns }] = [matrix.floats(), matrix];
  const cells = (/** @type {number} */ row) =>
    Array.from(floats.subarray(row * columns, (row + 1) * columns), shortest);
  return Array.from({ length: rows }, (_, row) => `${cells(row).join(",")}\n`).join("");
}

/** @param {number} value @returns {string} the shortest decimal that rounds to the same float32 */
function shortest(value) {
  const exact = (/** @type {number} */ digits) => Math.fround(Number(value.toPrecision(digits))) === value;
  return String(Number(value.toPrecision([6, 7, 8].find(exact) ?? 9)));
}
