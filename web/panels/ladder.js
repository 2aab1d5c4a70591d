// @ts-check
/** Every stage on one size: bars as they come in, then the roofline and the table. */

import { Bench, ladder } from "../bench.js";
import { Bars, fastest, rooflineChart, table } from "../charts.js";
import { download, field, figures, h, select, shape } from "../dom.js";
import { toJson } from "../records.js";
import { DeviceLostError, inWords } from "../webmm.js";

/** @typedef {import("../main.js").App} App */
/** @typedef {import("../webmm.js").RunRecord} RunRecord */

const SIZES = [128, 256, 512, 1024, 2048, 4096, 8192];

/** @param {App} app @param {HTMLElement} root */
export function setup(app, root) {
  const { device } = app;
  const stages = app.bundle.index.kernels;
  const sizes = select({ id: "ladder-size", name: "size" }, SIZES.map((n) => [String(n), `${n} × ${n} × ${n}`]));
  const dtypes = select({ id: "ladder-dtype", name: "dtype" }, available(app));
  const run = h("button", { type: "button", class: "primary", id: "ladder-run", onclick: start }, "Run the ladder");
  const stop = h("button", { type: "button", id: "ladder-stop", disabled: true, onclick: () => controller?.abort() }, "Stop");
  const save = h("button", { type: "button", id: "ladder-save", disabled: true, onclick: keep }, "Save records");
  const progress = h("progress", { max: stages.length, value: 0, "aria-label": "Progress of the ladder" });
  const message = h("p", { class: "message", id: "ladder-message" }, "Each stage changes one thing about the one before it. Every result is checked before it is timed.");
  const bars = new Bars(stages.map((stage) => stage.name), (name) => app.bundle.stage(name).summary);
  const details = h("div", { class: "details" });
  /** @type {AbortController | null} */
  let controller = null;
  /** @type {RunRecord[]} */
  let records = [];

  sizes.value = device.info.kind === "cpu" ? "256" : "1024";
  app.addEventListener("speed", () => (sizes.value = defaultSize(app.speed)));
  root.append(
    h("div", { class: "lead" }, h("h2", {}, "The ladder"), message),
    h("div", { class: "controls" }, field("Size", sizes), field("Element type", dtypes), run, stop, save),
    progress,
    h("div", { class: "card" }, h("p", { class: "axis-title" }, "GFLOP/s of each stage, the longer the faster"), bars.element),
    details,
  );

  async function start() {
    controller = new AbortController();
    records = [];
    bars.clear();
    details.replaceChildren();
    running(true);
    try {
      await app.exclusively(() => climb(new Bench(device, { signal: controller?.signal })));
    } catch (error) {
      message.textContent = error instanceof DeviceLostError ? `Stopped: the GPU is gone (${inWords(error)}).` : inWords(error);
    } finally {
      bars.finish();
      running(false);
    }
  }

  /** @param {Bench} bench */
  async function climb(bench) {
    const n = Number(sizes.value);
    const problem = { m: n, n, k: n, dtype: /** @type {any} */ (dtypes.value) };
    const kernels = stages.map((stage) => device.stage(stage.name));
    progress.max = kernels.length;
    for await (const record of ladder(bench, kernels, [problem], announce)) {
      records.push(record);
      progress.value = records.length;
      bars.update(records);
    }
    const stopped = bench.signal?.aborted;
    if (!stopped && records.some((r) => r.status === "ok")) {
      message.textContent = "Measuring this device's ceilings …";
      const roofline = await app.roofline();
      if (roofline) addRoofline(roofline);
    }
    finish(Boolean(stopped));
  }

  /** @param {{name: string}} kernel @param {{m: number, n: number, k: number}} problem @param {number} done @param {number} total */
  function announce(kernel, problem, done, total) {
    bars.running(kernel.name);
    message.textContent = `${kernel.name} at ${shape(problem)}, ${done + 1} of ${total} …`;
  }

  /** @param {import("../webmm.js").Roofline} roofline */
  function addRoofline(roofline) {
    records = records.map((r) => ({ ...r, peak_fraction: r.gflops && r.gflops / roofline.gflops }));
    bars.update(records);
    details.prepend(h("figure", { class: "card" }, h("figcaption", {}, "Roofline"), rooflineChart(records, roofline)));
  }

  /** @param {boolean} stopped */
  function finish(stopped) {
    const best = fastest(records);
    const words = best
      ? `${stopped ? "Stopped. " : ""}Fastest: ${best.kernel} at ${figures(best.gflops)} GFLOP/s on ${shape(best)}.`
      : stopped ? "Stopped before the first result." : "No stage could run at this size.";
    message.textContent = words;
    app.announce(words);
    if (records.length === 0) return;
    const left = records.filter((r) => r.status !== "ok").length;
    const caption = `${records.length - left} results${left ? `, ${left} left out` : ""}, fastest first`;
    details.append(h("div", { class: "card" }, table(records, caption)));
    app.addRun(`ladder ${shape(records[0])} ${records[0].dtype}, this browser`, records);
  }

  /** @param {boolean} on */
  function running(on) {
    run.disabled = sizes.disabled = dtypes.disabled = on;
    stop.disabled = !on;
    save.disabled = on || records.length === 0;
    progress.classList.toggle("on", on);
    if (!on) progress.value = 0;
  }

  function keep() {
    download("webmm-ladder.json", toJson(records), "application/json");
  }
}

/** @param {App} app @returns {[string, string][]} element types that the adapter can store */
export function available(app) {
  return Object.entries(app.bundle.index.dtypes)
    .filter(([, dtype]) => dtype.features.every((feature) => app.device.features.has(feature)))
    .map(([name]) => [name, name]);
}

/** @param {number} gflops @returns {string} the largest size of which a good kernel takes at most 20 ms */
function defaultSize(gflops) {
  const fitting = SIZES.filter((n) => n <= 4096 && 2 * n ** 3 <= gflops * 1e9 * 0.02);
  return String(fitting.at(-1) ?? SIZES[0]);
}
