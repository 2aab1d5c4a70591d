// @ts-check
/** A WGSL text of the visitor's own: checked at several sizes, and timed beside the stages of the ladder. */

import { Bench, Operands, ladder } from "../bench.js";
import { table } from "../charts.js";
import { field, figures, h, select } from "../dom.js";
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
  };
  const dtypes = select({ id: "own-dtype" }, available(app));
  const sizes = select(
    { id: "own-size" },
    SIZES.map((n) => [String(n), `${n} × ${n} × ${n}`]),
  );
  sizes.value = device.info.kind === "cpu" ? "128" : "1024";
  const stages = select({ id: "own-stages" }, [["", "All stages"], ...bundle.stages]);
  const check = h(
    "button",
    { type: "button", class: "primary", id: "own-check", onclick: () => run(checked) },
    "Check",
  );
  const time = h("button", { type: "button", id: "own-time", onclick: () => run(timed) }, "Time");
  const stop = h(
    "button",
    { type: "button", id: "own-stop", disabled: true, onclick: () => controller?.abort() },
    "Stop",
  );
  const message = h("p", { class: "message", id: "own-message", role: "status" });
  const result = h("div", { id: "own-result" });
  /** @type {AbortController | null} */
  let controller = null;

  root.append(
    h(
      "div",
      { class: "lead" },
      h("h2", {}, "Your own WGSL"),
      h(
        "p",
        {},
        "Paste a compute shader that multiplies dense row-major matrices, with the entry point main. It stays in this tab.",
      ),
    ),
    text,
    h(
      "div",
      { class: "controls" },
      field("Bindings", said.bindings, "the matrices, in binding order"),
      field("Uniform", said.uniform, "its u32 members at binding 0; empty if there is none"),
      field("Grid", said.grid, "workgroups along x, y, z; divisions round up"),
      field("Element type", dtypes),
      check,
      field("Size to time", sizes),
      field("Compare with", stages),
      time,
      stop,
    ),
    message,
    result,
  );

  /** @param {(pasted: Pasted, signal: AbortSignal) => Promise<void>} work */
  async function run(work) {
    const { signal } = (controller = new AbortController());
    const controls = [check, time, dtypes, sizes, stages];
    for (const control of controls) control.disabled = true;
    stop.disabled = false;
    result.replaceChildren();
    say("Compiling …");
    try {
      const [bindings, uniform, grid] = [said.bindings.value, said.uniform.value, said.grid.value];
      const pasted = await Pasted.of(device, text.value, { bindings, uniform, grid });
      await app.exclusively(() => work(pasted, signal));
    } catch (error) {
      const [first, ...more] = inWords(error).split("\n");
      say(first, true);
      if (more.length) result.append(h("pre", { tabIndex: 0 }, more.join("\n")));
    } finally {
      for (const control of controls) control.disabled = false;
      stop.disabled = true;
    }
  }

  /** Check the text at the sizes of `webmm kernel check`. @param {Pasted} pasted @param {AbortSignal} signal */
  async function checked(pasted, signal) {
    const { CHECKED } = await bundle.module("foreign.js");
    const list = h("ul", { id: "own-findings" });
    result.append(h("div", { class: "card" }, list));
    let wrong = 0;
    for (const [m, n, k] of CHECKED) {
      if (signal.aborted) return say("Stopped.");
      const p = problem(m, n, k);
      say(`Checking ${shape(p)} …`);
      const found = await pasted.check(p);
      wrong += Number(found !== "");
      list.append(h("li", {}, h("b", {}, `${m}×${n}×${k}`), `: ${found || "right"}`));
    }
    say(wrong ? `Wrong at ${wrong} of ${CHECKED.length} sizes.` : `Right at all ${CHECKED.length} sizes.`, wrong > 0);
  }

  /** Time the text beside the stages. @param {Pasted} pasted @param {AbortSignal} signal */
  async function timed(pasted, signal) {
    const n = Number(sizes.value);
    const p = problem(n, n, n);
    const compared = (stages.value ? [stages.value] : bundle.stages).map((name) => device.stage(name, p));
    /** @type {any[]} */
    const kernels = [pasted, ...compared];
    const records = [];
    const onStart = (/** @type {number} */ i) =>
      say(`${kernels[i].label} at ${shape(p)}, ${i + 1} of ${kernels.length} …`);
    for await (const record of ladder(
      new Bench(device, { signal }),
      kernels,
      p,
      () => Operands.random(device, p),
      onStart,
    )) {
      records.push(record);
      const [reason, ...more] = (record.reason ?? "").split("\n");
      if (records.length === 1 && record.status !== "ok") {
        say(`Your text is not timed: ${record.status}: ${reason}`, true);
        if (more.length) result.append(h("pre", { tabIndex: 0 }, more.join("\n")));
        return;
      }
      const caption = `Your text beside the stages at ${shape(p)}, fastest first; each result is checked before it is timed`;
      result.replaceChildren(h("div", { class: "card" }, table(records, caption)));
    }
    if (!records.length) return say("Stopped.");
    say(`Your text: ${figures(speedOf(records[0]))} ${unitOf(p)} at ${shape(p)}${signal.aborted ? "; stopped" : ""}.`);
    app.announce(message.textContent ?? "");
  }

  /** @param {number} m @param {number} n @param {number} k @returns {Problem} */
  function problem(m, n, k) {
    return { m, n, k, dtype: /** @type {any} */ (dtypes.value) };
  }

  /** @param {string} words @param {boolean} [wrong] */
  function say(words, wrong = false) {
    message.textContent = words;
    message.classList.toggle("error", wrong);
  }
}
