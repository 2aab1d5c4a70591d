/** The exhibits of ops: stages on problems of a few sizes with random inputs, whose results translated Python checks. */

import { Inputs, written } from "./bench.js";
import { MEANINGS, breathe, spread } from "./check.js";
import { list, provide } from "./python.js";
import { Matrix } from "./webmm.js";

/** @import { Device, HostArray, Python } from "./webmm.js" */

const COMPARED = 2 ** 20; // elements of which every row is compared; of larger arrays evenly spread rows

provide("webmm.cases.elementwise.activated", (name, row) => row.map(MEANINGS[name]));

/**
 * Compare a result with the row's reference; return what was compared, the largest error, its bound, and the first wrong result in words.
 * @param {Python} row @param {Python} problem of x[m, n, k] along n @param {Float32Array} x @param {Float32Array} y
 */
export async function compared(row, problem, x, y) {
  const [m, n, k] = problem.sizes;
  /** @type {number} */
  const bound = row.bound(problem);
  const { dtype } = written(problem);
  const rows = spread(m * k, Math.max(1, Math.floor(COMPARED / n)));
  const scope = rows.length === m * k ? "every result" : `the results of ${rows.length.toLocaleString("en")} rows`;
  let [error, first, infinite] = [0, "", 0];
  for (const at of rows) {
    const [i, j] = [Math.floor(at / k), at % k];
    const values = Array.from({ length: n }, (_, place) => x[(i * n + place) * k + j]);
    if (!values.every(Number.isFinite)) infinite += 1;
    else
      list(row.reference(problem, values)).forEach(([expected, unit], place, { length }) => {
        const index = (i * length + place) * k + j;
        const off = errorOf(y[index], expected, unit, dtype);
        if (!(off <= bound) && !first)
          first = `y[${index}]: expected ${Number(expected.toPrecision(6))}, got ${Number(y[index].toPrecision(6))}`;
        if (!(off <= error)) error = Number.isNaN(off) ? Infinity : off;
      });
    await breathe();
  }
  if (!infinite && y.some(Number.isNaN)) error = Infinity;
  const except = infinite ? ` except in rows with NaN or infinities (${infinite})` : "";
  return { scope: scope + except, error, bound, first };
}

/** The error of a result that is stored as `dtype`, as a multiple of `unit`. @param {number} got @param {number} expected @param {number} unit @param {Python} dtype @returns {number} NaN for NaN */
function errorOf(got, expected, unit, { eps, tiny }) {
  if (got === expected) return 0;
  if (!eps) return Math.abs(got - expected) / unit; // an integer
  const least = tiny / eps; // shaders may take smaller numbers for 0
  const most = ((2 - eps / 2) * 2) / least; // this and larger numbers become infinite
  if (Math.abs(expected) >= most) return got === Math.sign(expected) * Infinity ? 0 : Infinity;
  const difference = Math.abs(got - expected);
  return difference <= least ? 0 : difference / unit;
}

/**
 * A problem with one input, whose result the row's reference checks.
 * @param {Device} device @param {Python} row @param {Python} problem @param {Matrix} [x] the input, by default a random one
 */
export function rowCase(device, row, problem, x) {
  const [m, n, k] = problem.sizes;
  const host = x ?? Matrix.random(m, n * k, 1, problem.dtype.name);
  const check = async (/** @type {HostArray} */ y) => {
    const { error, bound, first } = await compared(row, problem, host.floats(), y.floats());
    const words = `the largest error is ${error.toExponential(2)}; rounding explains at most ${bound.toExponential(2)}`;
    const wrong = error <= bound ? null : [first, words].filter(Boolean).join("; ");
    return { wrong, max_error: error, error_bound: bound };
  };
  return new Inputs(device, problem, check).fill([host], (each) => device.array(each));
}
