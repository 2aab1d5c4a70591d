// @ts-check
/** A stage step by step on a small product: what one of its invocations, and its workgroup, reads and sums. */

import { button, div, drawn, field, h } from "../dom.js";

/** @import { App } from "../main.js" */
/** @import { Python } from "../bundle.js" */

/** @param {App} app */
export function stepsView({ bundle }) {
  const drawing = div("");
  const words = h("p", { role: "status", id: "steps-words" });
  const step = h("input", { type: "range", id: "steps-step", min: 0, value: 0, oninput: draw });
  const invocation = h("input", { type: "range", id: "steps-invocation", min: 0, value: 0, oninput: draw });
  const title = h("figcaption", {});
  const controls = div("sliders", field("Step", step), field("Invocation", invocation));
  const card = { class: "card tile-picture", id: "steps", hidden: true };
  const element = h("figure", card, title, drawing, controls, words);
  /** @type {Python} a `Walk` of webmm/page/steps.py */
  let walk = null;
  let wanted = "";
  const reveal = () => element.scrollIntoView({ block: "center" });
  const jump = button("steps-jump", "Step through it", reveal, { hidden: true });
  return { element, jump, show };

  /** Show the steps of a stage, if it has some. @param {string} op @param {string} name */
  async function show(op, name) {
    const asked = (wanted = `${op}/${name}`);
    const found = await bundle.module("drawings.js").then(
      ({ walked }) => walked(op, name),
      () => null, // offline, and not cached
    );
    if (asked !== wanted) return;
    walk = found;
    element.hidden = jump.hidden = walk === null;
    if (!walk) return;
    title.textContent = walk.title;
    step.max = String(walk.steps.length - 1);
    invocation.max = String(walk.invocations.length - 1);
    step.value = invocation.value = "0";
    draw();
  }

  function draw() {
    const [at, who] = [Number(step.value), Number(invocation.value)];
    drawing.replaceChildren(drawn(walk.picture(at, who)));
    words.textContent = walk.words(at, who);
    step.setAttribute("aria-valuetext", `${at + 1} of ${walk.steps.length}`);
    invocation.setAttribute("aria-valuetext", `${who} of ${walk.invocations.length}`);
  }
}
