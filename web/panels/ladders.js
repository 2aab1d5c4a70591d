// @ts-check
/** The ladders of the other ops: problems whose results are known from Python, and exhibits, which their rows check. */

import { ladder } from "../bench.js";
import { exhibit } from "../exhibits.js";
import { shape } from "../ops.js";
import { PreparedCase, Rung, taskOf } from "../prepared.js";
import { available, stepOf } from "./ladder.js";

/** @typedef {import("../main.js").App} App */
/** @typedef {import("./ladder.js").Source} Source */

/** @param {App} app @param {number} at among index.ladders and, after these, the exhibits that are checked @returns {Promise<Source>} */
export async function ladderOf(app, at) {
  const { ladders, shown } = app.bundle.index;
  if (at < ladders.length) return prepared(app, at);
  const places = shown.flatMap(([, checked], i) => (checked ? [i] : []));
  return exhibited(app, places[at - ladders.length]);
}

/** @param {App} app @param {number} number @returns {Promise<Source>} a ladder of problems whose results are known from Python, for this kind of device */
async function prepared(app, number) {
  const { device } = app;
  /** @type {import("../prepared.js").KnownLadder[]} */
  const ladders = (await app.bundle.module("ladders.js")).default;
  const known = ladders[number][device.info.kind];
  const cases = known.map((each) => new PreparedCase(device, each, known));
  const problems = cases.map(({ problem }) => problem);
  const stored = available(app).map(([name]) => name);
  const dtypes = [...new Set(problems.map((p) => p.dtype))].filter(
    (dtype) => !(dtype in app.bundle.index.dtypes) || stored.includes(dtype),
  );
  const sizes = [...new Set(problems.map(shape))];
  return {
    stages: cases[0].stages.map((rung) => stepOf(app.bundle, rung, problems[0].op, dtypes[0])),
    sizes: sizes.map((size) => [size, size]),
    usual: () => (device.info.kind === "cpu" ? sizes[1] : sizes[sizes.length - 1]),
    dtypes: dtypes.map((dtype) => [dtype, dtype]),
    prepare(size, dtype) {
      const on = /** @type {PreparedCase} */ (
        cases.find(({ problem }) => shape(problem) === size && problem.dtype === dtype)
      );
      const { problem, stages: kernels } = on;
      return {
        kernels,
        problem,
        records: (bench, onStart) => ladder(bench, kernels, problem, () => on.load(), onStart),
      };
    },
  };
}

/** @param {App} app @param {number} number in index.shown @returns {Promise<Source>} a ladder of problems that an op's row checks */
async function exhibited(app, number) {
  const { device, bundle } = app;
  const { op, stages, sizes, problem, load } = await exhibit(device, number);
  const kernels = stages.map((name) => new Rung(bundle.kernel(name, {}, op)));
  return {
    stages: stages.map((name) => stepOf(bundle, name, op)),
    sizes,
    usual: () => sizes[device.info.kind === "cpu" ? Math.min(1, sizes.length - 1) : sizes.length - 1][0],
    dtypes: available(app),
    prepare(size, dtype) {
      const task = taskOf(problem(size, dtype));
      const prepare = () => /** @type {NonNullable<typeof load>} */ (load)(size, dtype);
      return { kernels, problem: task, records: (bench, onStart) => ladder(bench, kernels, task, prepare, onStart) };
    },
  };
}
