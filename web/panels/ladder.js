/** The ladder: runs all stages of an op at one size, and shows bars, the roofline and a table of the results. */

import { Bench, ladder, taskOf } from "../bench.js";
import { explained, found, size_of, speed_of, unit_of } from "../bundle/core.js";
import { barChart, tableOf } from "../charts.js";
import { all, bind, byId, download, h, options, say } from "../dom.js";
import { toJson } from "../records.js";
import { choosing, products } from "./subjects.js";

/** @import { RunRecord, Roofline } from "../webmm.js" */

/** @param {import("../main.js").App} app @param {HTMLElement} root */
export function setup(app, root) {
  const { device } = app;
  const [ops, sizes, dtypes] = all("select", "ladder-op", "ladder-size", "ladder-dtype");
  const [run, stop, save, report] = all("button", "ladder-run", "ladder-stop", "ladder-save", "ladder-report");
  const [message, axis] = all("p", "ladder-message", "ladder-axis");
  const [progress] = all("progress", "ladder-progress");
  const details = byId("ladder-details");
  /** @type {RunRecord[]} */
  let records = [];
  /** @type {Map<string, RunRecord[]>} the ladders of matrix products on this device, by size and element type: what a report has */
  const reported = new Map();
  let subject = products(app);
  /** @type {ReturnType<typeof barChart>} */
  let draw;

  const saveRecords = () => download("webmm-ladder.json", toJson(records), "application/json");
  bind(root, { start, saveRecords, saveReport });
  choosing(app, "ladder", message, show, [run]);
  show(subject);
  app.addEventListener("speed", () => ([sizes.selectedIndex] = subject.usual(app.speed)));

  /** Show the sizes, element types and stages of a ladder. @param {typeof subject} chosen */
  function show(chosen) {
    subject = chosen;
    sizes.replaceChildren(...options(subject.sizes));
    [sizes.selectedIndex] = subject.usual(app.speed);
    dtypes.replaceChildren(...options(subject.dtypes));
    axis.textContent = `${unit_of(subject)} of each stage; longer bars are faster`;
    save.disabled = true;
    clear();
  }

  function clear() {
    records = [];
    details.replaceChildren();
    draw = barChart(subject.steps);
  }

  async function start() {
    clear();
    const locked = [run, ops, sizes, dtypes, save, report];
    await app.attempt(locked, message, (signal) => runLadder(new Bench(device, { signal })), { stop, progress });
    draw(records, "finished");
    save.disabled = records.length === 0;
    report.disabled = reported.size === 0;
  }

  /** @param {Bench} bench */
  async function runLadder(bench) {
    const [on, problem] = [subject, subject.problem(sizes.value, dtypes.value)];
    const kernels = on.kernels(problem).map((of) => on.made?.(of) ?? device.bundle.wrap(of));
    progress.max = kernels.length;
    const announce = (/** @type {string} */ words) => {
      draw(records, "running");
      say(message, words);
    };
    say(message, "Preparing the operands …");
    for await (const record of ladder(bench, kernels, taskOf(problem), () => on.load(problem), announce)) {
      records.push(record);
      app.showBest(record, kernels[records.length - 1].label);
      progress.value = records.length;
      draw(records, "waiting");
    }
    const stopped = Boolean(bench.signal?.aborted);
    if (!stopped && records.some((r) => r.status === "ok")) {
      say(message, "Measuring this device's peak compute and memory rates …");
      const roofline = await app.roofline();
      if (roofline) await addRoofline(roofline, kernels);
    }
    finish(stopped);
  }

  /** @param {Roofline} roofline @param {import("../bench.js").Runnable[]} kernels */
  async function addRoofline({ gflops, gbytes }, kernels) {
    const peak = unit_of(subject) === "GB/s" ? gbytes : gflops;
    const share = (/** @type {RunRecord} */ r) => r.gflops && speed_of(r) / peak;
    records = records.map((r, i) => ({ ...r, peak_fraction: kernels[i].matrix ? null : share(r) }));
    draw(records, "waiting");
    if (ops.value !== "0") return;
    const { roofline_of } = await import("../bundle/drawings.js");
    const chart = h("div", { innerHTML: roofline_of(records, gflops, gbytes).plain("roofline") });
    details.prepend(h("figure", { class: "card" }, h("figcaption", {}, "Roofline"), chart));
  }

  /** @param {boolean} stopped */
  function finish(stopped) {
    app.tell(message, found(records, subject.steps, stopped));
    if (records.length === 0) return;
    details.append(tableOf(records, explained(records)));
    const problem = `${size_of(records[0])} ${records[0].dtype}`;
    if (ops.value === "0" && records.some((r) => r.gflops)) reported.set(problem, records);
    const what = ops.value === "0" ? "ladder" : `ladder of ${ops.selectedOptions[0].text.toLowerCase()}`;
    app.addRun(`${what} ${problem}, this browser`, records);
  }

  async function saveReport() {
    await app.attempt(report, message, async () => {
      const made = await import("./report.js");
      download("webmm-report.json", await made.report(app, [...reported.values()].flat()), "application/json");
      message.replaceChildren(...made.contents(app));
    });
  }
}
