/** Problems: floating-point matrix products, and the tasks of records. */

import { ProblemError } from "./errors.js";
import { grouped } from "./text.js";

/** @import { DType } from "./matrix.js" */
/** @typedef {{m: number, n: number, k: number, dtype: string, op?: string, variant?: string, flops?: number}} Task the problem of a record */
/** @typedef {{m: number, n: number, k: number, dtype: DType}} Problem a product of an m×k and a k×n matrix */

const MAX_ELEMENTS = 2 ** 32; // shaders index storage with u32

/**
 * The product of two matrices as a problem.
 * @param {{rows: number, columns: number, dtype: DType}} a @param {{rows: number, columns: number, dtype: DType}} b
 * @returns {Problem} throws ProblemError if shapes or dtypes do not match, and for sizes that are not positive integers, or too
 *   large to index
 */
export function problemOf(a, b) {
  const shapes = `A is ${a.rows}×${a.columns} and B is ${b.rows}×${b.columns}`;
  if (a.columns !== b.rows) throw new ProblemError(`${shapes}: A needs as many columns as B has rows`);
  if (a.dtype !== b.dtype)
    throw new ProblemError(`A is ${a.dtype} and B is ${b.dtype}; convert one with .as("float32")`);
  const [m, n, k] = [a.rows, b.columns, a.columns];
  for (const [name, size] of Object.entries({ m, n, k }))
    if (!Number.isInteger(size) || size < 1) throw new ProblemError(`${name} must be a whole number of at least 1`);
  for (const [name, size] of Object.entries({ A: m * k, B: k * n, C: m * n }))
    if (size > MAX_ELEMENTS)
      throw new ProblemError(`${name} would have ${grouped(size)} elements; a shader indexes at most 2³²`);
  return { m, n, k, dtype: a.dtype };
}
