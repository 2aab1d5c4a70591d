/** What the sliders' changes of a stage gain on this device: each alone, and all together. */

import { ablation as gains, changes as changesOf } from "../bundle/panels.js";
import { all, byId, table } from "../dom.js";

/** @import { Kernel, RunRecord } from "../webmm.js" */

/** @param {import("../main.js").App} app @param {() => (kernel: Kernel) => Promise<RunRecord>} measuring how to measure on the problem that is chosen now */
export function ablation(app, measuring) {
  const result = byId("explain-ablation");
  const [run] = all("button", "explain-ablate");
  return { show };

  /** Offer to compare a configuration with the one that the stage was opened with. @param {Kernel} standard @param {Kernel} changed @param {boolean} runs whether it can run */
  function show(standard, changed, runs) {
    const changes = changesOf(standard.of, changed.of);
    const alone = changes.map(([, of]) => of && app.bundle.wrap(of));
    const kernels = [standard, ...alone, ...(changes.length > 1 ? [changed] : [])];
    const words = changes.map(([each]) => each);
    const start = () => app.attempt(run, result, () => compare(words, kernels, () => run.onclick === start));
    result.replaceChildren();
    run.hidden = !runs || changes.length === 0;
    run.onclick = start;
  }

  /** @param {string[]} words of the changes @param {(Kernel | null)[]} kernels @param {() => boolean} isShown else another configuration is shown now */
  async function compare(words, kernels, isShown) {
    const measured = measuring();
    /** @type {(RunRecord | null)[]} */
    const records = [];
    for (const kernel of kernels) {
      if (isShown()) result.textContent = `Measuring ${kernel?.label ?? "…"}`;
      records.push(kernel && (await measured(kernel)));
    }
    if (isShown()) result.replaceChildren(table({ heads: [], rows: gains(words, records, String(kernels[0]?.label)) }));
  }
}
