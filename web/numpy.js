// @ts-check
/** The subset of NumPy that the cost model uses: float64 arrays with one or two axes. */

import { Slice, list, signed } from "./python.js";

/** @typedef {any} Any */

/** An array; `columns` is the length of its second axis, or 0 for an array with one axis. */
export class NDArray {
  __host__ = true;

  /** @param {Float64Array} data @param {number} [columns] */
  constructor(data, columns = 0) {
    this.data = data;
    this.columns = columns;
  }

  get rows() {
    return this.columns ? this.data.length / this.columns : this.data.length;
  }

  get T() {
    return stacked(this.columns, this.rows, (i, j) => this.data[j * this.columns + i]);
  }

  /** @returns {number[]} */
  tolist() {
    return [...this.data];
  }

  *[Symbol.iterator]() {
    if (!this.columns) yield* this.data;
    else
      for (let i = 0; i < this.rows; i++) yield new NDArray(this.data.slice(i * this.columns, (i + 1) * this.columns));
  }

  /** The sums along the last axis. */
  sum() {
    const rows = /** @type {NDArray[]} */ ([...this]);
    return new NDArray(Float64Array.from(rows, (row) => row.data.reduce((a, b) => a + b, 0)));
  }

  /** @param {[Slice, number | Slice | null]} key x[:, j], x[:, j:] or x[:, None] @returns {NDArray} */
  __item__([, column]) {
    if (column === null) return new NDArray(this.data, 1);
    if (column instanceof Slice)
      return stacked(this.rows, this.columns - column.start, (i, j) => this.data[i * this.columns + j + column.start]);
    return new NDArray(Float64Array.from({ length: this.rows }, (_, i) => this.data[i * this.columns + column]));
  }

  /** Set rows. @param {number[]} rows @param {NDArray} values with as many rows */
  __set_item__(rows, values) {
    const width = this.columns || 1;
    rows.forEach((row, i) => this.data.set(values.data.subarray(i * width, (i + 1) * width), row * width));
  }

  /** Apply an operation to numbers or arrays whose shapes broadcast. @param {Any} a @param {Any} b @param {(x: number, y: number) => number} operation @returns {NDArray} */
  __binary__(a, b, operation) {
    const [x, y] = [a, b].map((each) => (each instanceof NDArray ? each : new NDArray(Float64Array.of(Number(each)))));
    const size = Math.max(x.data.length, y.data.length);
    const columns = Math.max(x.columns, y.columns);
    const [p, q] = [x, y].map((each) => broadcastIndex(each, size, columns));
    return new NDArray(
      Float64Array.from({ length: size }, (_, i) => operation(x.data[p(i)], y.data[q(i)])),
      columns,
    );
  }
}

/** @param {NDArray} x @param {number} size @param {number} columns @returns {(i: number) => number} the index into `x` for an index into the broadcast result */
function broadcastIndex(x, size, columns) {
  if (x.data.length === size) return (i) => i;
  if (x.data.length === 1) return () => 0;
  if (x.columns === 1) return (i) => Math.floor(i / columns);
  if (x.columns === 0 && x.data.length === columns) return (i) => i % columns;
  throw new RangeError("the shapes do not broadcast");
}

/** @param {number} rows @param {number} columns @param {(i: number, j: number) => number} element */
function stacked(rows, columns, element) {
  return new NDArray(
    Float64Array.from({ length: rows * columns }, (_, at) => element(Math.floor(at / columns), at % columns)),
    columns,
  );
}

/** @param {(x: number, y: number) => number} operation @returns {(x: Any, y: Any) => NDArray} */
const elementwise = (operation) => (x, y) => (x instanceof NDArray ? x : y).__binary__(x, y, operation);
/** @param {(x: number) => number} f @returns {(x: NDArray) => NDArray} */
const each = (f) => (x) => new NDArray(x.data.map(f), x.columns);

signed(NDArray.prototype.sum, "axis");

export const numpy = {
  add: {
    /** @param {NDArray} total @param {number[]} indices @param {NDArray} values */
    at: (total, indices, values) => indices.forEach((index, i) => (total.data[index] += values.data[i])),
  },
  /** @param {NDArray} x @returns {number[]} the index of each row's maximum */
  argmax: (x) => /** @type {NDArray[]} */ ([...x]).map(({ data }) => data.indexOf(Math.max(...data))),
  /** @param {Any} x a list of numbers or of rows */
  array(x) {
    const rows = list(x);
    if (!rows.length || typeof rows[0] !== "object") return new NDArray(Float64Array.from(rows, Number));
    const width = list(rows[0]).length;
    return new NDArray(Float64Array.from(rows.flatMap(list), Number), width);
  },
  ceil: each(Math.ceil),
  /** @param {NDArray} x @param {number} low @param {number} high */
  clip: (x, low, high) => each((value) => Math.min(Math.max(value, low), high))(x),
  /** @param {NDArray[]} parts with equal numbers of rows */
  column_stack(parts) {
    const rows = Array.from({ length: parts[0].rows }, (_, i) =>
      parts.flatMap(({ data, columns }) => [...data.slice(i * (columns || 1), (i + 1) * (columns || 1))]),
    );
    return numpy.array(rows);
  },
  exp: each(Math.exp),
  log: each(Math.log),
  maximum: elementwise(Math.max),
  minimum: elementwise(Math.min),
  /** @param {NDArray[]} columns */
  stack: (columns) => numpy.column_stack(columns),
  /** @param {number | [number, number]} shape */
  zeros: (shape) =>
    typeof shape === "number"
      ? new NDArray(new Float64Array(shape))
      : new NDArray(new Float64Array(shape[0] * shape[1]), shape[1]),
};
