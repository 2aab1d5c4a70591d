// @ts-check
/** The tuner: searches for the fastest configuration within a time limit; results can be saved, shared and compared. */

import { Bench, Operands } from "../bench.js";
import { fastest, tableOf } from "../charts.js";
import { PRIMARY, button, div, download, field, figures, h, messageLine, percent, say, select } from "../dom.js";
import { shape } from "../ops.js";
import { fromJson, toFragment, toJson } from "../records.js";
import { inWords } from "../webmm.js";
import { comparison } from "./compare.js";
import { available } from "./ladder.js";

/** @import { App } from "../main.js" */
/** @import { Device, Kernel, Problem, RunRecord } from "../webmm.js" */

/** @param {App} app @param {HTMLElement} root */
export async function setup(app, root) {
  const panels = await app.bundle.module("panels.js");
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
  const run = button("tune-run", "Search", search, PRIMARY);
  const stop = button("tune-stop", "Stop", null, { disabled: true });
  const save = button("tune-save", "Save results", saveRecords, { disabled: true });
  const link = button("tune-link", "Copy link to results", share, { disabled: true });
  const file = h("input", { type: "file", id: "tune-import", accept: ".json,application/json", onchange: load });
  const progress = h("progress", { max: 1, value: 0, "aria-label": "Share of the time limit used" });
  const message = messageLine(
    "tune-message",
    "A single tile size for all GPUs reaches, on average, four fifths of what each GPU can do. Search for the best one for this GPU.",
  );
  const result = div("");
  /** @type {RunRecord[]} */
  let records = [];

  root.append(
    div("lead", h("h2", {}, "Tune for this device"), message),
    div(
      "controls",
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
    div("controls share", save, link, field("Import results", file, "saved by this page or by webmm bench --json")),
    comparison(app, panels),
  );

  async function search() {
    const inputs = [...Object.values(sizes), budget];
    const wrong = inputs.find((input) => !input.checkValidity() || !Number.isInteger(Number(input.value)));
    if (wrong) {
      wrong.reportValidity();
      say(message, "Sizes and the time limit must be whole numbers of at least 1.", true);
      return;
    }
    const [m, n, k] = Object.values(sizes).map(({ value }) => Number(value));
    const problem = { m, n, k, dtype: /** @type {any} */ (dtypes.value) };
    records = [];
    result.replaceChildren();
    const work = (/** @type {AbortSignal} */ signal) => collect(new Bench(app.device, { limit: 2, signal }), problem);
    await app.attempt([run, dtypes, ...inputs, save, link], message, work, { stop, progress });
    save.disabled = link.disabled = records.length === 0;
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
      say(message, `${done + 1} of ${total}: ${kernel.label} …${sofar}`);
    };
    for await (const record of tune(bench, problem, seconds, panels.upcoming, onStart)) {
      records.push(record);
      result.replaceChildren(div("card", tableOf(panels.outstanding(records), panels.outcomes(records, shape))));
    }
    const best = fastest(records);
    if (!best) return say(message, "No kernel could run at this size on this device.", true);
    app.keepTuned([best]);
    app.addRun(`tune ${shape(problem)} ${problem.dtype}, this browser`, records);
    const default_ = records[0].gflops;
    const gain = default_ ? `, ${figures(Number(best.gflops) / default_)} × the default choice` : "";
    say(
      message,
      `Best: ${best.kernel} at ${figures(best.gflops)} GFLOP/s${best.peak_fraction ? `, ${percent(best.peak_fraction)} of peak` : ""}${gain}. This page now uses it for products of similar shape.`,
    );
    app.announce(message.textContent ?? "");
  }

  async function share() {
    const url = new URL(location.href);
    url.hash = `run=${await toFragment(records)}`;
    try {
      await navigator.clipboard.writeText(url.href);
      say(message, "The link is on the clipboard. It contains the results themselves; nothing was uploaded.");
    } catch {
      history.replaceState(null, "", url);
      say(message, "The link is in the address bar. It contains the results themselves; nothing was uploaded.");
    }
  }

  async function load() {
    const chosen = file.files?.[0];
    if (!chosen) return;
    try {
      const imported = fromJson(await chosen.text(), app.bundle);
      if (imported.length === 0) return say(message, `${chosen.name} contains no records.`, true);
      app.addRun(chosen.name, imported);
      say(
        message,
        `${chosen.name}: ${imported.length} ${imported.length === 1 ? "result" : "results"} of ${imported[0].adapter}.`,
      );
    } catch (error) {
      say(message, `${chosen.name}: ${inWords(error)}`, true);
    }
    file.value = "";
  }

  function saveRecords() {
    download("webmm-records.json", toJson(records), "application/json");
  }
}

/**
 * Search the page's configurations for the fastest within `budget` seconds: the recommended ones first, then neighbours of
 * the best so far, and every third time another one.
 * @param {Bench} bench @param {Problem} problem @param {number} budget
 * @param {any} upcoming of webmm/page/settings.py
 * @param {(kernel: Kernel, done: number, total: number) => void} onStart
 * @returns {AsyncGenerator<RunRecord>}
 */
async function* tune(bench, problem, budget, upcoming, onStart) {
  const { device } = bench;
  const operands = await Operands.random(device, problem);
  const started = performance.now();
  const left = untried(device, problem);
  const total = left.length;
  /** @type {{kernel: Kernel, seconds: number} | null} */
  let best = null;
  try {
    for (let turn = 0; left.length > 0; turn++) {
      if (bench.signal?.aborted || performance.now() - started > budget * 1e3) return;
      const kernels = left.map(({ of }) => of);
      /** @type {Kernel} */
      const kernel = left.splice(upcoming(kernels, best?.kernel.of ?? null, turn), 1)[0];
      onStart(kernel, turn, total);
      /** @type {RunRecord} */
      const record = await bench.run(kernel, operands, { slowerThan: best ? 2.5 * best.seconds + 0.001 : Infinity });
      if (record.median_us && (!best || record.median_us / 1e6 < best.seconds)) {
        best = { kernel, seconds: record.median_us / 1e6 };
      }
      yield record;
    }
  } finally {
    operands.free();
  }
}

/** All configurations of the page: first the one that `choose` returns, then the defaults of the stages, the last stage first. @param {Device} device @param {Problem} problem */
function untried(device, problem) {
  const stages = [...device.kernels.values()];
  const chosen = device.choose(problem);
  const defaults = device.bundle.stages.map((name) => device.stage(name)).reverse();
  const others = stages.flat();
  return [...new Set([chosen, ...defaults, ...others])];
}
