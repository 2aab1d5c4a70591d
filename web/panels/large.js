// @ts-check
/** Products of .npy files that are too large for memory: computed piece by piece; some elements are checked. */

import { NpyFile, applyToFiles } from "../files.js";
import { Matrix, ProblemError, errorBound, toNpy } from "../webmm.js";

/** @import { App } from "../main.js" */
/** @import { HostArray } from "../host.js" */

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
  const bound = errorBound(a.columns, /** @type {any} */ (dtype), app.bundle.index.dtypes[dtype]);
  return { c, ...(await errorOf(a, b, c, alpha)), bound };
}

/** @param {NpyFile} a @param {NpyFile} b @param {NpyFile} c @param {number} alpha @returns {Promise<{checked: number, error: number}>} the largest error ÷ |alpha||A||B| in some elements of `c` */
async function errorOf(a, b, c, alpha) {
  const first = Math.floor((c.columns - 1) / 2);
  /** @type {[number, number]} */
  const columns = [first, Math.min(first + COLUMNS, c.columns)];
  const right = values(b, await b.read([0, b.rows], columns));
  let [checked, error] = [0, 0];
  for (const row of new Set([0, Math.floor(c.rows / 2), c.rows - 1])) {
    const left = values(a, await a.read([row, row + 1], [0, a.columns]));
    const got = values(c, await c.read([row, row + 1], columns));
    for (let j = 0; j < columns[1] - first; j++) {
      let [sum, scale] = [0, 0];
      for (let k = 0; k < a.columns; k++) {
        sum += left(0, k) * right(k, j);
        scale += Math.abs(left(0, k) * right(k, j));
      }
      if (!Number.isFinite(scale)) continue; // NaN or an infinity in A or B
      const off = Math.abs(got(0, j) - alpha * sum) / (Math.abs(alpha) * scale || 1);
      error = Number.isNaN(error) || off <= error ? error : off;
      checked++;
    }
  }
  return { checked, error };
}

/** @param {NpyFile} file @param {HostArray} host what was read of it @returns {(i: number, j: number) => number} its elements by row and column */
function values({ fortran }, host) {
  const [numbers, width] = [host.floats(), host.shape[1]];
  return fortran ? (i, j) => numbers[j * width + i] : (i, j) => numbers[i * width + j];
}
