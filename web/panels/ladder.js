// @ts-check
/** The ladder: runs all stages of an op at one size, and shows bars, the roofline and a table of the results. */

import { Bench, Operands, ladder } from "../bench.js";
import { Bars, fastest, rooflineChart, tableOf } from "../charts.js";
import { PRIMARY, button, div, download, field, figures, h, numbered, options, select } from "../dom.js";
import { shape, speedOf, unitOf } from "../ops.js";
import { toJson } from "../records.js";
import { DeviceLostError, inWords } from "../webmm.js";

/** @import { App } from "../main.js" */
/** @import { RunRecord, Task } from "../webmm.js" */
/** @typedef {{kernels: import("../bench.js").Stage[], problem: Task, records: (bench: Bench, onStart: (i: number) => void) => AsyncGenerator<RunRecord>}} LadderRun */
/**
 * A ladder: its stages, the sizes and element types to choose from, and how to run it for a choice of these.
 * @typedef {{
 *   stages: import("../charts.js").Step[], sizes: [string, string][], usual: () => string, dtypes: [string, string][],
 *   prepare: (size: string, dtype: string) => LadderRun,
 * }} Source
 */

const SIZES = [128, 256, 512, 1024, 2048, 4096, 8192];

/** @param {App} app @param {HTMLElement} root */
export function setup(app, root) {
  const { device } = app;
  const { ladders, shown } = app.bundle.index;
  const titles = ["Matrix product", ...ladders, ...shown.flatMap(([title, checked]) => (checked ? [title] : []))];
  const ops = select({ id: "ladder-op", name: "op", onchange: choose }, numbered(titles));
  const sizes = select({ id: "ladder-size", name: "size" });
  const dtypes = select({ id: "ladder-dtype", name: "dtype" });
  const run = button("ladder-run", "Run the ladder", start, PRIMARY);
  const stop = button("ladder-stop", "Stop", null, { disabled: true });
  const save = button("ladder-save", "Save results", saveRecords, { disabled: true });
  const report = button("ladder-report", "Save report", saveReport, { disabled: true });
  const progress = h("progress", { value: 0, "aria-label": "Progress of the ladder" });
  const message = h(
    "p",
    { class: "message", id: "ladder-message" },
    "Each stage is a kernel that changes one thing about an earlier stage. Every result is checked before it is timed.",
  );
  const bars = new Bars();
  const axis = h("p", { class: "axis-title" });
  const details = div("details");
  /** @type {RunRecord[]} */
  let records = [];
  /** @type {Map<string, RunRecord[]>} the ladders of matrix products on this device, by size and element type: what a report has */
  const reported = new Map();
  let source = products(app);

  showChoices();
  app.addEventListener("speed", () => (sizes.value = source.usual()));
  const choices = [field("Operation", ops), field("Size", sizes), field("Element type", dtypes)];
  root.append(
    div("lead", h("h2", {}, "The ladder"), message),
    div("controls", ...choices, run, stop, save, report),
    progress,
    div("card", axis, bars.element),
    details,
  );

  async function choose() {
    ops.disabled = run.disabled = true;
    try {
      source =
        ops.value === "0" ? products(app) : await (await import("./ladders.js")).ladderOf(app, Number(ops.value) - 1);
    } catch (error) {
      message.textContent = inWords(error);
      ops.value = "0";
      source = products(app);
    } finally {
      ops.disabled = run.disabled = false;
    }
    showChoices();
  }

  /** Show the ladder's sizes, element types and stages. */
  function showChoices() {
    sizes.replaceChildren(...options(source.sizes));
    sizes.value = source.usual();
    dtypes.replaceChildren(...options(source.dtypes));
    axis.textContent = `${unitOf(source.prepare(sizes.value, dtypes.value).problem)} of each stage; longer bars are faster`;
    records = [];
    save.disabled = true;
    details.replaceChildren();
    bars.show(source.stages);
  }

  async function start() {
    records = [];
    bars.show(source.stages);
    details.replaceChildren();
    const locked = [run, ops, sizes, dtypes, save, report];
    await app.attempt(locked, message, (signal) => runLadder(new Bench(device, { signal })), { stop, progress });
    bars.finish();
    save.disabled = records.length === 0;
    report.disabled = reported.size === 0;
  }

  /** @param {Bench} bench */
  async function runLadder(bench) {
    const { kernels, problem, records: run } = source.prepare(sizes.value, dtypes.value);
    progress.max = kernels.length;
    const announce = (/** @type {number} */ i) => {
      bars.running(i);
      message.textContent = `${kernels[i].label} at ${shape(problem)}, ${i + 1} of ${kernels.length} …`;
    };
    message.textContent = "Preparing the operands …";
    for await (const record of run(bench, announce)) {
      records.push(record);
      app.showBest(record, kernels[records.length - 1].label);
      progress.value = records.length;
      bars.update(records);
    }
    const stopped = bench.signal?.aborted;
    if (!stopped && records.some((r) => r.status === "ok")) {
      message.textContent = "Measuring this device's peak compute and memory rates …";
      const roofline = await app.roofline();
      if (roofline) await addRoofline(roofline);
    }
    finish(Boolean(stopped));
  }

  /** @param {import("../webmm.js").Roofline} roofline */
  async function addRoofline(roofline) {
    const peak = (/** @type {RunRecord} */ r) => (unitOf(r) === "GB/s" ? roofline.gbytes : roofline.gflops);
    const kernels = source.prepare(sizes.value, dtypes.value).kernels;
    records = records.map((r, i) => ({
      ...r,
      peak_fraction: kernels[i].matrix ? null : r.gflops && speedOf(r) / peak(r),
    }));
    bars.update(records);
    if (ops.value !== "0") return;
    const chart = rooflineChart(records, roofline, await app.bundle.module("drawings.js"));
    details.prepend(h("figure", { class: "card" }, h("figcaption", {}, "Roofline"), chart));
  }

  /** @param {boolean} stopped */
  function finish(stopped) {
    const best = fastest(records);
    const label = best && source.stages[records.indexOf(best)].label;
    const words = best
      ? `${stopped ? "Stopped. " : ""}Fastest: ${label} at ${figures(speedOf(best))} ${unitOf(best)} on ${shape(best)}.`
      : stopped
        ? "Stopped before the first result."
        : "No stage could run at this size.";
    message.textContent = words;
    app.announce(words);
    if (records.length === 0) return;
    const measured = records.filter((r) => r.status === "ok").length;
    const caption =
      `${measured} of ${records.length} stages measured at ${shape(records[0])}, fastest first. ` +
      "Median and Best are times on the GPU, Call is the wall-clock time from the call to the result; " +
      "Error is the largest one found, Bound what rounding allows";
    details.append(div("card", tableOf(records, caption)));
    if (ops.value === "0" && best) reported.set(`${shape(records[0])} ${records[0].dtype}`, records);
    const what = ops.value === "0" ? "ladder" : `ladder of ${titles[Number(ops.value)].toLowerCase()}`;
    app.addRun(`${what} ${shape(records[0])} ${records[0].dtype}, this browser`, records);
  }

  async function saveReport() {
    await app.attempt(report, message, async () => {
      const made = await import("./report.js");
      download("webmm-report.json", await made.report(app, [...reported.values()].flat()), "application/json");
      message.replaceChildren(...made.contents(app));
    });
  }

  function saveRecords() {
    download("webmm-ladder.json", toJson(records), "application/json");
  }
}

