/** The memory traffic of a stage, and its place under this device's roofline. */

import { facts, intensity, place, roof } from "../bundle/drawings.js";
import { all, byId, h, say } from "../dom.js";

/** @import { Kernel, Python } from "../webmm.js" */

/** @param {import("../main.js").App} app */
export function trafficView(app) {
  const [message] = all("p", "traffic-words");
  const [measure] = all("button", "explain-roofline");
  const chart = byId("traffic-chart");
  /** @type {{name: string, loaded: number, gflops: number | null}} what the kernel computes in FLOP per byte, and its speed */
  let shown;
  /** @type {Python} the `Axes` of webmm/learn/drawings/axes.py */
  let axes = null;
  measure.onclick = measureCeilings;
  app.addEventListener("roofline", draw);
  return { show };

  /** @param {Kernel} kernel @param {Python} problem @param {number | null} [gflops] the measured speed, once it has run */
  function show({ name, of }, problem, gflops = null) {
    shown = { name, loaded: intensity(of, problem), gflops };
    const list = facts(of, problem).flatMap(([term, words]) => [h("dt", {}, term), h("dd", {}, words)]);
    byId("traffic-list").replaceChildren(...list);
    draw();
  }

  function draw() {
    if (!app.ceilings) return;
    const { gflops: peak, gbytes } = app.ceilings;
    if (!axes) {
      axes = roof(peak, gbytes);
      chart.innerHTML = axes.svg.plain("roofline");
    }
    const { name, loaded, gflops } = shown;
    const reach = Math.min(peak, loaded * gbytes);
    const [x, y] = axes.within(loaded, gflops ?? reach);
    const dot = /** @type {SVGCircleElement} */ (chart.querySelector(".dot"));
    dot.style.transform = `translate(${x}px, ${y}px)`;
    dot.setAttribute("class", gflops === null ? "dot roof-dot" : "dot best");
    say(message, place(name, loaded, gflops, reach));
    chart.firstElementChild?.setAttribute("aria-label", String(message.textContent));
  }

  function measureCeilings() {
    const work = async () => {
      if (!(await app.roofline())) say(message, "The peak rates of this device could not be measured.");
    };
    return app.attempt(measure, message, work, { words: "Measuring this device’s peak compute and memory rates …" });
  }
}
