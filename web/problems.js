// @ts-check
/** What is to be computed: products of floats, and the tasks that records are of. */

import { ProblemError } from "./errors.js";
import { ITEM_SIZE } from "./matrix.js";
import { grouped } from "./text.js";

/** @typedef {import("./matrix.js").DType} DType */
/** @typedef {{m: number, n: number, k: number, dtype: string, op?: string, variant?: string, flops?: number}} Task what a record is of */
/** @typedef {{m: number, n: number, k: number, dtype: DType}} Problem a product of floats */

const MAX_ELEMENTS = 2 ** 32; // shaders index storage with u32

/** @param {Task} p @returns {number} operations */
export const flopsOf = (p) => p.flops ?? 2 * p.m * p.n * p.k;

/** @param {Problem} p @returns {number} bytes that must move at least */
export const bytesOf = (p) => (p.m * p.k + p.k * p.n + p.m * p.n) * ITEM_SIZE[p.dtype];

/** @param {Problem} p */
export function checkSizes(p) {
  for (const name of /** @type {const} */ (["m", "n", "k"])) {
    if (!Number.isInteger(p[name]) || p[name] < 1)
      throw new ProblemError(`${name} must be a whole number of at least 1`);
  }
  for (const [name, size] of [
    ["A", p.m * p.k],
    ["B", p.k * p.n],
    ["C", p.m * p.n],
  ]) {
    if (Number(size) > MAX_ELEMENTS) {
      throw new ProblemError(`${name} would have ${grouped(Number(size))} elements; a shader indexes at most 2³²`);
    }
  }
}

/**
 * @param {{rows: number, columns: number, dtype: DType}} a @param {{rows: number, columns: number, dtype: DType}} b
 * @returns {Problem}
 */
export function problemOf(a, b) {
  if (a.columns !== b.rows) {
    throw new ProblemError(
      `A is ${a.rows}×${a.columns} and B is ${b.rows}×${b.columns}: A needs as many columns as B has rows`,
    );
  }
  if (a.dtype !== b.dtype)
    throw new ProblemError(`A is ${a.dtype} and B is ${b.dtype}; convert one with .as("float32")`);
  const p = { m: a.rows, n: b.columns, k: a.columns, dtype: a.dtype };
  checkSizes(p);
  return p;
}
