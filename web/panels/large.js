/** Products of .npy files that are too large for memory: computed piece by piece; some elements are checked. */

import { NpyFile, applyToFiles } from "../files.js";
import { Checker, Matrix, ProblemError, errorBound, toNpy } from "../webmm.js";
import { transposed } from "./matrices.js";

/** @import { App } from "../main.js" */
/** @import { Rounding } from "../check.js" */

const COLUMNS = 8; // of C that are checked, in three of its rows

/** Open a file, of which only the header is read. @param {File} source @returns {Promise<NpyFile>} throws ProblemError for other types than float32 and float16 */
export async function opened(source) {
  const file = await NpyFile.open(source);
  if (file.dtype === "float32" || file.dtype === "float16") return file;
  throw new ProblemError(
    `${source.name} is ${file.dtype}; a file that is too large for memory must be float32 or float16`,
  );
}

/**
 * Multiply matrices of which at least one is in a large file.
 * @param {App} app @param {(Matrix | NpyFile)[]} operands @param {import("./options.js").Asked} asked
 * @param {(done: number, total: number) => void} progress
 * @returns {Promise<{c: NpyFile, checked: number, error: number, bound: number}>} the product, and the largest error of the elements that were checked
 */
export async function multiplyFiles(app, operands, { options }, progress) {
  const { alpha = 1, precision, ...others } = options;
  if (Object.keys(others).length) {
    throw new ProblemError(
      `${Object.keys(others).join(" and ")} cannot be used with files that are too large for memory; alpha and precision can`,
    );
  }
  const { dtype } = /** @type {NpyFile} */ (operands.find((x) => x instanceof NpyFile));
  const stored = (/** @type {Matrix} */ x) => NpyFile.open(new Blob([toNpy(x.as(/** @type {any} */ (dtype)))]));
  const [a, b] = await Promise.all(operands.map((x) => (x instanceof Matrix ? stored(x) : x)));
  const more = { alpha, ...(precision && { precision }), memory: Math.max(4096, app.device.memory / 4), progress };
  const c = /** @type {NpyFile} */ (await applyToFiles(app.device, "gemm", [a, b], more));
  const rounding = app.bundle.index.dtypes[dtype];
  return { c, ...(await errorOf(a, b, c, alpha, rounding)), bound: errorBound(a.columns, dtype, rounding) };
}

/** @param {NpyFile} a @param {NpyFile} b @param {NpyFile} c @param {number} alpha @param {Rounding} rounding @returns {Promise<{checked: number, error: number}>} the largest error ÷ |alpha||A||B| in some elements of `c` */
async function errorOf(a, b, c, alpha, rounding) {
  const first = Math.floor((c.columns - 1) / 2);
  /** @type {[number, number]} */
  const columns = [first, Math.min(first + COLUMNS, c.columns)];
  const right = await part(b, [0, b.rows], columns);
  let [checked, error] = [0, 0];
  for (const row of new Set([0, Math.floor(c.rows / 2), c.rows - 1])) {
    const left = await part(a, [row, row + 1], [0, a.columns]);
    const checker = new Checker(left, right, rounding, { alpha, bias: null, per: "", activation: "" });
    error = Math.max(error, await checker.error(await c.read([row, row + 1], columns)));
    checked += right.columns;
  }
  return { checked, error };
}

/** @param {NpyFile} file @param {[number, number]} rows @param {[number, number]} columns @returns {Promise<Matrix>} these of it */
async function part(file, rows, columns) {
  const host = await file.read(rows, columns);
  const read = new Matrix(host.floats(), host.shape);
  return file.fortran ? transposed(read) : read;
}
