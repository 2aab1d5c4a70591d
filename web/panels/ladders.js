// @ts-check
/** The ladders of the other ops: problems whose results are known from Python, and exhibits, which their rows check. */

import { ladder } from "../bench.js";
import { exhibit } from "../exhibits.js";
import { Rung, knownLadder, taskOf } from "../prepared.js";
import { available, stepOf } from "./ladder.js";

/** @import { Bench } from "../bench.js" */
/** @import { App } from "../main.js" */
/** @import { Source } from "./ladder.js" */

/** @param {App} app @param {number} at among index.ladders and, after these, the exhibits that are checked @returns {Promise<Source>} */
export async function ladderOf(app, at) {
  const { ladders, shown } = app.bundle.index;
  if (at < ladders.length) return prepared(app, at);
  const places = shown.flatMap(([, checked], i) => (checked ? [i] : []));
  return exhibited(app, places[at - ladders.length]);
}

/** @param {App} app @param {number} number @returns {Promise<Source>} a ladder of problems whose results are known from Python, for this kind of device */
async function prepared(app, number) {
  const { device, bundle } = app;
  const { first, on, sizes, dtypes } = await knownLadder(device, number);
  return {
    stages: first.stages.map((rung) => stepOf(bundle, rung, first.problem.op, dtypes[0][0])),
    sizes,
    usual: () => sizes[device.info.kind === "cpu" ? 1 : sizes.length - 1][0],
    dtypes,
    prepare(size, dtype) {
      const known = on(size, dtype);
      const { problem, stages: kernels } = known;
      const records = (/** @type {Bench} */ bench, /** @type {(i: number) => void} */ onStart) =>
        ladder(bench, kernels, problem, () => known.load(), onStart);
      return { kernels, problem, records };
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
