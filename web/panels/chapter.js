/** The chapters of the course: their text, loaded on demand, and the gain of a stage on this device where it is told. */

import { gain } from "../bundle/panels.js";
import { button, byId, h } from "../dom.js";
import { inWords } from "../webmm.js";
import { highlighted } from "./code.js";

/** @import { App } from "../main.js" */

/** `runs` tells whether the panel runs these stages of an op; `measure` measures a stage and the one that it follows. @param {App} app @param {{runs: (op: string, ...stages: string[]) => boolean, measure: (name: string, follows: string) => Promise<string>}} panel */
export function chapterView(app, { runs, measure }) {
  const { bundle } = app;
  const [element, above] = [byId("chapter"), byId("chapter-gain")];
  let shown = "";
  /** @type {string | undefined} of the section that was asked for */
  let anchor;
  /** @type {Map<string, string>} why the gain of a stage, as OP/STAGE, could not be measured */
  const notes = new Map();
  app.addEventListener("runs", fill);
  return { show, reveal };

  /** Scroll to the start of the chapter, or to the section that was asked for, unless it is on the screen. */
  function reveal() {
    const place = byId(`to-${anchor}`) ?? element;
    const { top } = place.getBoundingClientRect();
    if (top < 0 || top > 0.8 * innerHeight) place.scrollIntoView();
  }

  /** Show the chapter of a name or of OP/STAGE, or none if there is none. @param {string} name */
  async function show(name) {
    const [op, stage] = name.split("/");
    if (bundle.core.STAGES.get(op)?.has(stage)) above.replaceChildren(h("div", { class: "here", "data-stage": name }));
    fill();
    shown = name;
    try {
      const places = await bundle.lessons();
      const place = places.get(name) ?? name;
      const [asked, section] = place.split("~");
      anchor = section;
      const text = places.has(asked) ? await bundle.packed(`learn/${asked}`) : "";
      if (shown !== name) return;
      element.hidden = text === "";
      element.innerHTML = text;
      for (const code of element.querySelectorAll("code.language-wgsl"))
        code.replaceChildren(...highlighted(String(code.textContent)));
      fill();
    } catch (error) {
      element.hidden = false;
      element.replaceChildren(h("p", { class: "hint" }, inWords(error)));
    }
  }

  /** Show the gain on this device above the chapter, and wherever its text asks for it. */
  function fill() {
    for (const place of [...above.children, ...element.querySelectorAll(".here")]) {
      const [op, name] = String(/** @type {HTMLElement} */ (place).dataset.stage).split("/");
      place.replaceChildren(...hereOf(op, name));
    }
  }

  /** @param {string} of an op @param {string} name @returns {Node[]} */
  function hereOf(of, name) {
    const { follows } = bundle.stage(name, of);
    if (!follows) return [];
    const [times, speeds] = gain(app.measured, of, name, follows);
    const told = times ? [h("strong", {}, times), speeds] : [notes.get(`${of}/${name}`)];
    const words = h("p", { role: "status" }, ...told);
    return times || !runs(of, name, follows) ? [words] : [words, button(`Measure ${follows} and ${name} here`, start)];

    async function start() {
      notes.set(`${of}/${name}`, "Measuring …");
      fill();
      notes.set(`${of}/${name}`, await measure(name, follows).catch(inWords));
      fill();
    }
  }
}