/** @param {App} app @returns {Source} the ladder of floating-point matrix products, checked in JavaScript */
function products(app) {
  const { device, bundle } = app;
  return {
    stages: bundle.stages.map((name) => stepOf(bundle, name)),
    sizes: SIZES.map((n) => [String(n), `${n} × ${n} × ${n}`]),
    usual: () => (app.speed ? defaultSize(app.speed) : device.info.kind === "cpu" ? "256" : "1024"),
    dtypes: available(app),
    prepare(size, dtype) {
      const n = Number(size);
      const problem = { m: n, n, k: n, dtype: /** @type {any} */ (dtype) };
      const kernels = bundle.stages.map((name) => device.stage(name, problem));
      return {
        kernels,
        problem,
        records: (bench, onStart) => ladder(bench, kernels, problem, () => Operands.random(device, problem), onStart),
      };
    },
  };
}

/**
 * A step of a ladder; one whose kernel is no stage, as those of float64 from integers, follows none, and opens the chapter of its op or type.
 * @param {import("../bundle.js").Bundle} bundle @param {import("../prepared.js").Rung | string} rung or the name of a stage
 * @param {string} [op] @param {string} [dtype] @returns {import("../charts.js").Step}
 */
export function stepOf(bundle, rung, op = "gemm", dtype = op) {
  const { name, label, summary: words } = typeof rung === "string" ? { name: rung, label: rung, summary: "" } : rung;
  if (!bundle.core.STAGES.get(op)?.has(name))
    return { label, summary: words, follows: "", depth: 0, href: `#explain/${dtype}` };
  const { summary, follows } = bundle.stage(name, op);
  return { label, summary, follows, depth: bundle.core.depths(op).get(name), href: `#explain/${op}/${name}` };
}

/** @param {App} app @returns {[string, string][]} element types that the device supports, as options of a list */
export function available(app) {
  return Object.entries(app.bundle.index.dtypes)
    .filter(([, dtype]) => dtype.features.every((feature) => app.device.features.has(feature)))
    .map(([name]) => [name, name]);
}

/** @param {number} gflops @returns {string} the largest size that takes at most 20 ms at this rate */
function defaultSize(gflops) {
  const fitting = SIZES.filter((n) => n <= 4096 && 2 * n ** 3 <= gflops * 1e9 * 0.02);
  return String(fitting.at(-1) ?? SIZES[0]);
}
