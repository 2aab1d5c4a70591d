// @ts-check
/** What the sliders' changes of a stage gain on this device: each alone, and all together. */

import { button, figures, h, row, table as tableOf } from "../dom.js";
import { speedOf, unitOf } from "../ops.js";

/** @import { Kernel, RunRecord } from "../webmm.js" */

/** @param {import("../main.js").App} app @param {() => (kernel: Kernel) => Promise<RunRecord>} measuring how to measure on the problem that is chosen now */
export function ablation(app, measuring) {
  const table = h("div", { id: "explain-ablation", role: "status" });
  const run = button("explain-ablate", "What each change gains", start, { hidden: true });
  /** @type {[standard: Kernel, changed: Kernel] | null} */
  let pair = null;
  return { table, run, show };

  /** Offer to compare a configuration with the one that the stage was opened with. @param {Kernel} standard @param {Kernel} changed @param {boolean} runs whether it can run */
  function show(standard, changed, runs) {
    pair = [standard, changed];
    table.replaceChildren();
    run.hidden = !runs || changesOf(standard, changed).length === 0;
  }

  async function start() {
    const asked = /** @type {[Kernel, Kernel]} */ (pair);
    await app.attempt(run, table, () => compare(...asked));
  }

  /** @param {Kernel} standard @param {Kernel} changed */
  async function compare(standard, changed) {
    const [changes, measured] = [changesOf(standard, changed), measuring()];
    const words = changes.map(([name, value]) => `${name} ${standard.config[name]} → ${value}`);
    const single = changes.map(([name, value]) =>
      app.bundle.configured(standard.name, { ...standard.config, [name]: value }, standard.of.op),
    );
    const more = changes.length > 1 ? [changed] : [];
    /** @type {(RunRecord | null)[]} */
    const records = [];
    for (const kernel of [standard, ...single, ...more]) {
      if (pair?.[1] === changed) table.textContent = `Measuring ${kernel?.label ?? "…"}`;
      records.push(kernel && (await measured(kernel)));
    }
    if (pair?.[1] !== changed) return; // another configuration is shown now
    const [base, ...others] = records;
    const gain = (/** @type {RunRecord | null} */ r) => Number(r?.gflops ?? NaN) / Number(base?.gflops ?? NaN);
    const joint = others[changes.length];
    const expected = others.slice(0, changes.length).reduce((product, r) => product * gain(r), 1);
    const speed = (/** @type {RunRecord | null} */ r) =>
      r && (r.gflops ? `${figures(speedOf(r))} ${unitOf(r)}` : r.status);
    const times = (/** @type {number} */ x) => (Number.isFinite(x) ? `${figures(x)} ×` : "–");
    const rows = [
      row([standard.label], [speed(base), "1 ×"]),
      ...others
        .slice(0, changes.length)
        .map((r, i) => row([words[i]], [speed(r), r ? times(gain(r)) : "impossible alone"])),
    ];
    if (joint !== undefined)
      rows.push(
        row(["all together"], [speed(joint), times(gain(joint))]),
        row(["expected if independent"], [null, times(expected)]),
      );
    table.replaceChildren(tableOf([], rows));
    app.announce(String(table.textContent));
  }
}

/** @param {Kernel} standard @param {Kernel} changed @returns {[name: string, value: string | number][]} */
const changesOf = (standard, changed) =>
  Object.entries(changed.config).filter(([name, value]) => standard.config[name] !== value);
