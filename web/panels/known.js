/** The subjects of the other ops: problems whose results are known from Python, and exhibits, which their rows check. */

import { step } from "../bundle/core.js";
import { exhibit } from "../exhibits.js";
import { Rung, knownLadder, taskOf } from "../prepared.js";
import { available, runOf } from "./subjects.js";

/** @import { App } from "../main.js" */
/** @import { Subject } from "./subjects.js" */

/** @param {App} app @param {[string, string][]} sizes @returns {() => [string, string]} the usual ones: a CPU's are small */
function usual({ device }, sizes) {
  const [ladder, stage] = device.info.kind === "cpu" ? [1, 0] : [sizes.length - 1, 1];
  const at = (/** @type {number} */ i) => sizes[Math.min(i, sizes.length - 1)][0];
  return () => [at(ladder), at(stage)];
}

/** @param {App} app @param {number} number in index.ladders @returns {Promise<Subject>} problems whose results are known from Python, for this kind of device */
export async function known(app, number) {
  const { device, bundle } = app;
  const { first, on, others, sizes, dtypes } = await knownLadder(device, number);
  const { op } = first.problem;
  const names = first.stages.map(({ name }) => name);
  return {
    op,
    steps: first.stages.map(({ name, label, summary }) => step(op, name, label, summary, dtypes[0][0])),
    stages: [...new Set([...names, ...others])],
    first: names[names.length - 1],
    sizes,
    usual: usual(app, sizes),
    dtypes,
    problem: (size, dtype) => on(size, dtype).known.problem,
    kernel(stage, size, dtype) {
      const rung = on(size, dtype).stages.find(({ name }) => name === stage);
      return rung ? rung.kernel : device.choices.fitted(bundle.kernel(stage, {}, op), on(size, dtype).known.problem);
    },
    ladder(size, dtype) {
      const found = on(size, dtype);
      return runOf(found.stages, found.problem, () => found.load());
    },
    measure: (bench, kernel, size, dtype) => bench.measure(new Rung(kernel), on(size, dtype).load()),
  };
}

/** @param {App} app @param {number} number in index.shown @returns {Promise<Subject>} an exhibit of an op's row */
export async function exhibited(app, number) {
  const { device, bundle } = app;
  const { op, stages, sizes, problem, load } = await exhibit(device, number);
  const kernel = (/** @type {string} */ stage) => bundle.kernel(stage, {}, op);
  const suits = (/** @type {string} */ dtype) =>
    stages.some((stage) => kernel(stage).of.unsuited(problem(sizes[0][0], dtype)) === null);
  return {
    op,
    steps: stages.map((name) => step(op, name, name, "", "")),
    stages,
    first: stages[0],
    sizes,
    usual: usual(app, sizes),
    dtypes: available(app).filter(suits),
    problem,
    kernel,
    ladder(size, dtype) {
      const kernels = stages.map((name) => new Rung(kernel(name)));
      return runOf(kernels, taskOf(problem(size, dtype)), () =>
        /** @type {NonNullable<typeof load>} */ (load)(size, dtype),
      );
    },
    measure: load && ((bench, kernel, size, dtype) => bench.measure(new Rung(kernel), load(size, dtype))),
  };
}
