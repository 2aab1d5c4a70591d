/** What the sliders' changes of a stage gain on this device: each alone, and all together. */

import { ablation as gains, changes as changesOf } from "../bundle/panels.js";
import { all, byId, h } from "../dom.js";

/** @import { Kernel, RunRecord } from "../webmm.js" */

/** @param {import("../main.js").App} app @param {(kernels: Kernel[], announce: (kernel: Kernel) => unknown) => Promise<RunRecord[]>} measured measures on the problem that is chosen now */
export function ablation(app, measured) {
  const result = byId("explain-ablation");
  const [run] = all("button", "explain-ablate");
  return { show };

  /** Offer to compare a configuration with the one that the stage was opened with. @param {Kernel} standard @param {Kernel} changed @param {boolean} runs whether it can run */
  function show(standard, changed, runs) {
    const changes = changesOf(standard.of, changed.of);
    const alone = changes.flatMap(([, of]) => (of ? app.bundle.wrap(of) : []));
    const kernels = [standard, ...alone, ...(changes.length > 1 ? [changed] : [])];
    const isShown = () => run.onclick === start; // else another configuration is shown now
    const tell = (/** @type {string | Node} */ words) => isShown() && result.replaceChildren(words);
    const compare = async () => {
      const records = await measured(kernels, ({ label }) => tell(`Measuring ${label}`));
      tell(h("div", { innerHTML: gains(changes, records, standard.label).html() }));
    };
    const start = () => app.attempt(run, result, compare);
    result.replaceChildren();
    run.hidden = !runs || changes.length === 0;
    run.onclick = start;
  }
}
