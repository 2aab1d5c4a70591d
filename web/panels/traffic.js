// @ts-check
/** The memory traffic of a stage, and its place under this device's roofline. */

import { button, div, drawn, figures, h, size } from "../dom.js";

/** @import { App } from "../main.js" */
/** @import { Kernel } from "../webmm.js" */
/** @import { Python } from "../bundle.js" */

const SPAN = 256; // around the ridge, in FLOP per byte

/** @param {App} app */
export function trafficView(app) {
  const list = h("dl", { class: "traffic" });
  const chart = div("");
  const message = h("p", { class: "hint" });
  const measure = button("explain-roofline", "Measure this device’s roofline", measureCeilings);
  const element = h(
    "figure",
    { class: "card", id: "explain-traffic" },
    h("figcaption", {}, "Memory traffic"),
    list,
    chart,
    div("row", measure),
    message,
  );
  /** @type {{intensity: number, name: string, gflops: number | null} | null} */
  let shown = null;
  /** @type {Python} the `Axes` of webmm/learn/drawings/axes.py */
  let axes = null;
  app.addEventListener("roofline", () => void draw());
  return { element, show };

  /** @param {Kernel} kernel @param {Python} problem @param {number | null} [gflops] the measured speed, once it has run */
  function show(kernel, problem, gflops = null) {
    const { flops, storage, workgroup, least } = app.bundle.core.moved(kernel.of, problem);
    shown = { intensity: flops / storage, name: kernel.name, gflops };
    const times = storage > 1.005 * least ? `${figures(storage / least)} × the minimum` : "the minimum";
    const within = workgroup ? size(workgroup) : "none";
    const rows = [
      ["Operations", `${figures(flops / 1e6)} MFLOP`],
      ["Storage buffers", `${size(storage)}, ${times}`],
      ["Workgroup memory", workgroup === null ? `${size(kernel.of.workgroup_bytes)} per workgroup` : within],
      ["FLOP per byte of storage", figures(shown.intensity)],
    ];
    list.replaceChildren(...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
    void draw();
  }

  async function draw() {
    measure.hidden = app.ceilings !== null;
    if (!app.ceilings || !shown) return;
    const { gflops: peak, gbytes } = app.ceilings;
    const [{ roofed }, { traffic }] = await Promise.all(
      ["drawings.js", "panels.js"].map((name) => app.bundle.module(name)),
    );
    if (!axes) {
      const ridge = peak / gbytes;
      axes = roofed(peak, gbytes, [ridge / SPAN, ridge * SPAN], [peak / SPAN, peak * 2], "FLOP per byte of storage");
      axes.svg.dot("dot best", 0, 0, 6.5);
      chart.replaceChildren(drawn(axes.svg));
      chart.firstElementChild?.classList.add("roofline");
    }
    const { intensity, name, gflops } = shown;
    const reach = Math.min(peak, intensity * gbytes);
    const [x, y] = axes.within(intensity, gflops ?? reach);
    const dot = /** @type {SVGCircleElement} */ (chart.querySelector(".dot"));
    dot.style.transform = `translate(${x}px, ${y}px)`;
    dot.setAttribute("class", gflops === null ? "dot roof-dot" : "dot best");
    message.textContent = traffic(name, intensity, gflops, reach);
    chart.firstElementChild?.setAttribute("aria-label", String(message.textContent));
  }

  async function measureCeilings() {
    message.textContent = "Measuring this device’s peak compute and memory rates …";
    await app.attempt(measure, message, async () => {
      if (!(await app.roofline())) message.textContent = "The peak rates of this device could not be measured.";
    });
  }
}
