/** The subjects of the other ops: problems whose results are known from Python, and exhibits, which their rows check. */

import { taskOf } from "../bench.js";
import { size_of, step } from "../bundle/core.js";
import { numbered } from "../dom.js";
import { rowCase } from "../exhibits.js";
import { PreparedCase } from "../prepared.js";

/** @import { App } from "../main.js" */
/** @import { Known } from "../prepared.js" */
/** @import { Subject } from "./subjects.js" */

/** @param {App} app @param {readonly unknown[]} sizes @returns {Subject["usual"]} a CPU's are small */
function usual({ device }, { length }) {
  const second = Math.min(1, length - 1);
  return () => (device.info.kind === "cpu" ? [second, 0] : [length - 1, second]);
}

/** @param {App} app @param {number} number of the ladder @returns {Promise<Subject>} problems whose results are known from Python, for this kind of device */
export async function known(app, number) {
  const { device, bundle } = app;
  /** @type {{others: string[], gpu: Known[], cpu: Known[]}} */
  const { others, ...problems } = (await bundle.module("ladders.js")).default[number];
  const [floats, supported] = [bundle.index.dtypes, app.dtypes]; // others, such as float64, are made of integers
  const able = (/** @type {string} */ dtype) => !(dtype in floats) || supported.includes(dtype);
  const all = problems[device.info.kind].filter(({ problem }) => able(problem.dtype.name));
  const cases = all.map((each) => new PreparedCase(device, each, all));
  const on = (/** @type {string} */ size, /** @type {string} */ dtype) =>
    /** @type {PreparedCase} */ (cases.find(({ problem }) => size_of(problem) === size && problem.dtype === dtype));
  const [sizes, dtypes] = [size_of, (/** @type {{dtype: string}} */ { dtype }) => dtype].map((name) => [
    ...new Set(cases.map(({ problem }) => name(problem))),
  ]);
  const [first] = cases;
  const { op } = first.problem;
  const names = first.stages.map(({ name }) => name);
  return {
    op,
    steps: first.stages.map(({ name, label, of }) => step(op, name, label, of.summary, dtypes[0])),
    stages: [...new Set([...names, ...others])],
    first: names[names.length - 1],
    sizes,
    usual: usual(app, sizes),
    dtypes,
    problem: (size, dtype) => on(size, dtype).of,
    kernel(stage, size, dtype) {
      const { stages, of } = on(size, dtype);
      const rung = stages.find(({ name }) => name === stage) ?? bundle.kernel(stage, {}, op);
      return bundle.wrap(device.core.fitted(rung.of, of, device.choices.now()));
    },
    kernels: (size, dtype) => on(size, dtype).stages,
    load: (size, dtype) => on(size, dtype).load(),
    checked: true,
  };
}

/** @param {App} app @param {number} number in `SHOWN` @returns {Promise<Subject>} stages of an op, on problems with random inputs that its row checks */
export async function exhibited(app, number) {
  const { device, bundle } = app;
  const { op, exhibit, checked } = (await bundle.module("ops.js")).SHOWN[number];
  const row = await bundle.row(op, exhibit.variant);
  /** @type {[number, number, number][]} */
  const lengths = exhibit.sizes.get(device.info.kind);
  /** @type {string[]} */
  const stages = exhibit.stages.length ? exhibit.stages : [...bundle.core.STAGES.get(op).keys()];
  /** @type {Subject["problem"]} */
  const problem = (size, dtype) => row.problem(lengths[Number(size)], dtype);
  const kernel = (/** @type {string} */ stage) => bundle.kernel(stage, {}, op);
  const sizes = numbered(lengths.map((_, i) => size_of(taskOf(problem(String(i), "float32")))));
  const suits = (/** @type {string} */ dtype) =>
    stages.some((stage) => kernel(stage).of.unsuited(problem("0", dtype)) === null);
  return {
    op,
    steps: stages.map((name) => step(op, name, name, "", "")),
    stages,
    first: stages[0],
    sizes,
    usual: usual(app, sizes),
    dtypes: app.dtypes.filter(suits),
    problem,
    kernel,
    kernels: () => stages.map(kernel),
    load: (size, dtype) => rowCase(device, row, problem(size, dtype)),
    checked,
  };
}
