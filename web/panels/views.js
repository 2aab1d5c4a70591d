/** Views of a stage: its memory traffic and its place under the roofline, its steps, and what the sliders' changes gain. */

import { facts, intensity, place, roof, walked } from "../bundle/drawings.js";
import { ablation as gains, changes as changesOf } from "../bundle/panels.js";
import { all, byId, h, say } from "../dom.js";

/** @import { App } from "../main.js" */
/** @import { Kernel, Python, RunRecord } from "../webmm.js" */

/** @param {App} app */
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

/** A stage step by step on a small product: what one of its invocations, and its workgroup, reads and sums. */
export function stepsView() {
  const element = byId("steps");
  const [step, invocation] = all("input", "steps-step", "steps-invocation");
  const [jump] = all("button", "steps-jump");
  /** @type {Python} a `Walk` of webmm/page/steps.py */
  let walk = null;
  jump.onclick = () => element.scrollIntoView({ block: "center" });
  step.oninput = invocation.oninput = draw;
  return { show };

  /** Show the steps of a stage, if it has some. @param {string} op @param {string} name */
  function show(op, name) {
    walk = walked(op, name);
    element.hidden = jump.hidden = walk === null;
    if (!walk) return;
    byId("steps-title").textContent = walk.title;
    step.max = String(walk.steps.length - 1);
    invocation.max = String(walk.invocations.length - 1);
    step.value = invocation.value = "0";
    draw();
  }

  function draw() {
    const [at, who] = [Number(step.value), Number(invocation.value)];
    byId("steps-drawing").innerHTML = walk.picture(at, who).plain();
    byId("steps-words").textContent = walk.words(at, who);
    step.setAttribute("aria-valuetext", `${at + 1} of ${walk.steps.length}`);
    invocation.setAttribute("aria-valuetext", `${who} of ${walk.invocations.length}`);
  }
}

/** What changes of a stage gain on this device: each alone, and all together. @param {App} app @param {(kernels: Kernel[], announce: (kernel: Kernel) => unknown) => Promise<RunRecord[]>} measured measures on the problem that is chosen now */
export function ablation(app, measured) {
  const result = byId("explain-ablation");
  const [run] = all("button", "explain-ablate");
  return { show };

  /** Offer to compare a configuration with the one that the stage was opened with. @param {Kernel} standard @param {Kernel} changed @param {boolean} runs whether it can run */
  function show(standard, changed, runs) {
    const changes = changesOf(standard.of, changed.of);
    const alone = changes.flatMap(([, of]) => (of ? app.bundle.wrap(of) : []));
    const kernels = [standard, ...alone, ...(changes.length > 1 ? [changed] : [])];
    const isShown = () => run.onclick === start; // else another configuration is shown now
    const tell = (/** @type {string | Node} */ words) => isShown() && result.replaceChildren(words);
    const compare = async () => {
      const records = await measured(kernels, ({ label }) => tell(`Measuring ${label}`));
      tell(h("div", { innerHTML: gains(changes, records, standard.label).html() }));
    };
    const start = () => app.attempt(run, result, compare);
    result.replaceChildren();
    run.hidden = !runs || changes.length === 0;
    run.onclick = start;
  }
}
