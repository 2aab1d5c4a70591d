// @ts-check
/** A WGSL text of the visitor's own: checked at several sizes, and timed beside the stages of the ladder. */

import { Bench, Operands, ladder } from "../bench.js";
import { fastest, tableOf } from "../charts.js";
import { PRIMARY, button, div, field, figures, h, messageLine, say, select } from "../dom.js";
import { Pasted } from "../pasted.js";
import { shape, speedOf, unitOf } from "../ops.js";
import { inWords } from "../webmm.js";
import { available } from "./ladder.js";

/** @typedef {import("../main.js").App} App */
/** @typedef {import("../webmm.js").Problem} Problem */

const SIZES = [64, 128, 256, 512, 1024, 2048, 4096];

/** @param {App} app @param {HTMLElement} root */
export function setup(app, root) {
  const { device, bundle } = app;
  const words = (/** @type {string} */ id, /** @type {string} */ value) =>
    h("input", { type: "text", id, value, spellcheck: false, autocapitalize: "off" });
  const text = h("textarea", { id: "own-text", rows: 16, spellcheck: false, "aria-label": "Your WGSL" });
  const said = {
    bindings: words("own-bindings", "a,b,c"),
    uniform: words("own-uniform", "m,n,k"),
    grid: words("own-grid", "n/16,m/16"),
    tunables: words("own-tunables", ""),
  };
  const dtypes = select({ id: "own-dtype" }, available(app));
  const sizes = select(
    { id: "own-size" },
    SIZES.map((n) => [String(n), `${n} × ${n} × ${n}`]),
  );
  sizes.value = device.info.kind === "cpu" ? "128" : "1024";
  const stages = select({ id: "own-stages" }, [["", "All stages"], ...bundle.stages]);
  const check = button("own-check", "Check", () => run(checked), PRIMARY);
  const time = button("own-time", "Time", () => run(timed));
  const tune = button("own-tune", "Tune", () => run(tuned));
  const stop = button("own-stop", "Stop", null, { disabled: true });
  const message = messageLine("own-message");
  const result = h("div", { id: "own-result" });

  root.append(
    div(
      "lead",
      h("h2", {}, "Your own WGSL"),
      h(
        "p",
        {},
        "Paste a compute shader that multiplies dense row-major matrices, with the entry point main. It stays in this tab.",
      ),
    ),
    text,
    div(
      "controls",
      field("Bindings", said.bindings, "the matrices, in binding order"),
      field("Uniform", said.uniform, "its u32 members at binding 0; empty if there is none"),
      field("Grid", said.grid, "workgroups along x, y, z; divisions round up"),
      field("Tunables", said.tunables, "constants and the values to try: TILE=8,16; Check and Time take the first"),
      field("Element type", dtypes),
      check,
      field("Size to time", sizes),
      field("Compare with", stages),
      time,
      tune,
      stop,
    ),
    message,
    result,
  );

  /** @param {(pasted: Pasted[], signal: AbortSignal) => Promise<void>} work of a text for each combination of tunables */
  async function run(work) {
    result.replaceChildren();
    say(message, "Compiling …");
    const start = async (/** @type {AbortSignal} */ signal) => {
      const [bindings, uniform, grid, tunables] = Object.values(said).map(({ value }) => value);
      try {
        const each = await Pasted.each(device, text.value, { bindings, uniform, grid, tunables }, work === tuned);
        await work(each, signal);
      } catch (error) {
        refuse(inWords(error));
      }
    };
    await app.attempt([check, time, tune, dtypes, sizes, stages], message, start, { stop });
  }

  /** Tell what is wrong with the text. @param {string} words a line, maybe followed by lines that quote it */
  function refuse(words) {
    const [first, ...more] = words.split("\n");
    say(message, first, true);
    if (more.length) result.append(h("pre", { tabIndex: 0 }, more.join("\n")));
  }

  /** Check the text at the sizes of `webmm kernel check`. @param {Pasted[]} each @param {AbortSignal} signal */
  async function checked([pasted], signal) {
    const { CHECKED } = await bundle.module("foreign.js");
    const list = h("ul", { id: "own-findings" });
    result.append(div("card", list));
    let wrong = 0;
    for (const [m, n, k] of CHECKED) {
      if (signal.aborted) return say(message, "Stopped.");
      const p = problem(m, n, k);
      say(message, `Checking ${shape(p)} …`);
      const found = await pasted.check(p);
      wrong += Number(found !== "");
      list.append(h("li", {}, h("b", {}, `${m}×${n}×${k}`), `: ${found || "right"}`));
    }
    say(
      message,
      wrong ? `Wrong at ${wrong} of ${CHECKED.length} sizes.` : `Right at all ${CHECKED.length} sizes.`,
      wrong > 0,
    );
  }

  /** Time the text beside the stages. @param {Pasted[]} each @param {AbortSignal} signal */
  async function timed([pasted], signal) {
    const n = Number(sizes.value);
    const p = problem(n, n, n);
    const compared = (stages.value ? [stages.value] : bundle.stages).map((name) => device.stage(name, p));
    /** @type {any[]} */
    const kernels = [pasted, ...compared];
    const records = [];
    const onStart = (/** @type {number} */ i) =>
      say(message, `${kernels[i].label} at ${shape(p)}, ${i + 1} of ${kernels.length} …`);
    const bench = new Bench(device, { signal });
    for await (const record of ladder(bench, kernels, p, () => Operands.random(device, p), onStart)) {
      records.push(record);
      if (records.length === 1 && record.status !== "ok")
        return refuse(`Your text is not timed: ${record.status}: ${record.reason ?? ""}`);
      const caption = `Your text beside the stages at ${shape(p)}, fastest first; each result is checked before it is timed`;
      result.replaceChildren(div("card", tableOf(records, caption)));
    }
    if (!records.length) return say(message, "Stopped.");
    say(
      message,
      `Your text: ${figures(speedOf(records[0]))} ${unitOf(p)} at ${shape(p)}${signal.aborted ? "; stopped" : ""}.`,
    );
    app.announce(message.textContent ?? "");
  }

  /** Check and time the text with each combination of its tunables, as `webmm kernel tune`. @param {Pasted[]} each @param {AbortSignal} signal */
  async function tuned(each, signal) {
    const { CHECKED } = await bundle.module("foreign.js");
    const n = Number(sizes.value);
    const [p, ragged] = [problem(n, n, n), problem(.../** @type {[number, number, number]} */ (CHECKED[1]))];
    const records = [];
    const onStart = (/** @type {number} */ i) => say(message, `${each[i].label}, ${i + 1} of ${each.length} …`);
    const bench = new Bench(device, { signal });
    for await (let record of ladder(bench, each, p, () => Operands.random(device, p), onStart)) {
      const found = record.status === "ok" && (await each[records.length].check(ragged).catch(inWords));
      if (found) record = device.record(each[records.length], p, { status: "incorrect", reason: found });
      records.push(record);
      const caption = `Your text at ${shape(p)}, fastest first; each is checked, also at ${shape(ragged)}`;
      result.replaceChildren(div("card", tableOf(records, caption)));
    }
    const best = fastest(records);
    if (!best) return say(message, records.length ? "No combination is right." : "Stopped.", records.length > 0);
    const settings = each[records.indexOf(best)].label;
    say(message, `Best of ${records.length}: ${settings}, ${figures(speedOf(best))} ${unitOf(p)} at ${shape(p)}.`);
    app.announce(message.textContent ?? "");
  }

  /** @param {number} m @param {number} n @param {number} k @returns {Problem} */
  function problem(m, n, k) {
    return { m, n, k, dtype: /** @type {any} */ (dtypes.value) };
  }
}
