// @ts-check
/** The tuner: searches for the fastest configuration within a time limit; results can be saved, shared and compared. */

import { Bench, tune } from "../bench.js";
import { fastest, table } from "../charts.js";
import { download, field, figures, h, percent, select } from "../dom.js";
import { shape } from "../ops.js";
import { fromJson, toFragment, toJson } from "../records.js";
import { inWords } from "../webmm.js";
import { comparison } from "./compare.js";
import { available } from "./ladder.js";

/** @import { App } from "../main.js" */
/** @import { RunRecord } from "../webmm.js" */

/** @param {App} app @param {HTMLElement} root */
export function setup(app, root) {
  const number = (/** @type {string} */ id, /** @type {number} */ value, /** @type {number} */ most) =>
    h("input", { type: "number", id, min: 1, max: most, value, required: true, inputMode: "numeric" });
  const start = app.device.info.kind === "cpu" ? 128 : 1024;
  const sizes = {
    m: number("tune-m", start, 16384),
    n: number("tune-n", start, 16384),
    k: number("tune-k", start, 1 << 20),
  };
  const dtypes = select({ id: "tune-dtype" }, available(app));
  const budget = number("tune-budget", 20, 3600);
  const run = h("button", { type: "button", class: "primary", id: "tune-run", onclick: search }, "Search");
  const stop = h(
    "button",
    { type: "button", id: "tune-stop", disabled: true, onclick: () => controller?.abort() },
    "Stop",
  );
  const save = h(
    "button",
    {
      type: "button",
      id: "tune-save",
      disabled: true,
      onclick: () => download("webmm-records.json", toJson(records), "application/json"),
    },
    "Save results",
  );
  const link = h("button", { type: "button", id: "tune-link", disabled: true, onclick: share }, "Copy link to results");
  const file = h("input", { type: "file", id: "tune-import", accept: ".json,application/json", onchange: load });
  const progress = h("progress", { max: 1, value: 0, "aria-label": "Share of the time limit used" });
  const message = h(
    "p",
    { class: "message", id: "tune-message", role: "status" },
    "A single tile size for all GPUs reaches, on average, four fifths of what each GPU can do. Search for the best one for this GPU.",
  );
  const result = h("div", {});
  /** @type {AbortController | null} */
  let controller = null;
  /** @type {RunRecord[]} */
  let records = [];

  root.append(
    h("div", { class: "lead" }, h("h2", {}, "Tune for this device"), message),
    h(
      "div",
      { class: "controls" },
      field("M, rows of A", sizes.m),
      field("N, columns of B", sizes.n),
      field("K, inner size", sizes.k),
      field("Element type", dtypes),
      field("Time limit in seconds", budget),
      run,
      stop,
    ),
    progress,
    result,
    h(
      "div",
      { class: "controls share" },
      save,
      link,
      field("Import results", file, "saved by this page or by webmm bench --json"),
    ),
    comparison(app),
  );

  async function search() {
    const inputs = [...Object.values(sizes), budget];
    const wrong = inputs.find((input) => !input.checkValidity() || !Number.isInteger(Number(input.value)));
    if (wrong) {
      wrong.reportValidity();
      say("Sizes and the time limit must be whole numbers of at least 1.", true);
      return;
    }
    const problem = {
      m: Number(sizes.m.value),
      n: Number(sizes.n.value),
      k: Number(sizes.k.value),
      dtype: /** @type {any} */ (dtypes.value),
    };
    controller = new AbortController();
    records = [];
    result.replaceChildren();
    running(true);
    try {
      await app.exclusively(() => collect(new Bench(app.device, { limit: 2, signal: controller?.signal }), problem));
    } catch (error) {
      say(inWords(error), true);
    } finally {
      running(false);
    }
  }

  /** @param {Bench} bench @param {import("../webmm.js").Problem} problem */
  async function collect(bench, problem) {
    bench.roofline = await app.roofline();
    const started = performance.now();
    const seconds = Number(budget.value);
    const onStart = (
      /** @type {{label: string}} */ kernel,
      /** @type {number} */ done,
      /** @type {number} */ total,
    ) => {
      progress.value = Math.min(1, (performance.now() - started) / 1e3 / seconds);
      const best = fastest(records);
      const sofar = best ? ` Best so far: ${best.kernel} at ${figures(best.gflops)} GFLOP/s.` : "";
      say(`${done + 1} of ${total}: ${kernel.label} …${sofar}`);
    };
    for await (const record of tune(bench, problem, seconds, onStart)) {
      records.push(record);
      result.replaceChildren(h("div", { class: "card" }, table(top(records), outcomes(records))));
    }
    const best = fastest(records);
    if (!best) return say("No kernel could run at this size on this device.", true);
    app.keepTuned([best]);
    app.addRun(`tune ${shape(problem)} ${problem.dtype}, this browser`, records);
    const default_ = records[0].gflops;
    const gain = default_ ? `, ${figures(Number(best.gflops) / default_)} × the default choice` : "";
    say(
      `Best: ${best.kernel} at ${figures(best.gflops)} GFLOP/s${best.peak_fraction ? `, ${percent(best.peak_fraction)} of peak` : ""}${gain}. This page now uses it for products of similar shape.`,
    );
    app.announce(message.textContent ?? "");
  }

  async function share() {
    const url = new URL(location.href);
    url.hash = `run=${await toFragment(records)}`;
    try {
      await navigator.clipboard.writeText(url.href);
      say("The link is on the clipboard. It contains the results themselves; nothing was uploaded.");
    } catch {
      history.replaceState(null, "", url);
      say("The link is in the address bar. It contains the results themselves; nothing was uploaded.");
    }
  }

  async function load() {
    const chosen = file.files?.[0];
    if (!chosen) return;
    try {
      const imported = fromJson(await chosen.text(), app.bundle);
      if (imported.length === 0) return say(`${chosen.name} contains no records.`, true);
      app.addRun(chosen.name, imported);
      say(
        `${chosen.name}: ${imported.length} ${imported.length === 1 ? "result" : "results"} of ${imported[0].adapter}.`,
      );
    } catch (error) {
      say(`${chosen.name}: ${inWords(error)}`, true);
    }
    file.value = "";
  }

  /** @param {string} words @param {boolean} [wrong] */
  function say(words, wrong = false) {
    message.textContent = words;
    message.classList.toggle("error", wrong);
  }

  /** @param {boolean} on */
  function running(on) {
    for (const control of [run, dtypes, budget, ...Object.values(sizes)]) control.disabled = on;
    stop.disabled = !on;
    save.disabled = link.disabled = on || records.length === 0;
    progress.classList.toggle("on", on);
    if (!on) progress.value = 0;
  }
}

/** @param {RunRecord[]} records @returns {RunRecord[]} the ten fastest, and all failures */
function top(records) {
  const right = records.filter((r) => r.status === "ok").sort((x, y) => Number(y.gflops) - Number(x.gflops));
  return [
    ...right.slice(0, 10),
    ...records.filter((r) => ["compile", "runtime", "incorrect", "timeout"].includes(r.status)),
  ];
}

/** @param {RunRecord[]} records @returns {string} */
function outcomes(records) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const r of records) counts.set(r.status, (counts.get(r.status) ?? 0) + 1);
  return `Outcomes for ${shape(records[0])}: ${[...counts].map(([status, count]) => `${count} ${status}`).join(", ")}. The ten fastest, and failures`;
}
