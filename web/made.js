// @ts-check
/** Cases of bench.js for column sums, row functions and GELU: random inputs, with results checked against the CPU's. */

import { gelu } from "./check.js";
import { taskOf } from "./prepared.js";
import { HostArray, Matrix } from "./webmm.js";

/** @typedef {import("./webmm.js").Device} Device */
/** @typedef {import("./webmm.js").DeviceArray} DeviceArray */
/** @typedef {import("./prepared.js").Rung} Rung */
/** @typedef {import("./bench.js").Verdict} Verdict */
/** @typedef {"columns" | "softmax" | "rms_norm" | "gelu"} Meaning */

const F32_EPS = 2 ** -23;
const APPROXIMATION = 2 ** -12; // error that is allowed for a driver's exp and similar functions
const EPSILON = 1e-5; // added to mean squares, as in the problems of panels/ops.js

/** A problem with one input, whose expected result is computed on the CPU. */
export class MadeCase {
  /** @param {Device} device @param {any} problem translated @param {DeviceArray} x @param {{expected: Float64Array, scale: Float64Array}} known */
  constructor(device, problem, x, known) {
    this.device = device;
    this.of = problem;
    this.problem = taskOf(problem);
    this.x = x;
    this.known = known;
  }

  /** @param {Device} device @param {any} problem @param {Meaning} meaning @param {number} rows @param {number} columns */
  static async random(device, problem, meaning, rows, columns) {
    const host = Matrix.random(rows, columns, 1, problem.dtype.name);
    return new MadeCase(device, problem, await device.array(host), MEANINGS[meaning](host.floats(), rows, columns));
  }

  free() {
    this.x.free();
  }

  /** @param {Rung} rung @returns {string | null} */
  reason(rung) {
    return this.device.reason(rung.kernel, this.of);
  }

  /** No probes are needed, since these problems take little time. @returns {never[]} */
  probes() {
    return [];
  }

  /** @param {Rung} rung */
  async open(rung) {
    const { device, known } = this;
    const { name } = this.of.out_dtype ?? this.of.dtype;
    const blank = HostArray.from(new Float32Array(known.expected.length).fill(NaN)).as(name);
    const y = await device.array(blank);
    try {
      const launch = await device.launches.get(rung.kernel.of, this.of, [this.x, y]);
      return { launch, verdict: () => this.#verdict(y), free: () => y.free() };
    } catch (error) {
      y.free();
      throw error;
    }
  }

  /** @param {DeviceArray} y @returns {Promise<Verdict>} */
  async #verdict(y) {
    const { expected, scale } = this.known;
    const { eps } = this.device.bundle.index.dtypes[y.dtype];
    const got = (await y.read()).floats();
    const worst = got.reduce((most, value, i) => {
      const error = Math.abs(value - expected[i]) / scale[i];
      return error <= most ? most : Number.isNaN(error) ? Infinity : error;
    }, 0);
    const error_bound = APPROXIMATION + eps;
    const wrong =
      worst <= error_bound
        ? null
        : `the largest relative error is ${worst.toExponential(2)}; rounding explains at most ${error_bound.toExponential(2)}`;
    return { wrong, max_error: worst, error_bound };
  }
}

/** The expected results, and the scales that errors are divided by. @type {Record<Meaning, (x: Float32Array, rows: number, columns: number) => {expected: Float64Array, scale: Float64Array}>} */
const MEANINGS = {
  columns(x, rows, columns) {
    const expected = new Float64Array(columns);
    const scale = new Float64Array(columns);
    for (let i = 0; i < x.length; i++) {
      expected[i % columns] += x[i];
      scale[i % columns] += Math.abs(x[i]) * F32_EPS * 32; // the bound of tree sums in webmm/measure/verify.py
    }
    return { expected, scale: scale.map((each) => each / APPROXIMATION) };
  },
  softmax: (x, rows, columns) =>
    ofRows(x, columns, (row) => {
      const exponents = Float64Array.from(row, Math.exp);
      const sum = exponents.reduce((total, each) => total + each, 0);
      return exponents.map((each) => each / sum);
    }),
  rms_norm: (x, rows, columns) =>
    ofRows(x, columns, (row) => {
      const square = row.reduce((total, each) => total + each * each, 0) / columns;
      return Float64Array.from(row, (each) => each / Math.sqrt(square + EPSILON));
    }),
  gelu: (x) => ({ expected: Float64Array.from(x, gelu), scale: Float64Array.from(x, (each) => Math.abs(each) + 1) }),
};

/** @param {Float32Array} x @param {number} columns @param {(row: Float32Array) => Float64Array} function_ */
function ofRows(x, columns, function_) {
  const expected = new Float64Array(x.length);
  for (let at = 0; at < x.length; at += columns) expected.set(function_(x.subarray(at, at + columns)), at);
  return { expected, scale: expected.map((each) => Math.abs(each) + F32_EPS) };
}
