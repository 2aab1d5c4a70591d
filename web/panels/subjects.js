/** What the ladder and the Explain panel are about: an op's stages, its problems of a few sizes, and how to run them. */

import { Operands } from "../bench.js";
import { size_of, step } from "../bundle/core.js";
import { all, numbered, options, say } from "../dom.js";
import { inWords } from "../webmm.js";

/** @import { App } from "../main.js" */
/** @import { Inputs } from "../bench.js" */
/** @import { Step } from "../charts.js" */
/** @import { Kernel, Problem, Python } from "../webmm.js" */
/**
 * An op: `steps` of its ladder, whose `kernels` are run, and all its `stages`. Sizes and element types are options of lists;
 * `usual` are the places of the sizes to begin with, of the ladder and of a stage. `checked` tells whether the page can run and check the stages.
 * @typedef {{
 *   op: string, steps: Step[], stages: string[], first: string, sizes: (string | [string, string])[],
 *   usual: () => [ladder: number, stage: number], dtypes: string[],
 *   problem: (size: string, dtype: string) => Python, kernel: (stage: string, size: string, dtype: string) => Kernel,
 *   kernels: (size: string, dtype: string) => Kernel[], offered?: (stage: string) => Kernel[] | undefined,
 *   load: (size: string, dtype: string) => Promise<Inputs>, checked: boolean,
 * }} Subject
 */

const SIZES = [64, 128, 256, 512, 1024, 2048, 4096, 8192];
const UNEVEN = [333, 257, 129]; // divided by no tile

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
export function products(app) {
  const { device, bundle } = app;
  const task = (/** @type {string} */ size, /** @type {string} */ dtype) => {
    const [m, n = m, k = m] = size.split("×").map(Number);
    return /** @type {Problem} */ ({ m, n, k, dtype });
  };
  const [first, small] = device.info.kind === "cpu" ? [256, 128] : [1024, 1024];
  return {
    op: "gemm",
    steps: bundle.stages.map((name) => step("gemm", name, name, "", "")),
    stages: bundle.stages,
    first: "pipelined",
    sizes: [...SIZES.map(String), UNEVEN.join("×")].map((size) => [size, size_of(task(size, ""))]),
    usual: () => [app.speed ? quick(app.speed) : SIZES.indexOf(first), SIZES.indexOf(small)],
    dtypes: app.dtypes,
    problem: (size, dtype) => bundle.problem(task(size, dtype)),
    kernel: (stage) => device.stage(stage),
    kernels: (size, dtype) => bundle.stages.map((name) => device.stage(name, task(size, dtype))),
    offered: (stage) => device.kernels.get(stage),
    checked: true,
    load: (size, dtype) => Operands.random(device, task(size, dtype)),
  };
}

/** @param {number} gflops @returns {number} the place of the largest size that takes at most 20 ms at this rate */
const quick = (gflops) =>
  Math.max(
    1,
    SIZES.slice(0, -1).findLastIndex((n) => 2 * n ** 3 <= gflops * 2e7),
  );
