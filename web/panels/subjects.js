/** What the ladder and the Explain panel are about: an op's stages, its problems of a few sizes, and how to run them. */

import { Operands, taskOf } from "../bench.js";
import { products as described } from "../bundle/core.js";
import { all, numbered, options, say } from "../dom.js";
import { inWords } from "../webmm.js";

/** @import { App } from "../main.js" */
/** @import { Inputs } from "../bench.js" */
/** @import { Kernel, Python } from "../webmm.js" */
/**
 * A `Subject` of webmm/page/subjects.py; `load` makes the inputs of one of its problems, `made` a kernel of its ladder, and
 * `offered` has the page's configurations of a stage.
 * @typedef {import("../bundle/core.js").Subject & {
 *   load: (problem: Python) => Promise<Inputs>, made?: (of: Python) => Kernel, offered?: (stage: string) => Kernel[] | undefined,
 * }} Subject
 */

/**
 * Let a panel's list choose among its subjects; the first takes the place of one that cannot be loaded. Meanwhile `others` are disabled, too.
 * @param {App} app @param {"ladder" | "explain"} panel @param {HTMLElement} message @param {(subject: Subject) => unknown} show
 * @param {HTMLButtonElement[]} [others] @returns loads a subject by its number
 */
export function choosing(app, panel, message, show, others = []) {
  const [list] = all("select", `${panel}-op`);
  const lock = (/** @type {boolean} */ on) => [list, ...others].forEach((control) => (control.disabled = on));
  const choices = app.bundle.index.subjects[panel];
  const load = async (/** @type {number} */ i) => {
    const [, kind, number] = choices[i];
    return kind === "products" ? products(app) : (await import("./known.js"))[kind](app, number);
  };
  list.replaceChildren(...options(numbered(choices.map(([title]) => title))));
  list.onchange = async () => {
    lock(true);
    try {
      show(await load(list.selectedIndex));
    } catch (error) {
      list.selectedIndex = 0;
      show(await load(0));
      say(message, inWords(error), true);
    }
    lock(false);
  };
  return load;
}

/** @param {App} app @returns {Subject} floating-point matrix products, checked in JavaScript */
export const products = ({ device }) =>
  Object.assign(described(device.choices.now()), {
    load: (/** @type {Python} */ problem) => Operands.random(device, /** @type {any} */ (taskOf(problem))),
    offered: (/** @type {string} */ stage) => device.kernels.get(stage),
  });
