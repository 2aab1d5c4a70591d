/** A WGSL text of the visitor's own: checked at several sizes, and timed beside the stages of the ladder. */

import { Bench, Operands, ladder } from "../bench.js";
import { fastest, figures, size_of, speed_of, unit_of } from "../bundle/core.js";
import { CHECKED } from "../bundle/foreign.js";
import { tableOf } from "../charts.js";
import { all, bind, byId, div, h, options, say } from "../dom.js";
import { Pasted } from "../pasted.js";
import { inWords } from "../webmm.js";
import { products } from "./subjects.js";

/** @import { Problem, RunRecord } from "../webmm.js" */

/** @param {import("../main.js").App} app @param {HTMLElement} root */
export function setup(app, root) {
  const { device, bundle } = app;
  const said = all("input", "own-bindings", "own-uniform", "own-grid", "own-tunables");
  const [dtypes, sizes, stages] = all("select", "own-dtype", "own-size", "own-stages");
  const [stop, ...buttons] = all("button", "own-stop", "own-check", "own-time", "own-tune");
  const [text] = all("textarea", "own-text");
  const [message] = all("p", "own-message");
  const result = byId("own-result");
  const subject = products(app);

  sizes.append(...options(subject.sizes.slice(0, -2)));
  sizes.value = device.info.kind === "cpu" ? "128" : "1024";
  stages.append(...options(subject.stages));
  bind(root, { check: () => run(checked), time: () => run(timed), tune: () => run(tuned) });

  /** @param {(pasted: Pasted[], signal: AbortSignal) => Promise<void>} work of a text for each combination of tunables */
  async function run(work) {
    const start = async (/** @type {AbortSignal} */ signal) => {
      const [bindings, uniform, grid, tunables] = said.map(({ value }) => value);
      const each = await Pasted.each(device, text.value, { bindings, uniform, grid, tunables }, work === tuned);
      await work(each, signal);
    };
    const safely = (/** @type {AbortSignal} */ signal) => start(signal).catch((error) => refuse(inWords(error)));
    await app.attempt([...buttons, dtypes, sizes, stages], message, safely, { stop, words: "Compiling …", result });
  }

  /** Tell what is wrong with the text. @param {string} words a line, maybe followed by lines that quote it */
  function refuse(words) {
    const [first, ...more] = words.split("\n");
    say(message, first, true);
    if (more.length) result.append(h("pre", { tabIndex: 0 }, more.join("\n")));
  }

  /** Check the text at the sizes of `webmm kernel check`. @param {Pasted[]} each @param {AbortSignal} signal */
  async function checked([pasted], signal) {
    const list = h("ul", { id: "own-findings" });
    result.append(div("card", list));
    let wrong = 0;
    for (const [m, n, k] of CHECKED) {
      if (signal.aborted) return say(message, "Stopped.");
      const p = problem(m, n, k);
      say(message, `Checking ${size_of(p)} …`);
      const found = await pasted.check(p);
      wrong += Number(found !== "");
      list.append(h("li", {}, h("b", {}, `${m}×${n}×${k}`), `: ${found || "right"}`));
    }
    const { length } = CHECKED;
    say(message, wrong ? `Wrong at ${wrong} of ${length} sizes.` : `Right at all ${length} sizes.`, wrong > 0);
  }

  /** Time the text beside the stages. @param {Pasted[]} each @param {AbortSignal} signal */
  async function timed([pasted], signal) {
    const p = problem();
    const compared = (stages.value ? [stages.value] : bundle.stages).map((name) => device.stage(name, p));
    const caption = `Your text beside the stages at ${size_of(p)}, fastest first; each result is checked before it is timed`;
    const records = [];
    for await (const record of measured([pasted, ...compared], p, signal)) {
      records.push(record);
      if (records.length === 1 && record.status !== "ok")
        return refuse(`Your text is not timed: ${record.status}: ${record.reason ?? ""}`);
      result.replaceChildren(tableOf(records, caption));
    }
    if (!records.length) return say(message, "Stopped.");
    app.tell(message, `Your text: ${speedOf(records[0])}${signal.aborted ? "; stopped" : ""}.`);
  }

  /** Check and time the text with each combination of its tunables, as `webmm kernel tune`. @param {Pasted[]} each @param {AbortSignal} signal */
  async function tuned(each, signal) {
    const [m, n, k] = CHECKED[1];
    const [p, ragged] = [problem(), problem(m, n, k)];
    const caption = `Your text at ${size_of(p)}, fastest first; each is checked, also at ${size_of(ragged)}`;
    const records = [];
    for await (let record of measured(each, p, signal)) {
      const found = record.status === "ok" && (await each[records.length].check(ragged).catch(inWords));
      if (found) record = device.record(each[records.length], p, { status: "incorrect", reason: found });
      records.push(record);
      result.replaceChildren(tableOf(records, caption));
    }
    const best = fastest(records);
    if (!best) return say(message, records.length ? "No combination is right." : "Stopped.", records.length > 0);
    app.tell(message, `Best of ${records.length}: ${each[records.indexOf(best)].label}, ${speedOf(best)}.`);
  }

  /** Measure kernels one after another, and say so. @param {import("../bench.js").Runnable[]} kernels @param {Problem} p @param {AbortSignal} signal */
  function measured(kernels, p, signal) {
    const load = async () => Operands.random(device, p);
    return ladder(new Bench(device, { signal }), kernels, p, load, (words) => say(message, words));
  }

  /** @param {RunRecord} record */
  const speedOf = (record) => `${figures(speed_of(record))} ${unit_of(record)} at ${size_of(record)}`;

  /** @param {number} m by default the chosen size, as n and k @returns {Problem} */
  function problem(m = Number(sizes.value), n = m, k = m) {
    return { m, n, k, dtype: /** @type {any} */ (dtypes.value) };
  }
}
