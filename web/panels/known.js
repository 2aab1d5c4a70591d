/** The subjects of the other ops: problems whose results are known from Python, and exhibits, which their rows check. */

import { exhibited as ofRow, prepared } from "../bundle/subjects.js";
import { rowCase } from "../exhibits.js";
import { PreparedCase, Rung } from "../prepared.js";

/** @import { App } from "../main.js" */
/** @import { Known } from "../prepared.js" */
/** @import { Python } from "../webmm.js" */
/** @import { Subject } from "./subjects.js" */

/** @param {App} app @param {number} number of the ladder @returns {Promise<Subject>} problems whose results are known from Python, for this kind of device */
export async function known({ device, bundle }, number) {
  const { others, ...problems } = (await bundle.module("ladders.js")).default[number];
  /** @type {Known[]} */
  const all = problems[device.info.kind];
  const [given, kernels] = [all.map(({ problem }) => problem), all.map((each) => each.kernels)];
  return Object.assign(prepared(given, kernels, others, device.choices.now()), {
    load: (/** @type {Python} */ problem) => new PreparedCase(device, all[given.indexOf(problem)], all).load(),
    made: (/** @type {Python} */ of) => new Rung(bundle, of),
  });
}

/** @param {App} app @param {number} number in `SHOWN` @returns {Promise<Subject>} stages of an op, on problems with random inputs that its row checks */
export async function exhibited({ device, bundle }, number) {
  const shown = (await bundle.module("ops.js")).SHOWN[number];
  const row = await bundle.row(shown.op, shown.exhibit.variant);
  return Object.assign(ofRow(shown, row, device.choices.now()), {
    load: (/** @type {Python} */ problem) => rowCase(device, row, problem),
  });
}
