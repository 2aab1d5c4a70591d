// @ts-check
/** The ops of the Explain panel: their stages, problems of a few sizes, and how to run a stage on one of them. */

import { Operands } from "../bench.js";
import { shape } from "../dom.js";
import { MadeCase } from "../made.js";
import { PreparedCase, Rung } from "../prepared.js";
import { make } from "../python.js";
import { available } from "./ladder.js";

/** @typedef {import("../main.js").App} App */
/** @typedef {import("../webmm.js").Kernel} Kernel */
/** @typedef {import("../webmm.js").RunRecord} RunRecord */
/** @typedef {import("../bench.js").Bench} Bench */
/** @typedef {import("../bundle.js").Python} Python */
/**
 * The stages of an op, and the problems to show them on; `measure` is null if this page cannot run them.
 * @typedef {{
 *   stages: string[], first: string, sizes: [string, string][], usual: string, dtypes: [string, string][],
 *   kernel: (stage: string, size: string, dtype: string) => Kernel, problem: (size: string, dtype: string) => Python,
 *   measure: ((bench: Bench, kernel: Kernel, size: string, dtype: string) => Promise<RunRecord>) | null,
 * }} Explained
 */

const SIZES = [
  [64, 64, 64],
  [128, 128, 128],
  [256, 256, 256],
  [512, 512, 512],
  [1024, 1024, 1024],
  [2048, 2048, 2048],
  [4096, 4096, 4096],
  [333, 257, 129],
];
const ROWS = [
  [64, 1024],
  [512, 8192],
  [128, 32768],
];
const LADDERS = 4; // the first of index.ladders; the others have the same stages

/** @param {App} app @returns {{title: string, load: () => Explained | Promise<Explained>}[]} */
export function explained(app) {
  const ladders = app.bundle.index.ladders.slice(0, LADDERS);
  return [
    { title: "Matrix product", load: () => products(app) },
    ...ladders.map((title, i) => ({ title, load: () => known(app, i) })),
    ...Object.entries(MADE).map(([title, each]) => ({ title, load: () => made(app, each) })),
  ];
}

/** @param {App} app @returns {Explained} */
export function products(app) {
  const { bundle, device } = app;
  const sizeOf = (/** @type {string} */ size) => SIZES[Number(size)];
  return {
    stages: bundle.stages,
    first: "pipelined",
    sizes: SIZES.map(([m, n, k], i) => [String(i), shape({ m, n, k })]),
    usual: device.info.kind === "cpu" ? "1" : "4",
    dtypes: available(app),
    kernel: (stage) => device.stage(stage),
    problem(size, dtype) {
      const [m, n, k] = sizeOf(size);
      return bundle.problem({ m, n, k, dtype: /** @type {any} */ (dtype) });
    },
    async measure(bench, kernel, size, dtype) {
      const [m, n, k] = sizeOf(size);
      const operands = await Operands.random(device, { m, n, k, dtype: /** @type {any} */ (dtype) });
      try {
        return await bench.run(kernel, operands);
      } finally {
        operands.free();
      }
    },
  };
}

/** @param {App} app @param {number} number of the ladder @returns {Promise<Explained>} the ladder's problems, whose results are known from Python */
async function known({ bundle, device }, number) {
  /** @type {import("../prepared.js").KnownLadder[]} */
  const ladders = (await bundle.module("ladders.js")).default;
  const all = ladders[number][device.info.kind].filter(({ problem }) =>
    [...problem.dtype.features].every((feature) => device.features.has(feature)),
  );
  const cases = all.map((each) => new PreparedCase(device, each, all));
  const on = (/** @type {string} */ size, /** @type {string} */ dtype) =>
    /** @type {PreparedCase} */ (cases.find(({ problem }) => shape(problem) === size && problem.dtype === dtype));
  const op = all[0].problem.op;
  const shown = all[0].kernels.map(({ name }) => name);
  const others = op === "quantized" || op === "weights" ? [...bundle.core.STAGES.get(op).keys()] : [];
  const sizes = [...new Set(cases.map(({ problem }) => shape(problem)))];
  const dtypes = [...new Set(cases.map(({ problem }) => problem.dtype))];
  return {
    stages: [...new Set([...shown, ...others])],
    first: shown[shown.length - 1],
    sizes: sizes.map((size) => [size, size]),
    usual: sizes[Math.min(1, sizes.length - 1)],
    dtypes: dtypes.map((dtype) => [dtype, dtype]),
    kernel(stage, size, dtype) {
      const rung = on(size, dtype).stages.find(({ name }) => name === stage);
      return rung ? rung.kernel : bundle.kernel(stage, {}, op);
    },
    problem: (size, dtype) => on(size, dtype).known.problem,
    async measure(bench, kernel, size, dtype) {
      const loaded = await on(size, dtype).load();
      try {
        return await bench.run(new Rung(kernel), loaded);
      } finally {
        loaded.free();
      }
    },
  };
}

/** Problems that are defined here and checked in JavaScript. @typedef {{op: string, stages: string[], of: "columns" | "softmax" | "rms_norm" | "gelu" | "high"}} Made */
/** @type {Record<string, Made>} */
const MADE = {
  "Column sums": { op: "reduce", stages: ["columns", "columns_two_pass"], of: "columns" },
  "Row softmax": { op: "normalise", stages: ["rows", "strips"], of: "softmax" },
  "Row RMS normalisation": { op: "normalise", stages: ["rows"], of: "rms_norm" },
  GELU: { op: "elementwise", stages: ["map"], of: "gelu" },
  "Matrix product, precision “high”": { op: "gemm", stages: ["matrix_unit_high"], of: "high" },
};

/** @param {App} app @param {Made} each @returns {Explained} */
function made(app, { op, stages, of }) {
  const { bundle, device } = app;
  const { core } = bundle;
  const sizeOf = (/** @type {string} */ size) => ROWS[Number(size)];
  const high = of === "high";
  const problem = (/** @type {string} */ size, /** @type {string} */ name) => {
    const [rows, columns] = sizeOf(size);
    const dtype = core.DTYPES.get(name);
    if (of === "columns")
      return make(core.Reduction, ["sum", 1, rows, columns, dtype, dtype, new core.Span(0, columns, 1)], {});
    if (of === "gelu") return new core.Elementwise("gelu", rows * columns, dtype);
    if (high) return make(core.gemm, [rows, rows, columns], { precision: "high" });
    return make(
      core.Normalisation,
      [core.NORMALISATIONS.get(of).operation, rows, columns, 1, dtype, dtype, core.Span.dense(columns, 1), 0],
      { function: of, epsilon: of === "softmax" ? 0 : 1e-5 },
    );
  };
  return {
    stages,
    first: stages[0],
    sizes: ROWS.map(([rows, columns], i) => [
      String(i),
      high ? shape({ m: rows, n: rows, k: columns }) : `${rows}×${columns}`,
    ]),
    usual: device.info.kind === "cpu" ? "0" : "1",
    dtypes: high ? [["float32", "float32"]] : available(app),
    kernel: (stage) => bundle.kernel(stage, {}, op),
    problem,
    measure: high
      ? null
      : async (bench, kernel, size, dtype) => {
          const [rows, columns] = sizeOf(size);
          const operands = await MadeCase.random(device, problem(size, dtype), /** @type {any} */ (of), rows, columns);
          try {
            return await bench.run(new Rung(kernel), operands);
          } finally {
            operands.free();
          }
        },
  };
}
