/** A stage step by step on a small product: what one of its invocations, and its workgroup, reads and sums. */

import { walked } from "../bundle/drawings.js";
import { all, byId } from "../dom.js";

/** @import { Python } from "../bundle.js" */

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
