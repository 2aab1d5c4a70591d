// @ts-check
/** The ops of the Explain panel: their stages, problems of a few sizes, and how to run a stage on one of them. */

import { Operands } from "../bench.js";
import { exhibit } from "../exhibits.js";
import { shape } from "../ops.js";
import { Rung, knownLadder } from "../prepared.js";
import { available } from "./ladder.js";

/** @import { App } from "../main.js" */
/** @import { Kernel, RunRecord } from "../webmm.js" */
/** @import { Bench } from "../bench.js" */
/** @import { Python } from "../bundle.js" */
/**
 * The stages of an op, and the problems to show them on; `measure` is null if this page cannot run them.
 * @typedef {{
 *   op: string, stages: string[], first: string, sizes: [string, string][], usual: string, dtypes: [string, string][],
 *   kernel: (stage: string, size: string, dtype: string) => Kernel, problem: (size: string, dtype: string) => Python,
 *   offered?: (stage: string) => Kernel[] | undefined,
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

/** @param {App} app @returns {{title: string, load: () => Promise<Explained>}[]} */
export function explained(app) {
  const { ladders, explained, shown: exhibits } = app.bundle.index;
  return [
    { title: "Matrix product", load: async () => products(app) },
    ...explained.map((i) => ({ title: ladders[i], load: () => known(app, i) })),
    ...exhibits.map(([title], i) => ({ title, load: () => shown(app, i) })),
  ];
}

/** @param {App} app @returns {Explained} */
export function products(app) {
  const { bundle, device } = app;
  const sizeOf = (/** @type {string} */ size) => SIZES[Number(size)];
  return {
    op: "gemm",
    stages: bundle.stages,
    first: "pipelined",
    sizes: SIZES.map(([m, n, k], i) => [String(i), shape({ m, n, k })]),
    usual: device.info.kind === "cpu" ? "1" : "4",
    dtypes: available(app),
    kernel: (stage) => device.stage(stage),
    offered: (stage) => device.kernels.get(stage),
    problem(size, dtype) {
      const [m, n, k] = sizeOf(size);
      return bundle.problem({ m, n, k, dtype: /** @type {any} */ (dtype) });
    },
    measure(bench, kernel, size, dtype) {
      const [m, n, k] = sizeOf(size);
      return measured(bench, kernel, Operands.random(device, { m, n, k, dtype: /** @type {any} */ (dtype) }));
    },
  };
}

/** @param {App} app @param {number} number of the ladder @returns {Promise<Explained>} the ladder's problems, whose results are known from Python */
async function known({ bundle, device }, number) {
  const { first, on, others, sizes, dtypes } = await knownLadder(device, number);
  const { op } = first.problem;
  const shown = first.stages.map(({ name }) => name);
  return {
    op,
    stages: [...new Set([...shown, ...others])],
    first: shown[shown.length - 1],
    sizes,
    usual: sizes[Math.min(1, sizes.length - 1)][0],
    dtypes,
    kernel(stage, size, dtype) {
      const rung = on(size, dtype).stages.find(({ name }) => name === stage);
      return rung ? rung.kernel : device.choices.fitted(bundle.kernel(stage, {}, op), on(size, dtype).known.problem);
    },
    problem: (size, dtype) => on(size, dtype).known.problem,
    measure: (bench, kernel, size, dtype) => measured(bench, new Rung(kernel), on(size, dtype).load()),
  };
}

/** @param {App} app @param {number} number in index.shown @returns {Promise<Explained>} an exhibit of an op's row */
async function shown(app, number) {
  const { bundle, device } = app;
  const { op, stages, sizes, problem, load } = await exhibit(device, number);
  const kernel = (/** @type {string} */ stage) => bundle.kernel(stage, {}, op);
  const suits = (/** @type {string} */ dtype) =>
    stages.some((stage) => kernel(stage).of.unsuited(problem(sizes[0][0], dtype)) === null);
  return {
    op,
    stages,
    first: stages[0],
    sizes,
    usual: sizes[device.info.kind === "cpu" || sizes.length === 1 ? 0 : 1][0],
    dtypes: available(app).filter(([dtype]) => suits(dtype)),
    kernel,
    problem,
    measure: load && ((bench, kernel, size, dtype) => measured(bench, new Rung(kernel), load(size, dtype))),
  };
}

/**
 * Check and time a kernel on a case, which is freed at the end.
 * @template {import("../bench.js").Stage} K
 * @param {Bench} bench @param {K} kernel @param {Promise<import("../bench.js").Case<K>>} loading
 */
async function measured(bench, kernel, loading) {
  const on = await loading;
  try {
    return await bench.run(kernel, on);
  } finally {
    on.free();
  }
}
