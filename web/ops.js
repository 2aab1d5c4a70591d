// @ts-check
/** What is known of each op at once, from its row in Python (`webmm/page/rows.py`): its unit, its rate, its sizes. */

/** @import { Task } from "./problems.js" */
/** Its unit; how many of m, n, k are in a label even if they are 1; and a and b of a rate in GB/s. @typedef {[unit: string, axes: number, a?: number, b?: number]} OpRow */

/** A map, not a plain object, since names of ops come from files. @type {Map<string, OpRow>} */
const ops = new Map();
/** @type {OpRow} */
const UNKNOWN = ["GFLOP/s", 3];

/** @param {Record<string, OpRow>} rows of a bundle */
export const know = (rows) => Object.entries(rows).forEach(([name, row]) => ops.set(name, row));

/** @param {string} [op] @returns {OpRow} */
const rowOf = (op = "gemm") => ops.get(op) ?? UNKNOWN;

/** @param {Task | undefined} record @returns {string} */
export const unitOf = (record) => rowOf(record?.op)[0];

/** @param {Task & {gflops: number | null}} record @returns {number} its speed in that unit; GB/s count elements read and results written */
export function speedOf({ op, dtype, n, gflops }) {
  const [, , a, b = 0] = rowOf(op);
  const bytes = Number(/\d+/.exec(dtype) ?? 8) / 8;
  return (gflops ?? 0) * (a === undefined ? 1 : bytes * (a + b / n));
}

/** @param {{m: number, n: number, k: number, op?: string}} p @returns {string} */
export function shape({ m, n, k, op }) {
  const [, axes] = rowOf(op);
  const sizes = [m, n, k].slice(0, Math.max(axes, k > 1 ? 3 : n > 1 ? 2 : 1));
  if (axes === 3 && m === n && n === k) return `${m}³`;
  return sizes.length === 1 ? `${m} elements` : sizes.join("×");
}
