// @ts-check
/** What the sliders' changes of a stage gain on this device: each alone, and all together. */

import { ablation as gains } from "../bundle/panels.js";
import { all, byId, table } from "../dom.js";

/** @import { Kernel, RunRecord } from "../webmm.js" */

/** @param {import("../main.js").App} app @param {() => (kernel: Kernel) => Promise<RunRecord>} measuring how to measure on the problem that is chosen now */
export function ablation(app, measuring) {
  const result = byId("explain-ablation");
  const [run] = all("button", "explain-ablate");
  return { show };

  /** Offer to compare a configuration with the one that the stage was opened with. @param {Kernel} standard @param {Kernel} changed @param {boolean} runs whether it can run */
  function show(standard, changed, runs) {
    result.replaceChildren();
    run.hidden = !runs || changesOf(standard, changed).length === 0;
    run.onclick = () => app.attempt(run, result, () => compare(standard, changed));
  }

  /** @param {Kernel} standard @param {Kernel} changed */
  async function compare(standard, changed) {
    const [changes, measured] = [changesOf(standard, changed), measuring()];
    const { onclick } = run;
    const isShown = () => run.onclick === onclick; // else another configuration is shown now
    const single = changes.map(([name, value]) =>
      app.bundle.configured(standard.name, { ...standard.config, [name]: value }, standard.of.op),
    );
    /** @type {(RunRecord | null)[]} */
    const records = [];
    for (const kernel of [standard, ...single, ...(changes.length > 1 ? [changed] : [])]) {
      if (isShown()) result.textContent = `Measuring ${kernel?.label ?? "…"}`;
      records.push(kernel && (await measured(kernel)));
    }
    if (!isShown()) return;
    const words = changes.map(([name, value]) => `${name} ${standard.config[name]} → ${value}`);
    result.replaceChildren(table({ heads: [], rows: gains(words, records, standard.label) }));
  }
}

/** @param {Kernel} standard @param {Kernel} changed @returns {[name: string, value: string | number][]} */
const changesOf = (standard, changed) =>
  Object.entries(changed.config).filter(([name, value]) => standard.config[name] !== value);
