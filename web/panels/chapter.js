// @ts-check
/** The chapters of the course: their text, loaded on demand, and the gain of a stage on this device where it is told. */

import { button, byId, div, figures, h } from "../dom.js";
import { shape, speedOf, unitOf } from "../ops.js";
import { inWords } from "../webmm.js";
import { highlighted } from "./code.js";

/** @import { App } from "../main.js" */

/**
 * @param {App} app
 * @param {{runs: (op: string, ...stages: string[]) => boolean, measure: (name: string, follows: string) => Promise<string>, gained: any}} panel whether it runs these stages of an op, how to measure a stage and the one that it follows, and `gained()` of webmm/page/runs.py
 */
export function chapterView(app, { runs, measure, gained }) {
  const { bundle } = app;
  const element = h("article", { class: "card chapter", id: "chapter", hidden: true });
  const gain = div("");
  let shown = "";
  /** @type {string | undefined} of the section that was asked for */
  let anchor;
  /** @type {Map<string, string>} why the gain of a stage, as OP/STAGE, could not be measured */
  const notes = new Map();
  const fillAll = () => [gain, element].forEach(fill);
  app.addEventListener("runs", fillAll);
  return { element, gain, show, reveal };

  /** Scroll to the start of the chapter, or to the section that was asked for, unless it is on the screen. */
  function reveal() {
    const place = byId(`to-${anchor}`) ?? element;
    const { top } = place.getBoundingClientRect();
    if (top < 0 || top > 0.8 * innerHeight) place.scrollIntoView();
  }

  /** Show the chapter of a name or of OP/STAGE, or none if there is none. @param {string} name @returns {Promise<boolean>} whether there is one */
  async function show(name) {
    const isStage = bundle.core.STAGES.get(name.split("/")[0])?.has(name.split("/")[1]);
    if (isStage) gain.replaceChildren(h("div", { class: "here", "data-stage": name }));
    fill(gain);
    shown = name;
    try {
      const { chapters, told } = await bundle.lessons();
      const [asked, section] = (Object.hasOwn(told, name) ? told[name] : name).split("~");
      anchor = section;
      const at = chapters.findIndex(([each]) => each === asked);
      const text = at < 0 ? "" : await bundle.packed(`learn/${asked}`);
      if (shown !== name) return false;
      element.hidden = at < 0;
      element.innerHTML = text;
      for (const code of element.querySelectorAll("code.language-wgsl"))
        code.replaceChildren(...highlighted(String(code.textContent)));
      const link = (/** @type {number} */ i, /** @type {string} */ words) =>
        chapters[i] && h("a", { href: `#explain/${chapters[i][0]}`, rel: words }, `${words}: ${chapters[i][1]}`);
      if (at >= 0)
        element.append(
          h("nav", { class: "row", "aria-label": "Chapters" }, link(at - 1, "Previous"), link(at + 1, "Next")),
        );
      fill(element);
      return at >= 0;
    } catch (error) {
      element.hidden = false;
      element.replaceChildren(h("p", { class: "hint" }, inWords(error)));
      return false;
    }
  }

  /** Show the gain on this device wherever a text asks for it. @param {HTMLElement} of */
  function fill(of) {
    for (const place of /** @type {NodeListOf<HTMLElement>} */ (of.querySelectorAll(".here"))) {
      const [op, name] = String(place.dataset.stage).split("/");
      place.replaceChildren(...hereOf(op, name));
    }
  }

  /** @param {string} of an op @param {string} name @returns {Node[]} */
  function hereOf(of, name) {
    const { follows } = bundle.stage(name, of);
    if (!follows) return [];
    const [record, before] = gained(app.measured, of, [name, follows], shape);
    const words = h("p", { role: "status" }, notes.get(`${of}/${name}`));
    if (record && before)
      words.replaceChildren(
        h("strong", {}, `${figures(Number(record.gflops) / Number(before.gflops))} × ${follows} on this device`),
        `: ${figures(speedOf(record))} against ${figures(speedOf(before))} ${unitOf(record)} at ${shape(record)} ${record.dtype}.`,
      );
    const run = button("", `Measure ${follows} and ${name} here`, start);
    return runs(of, name, follows) && !record ? [words, run] : [words];

    async function start() {
      notes.set(`${of}/${name}`, "Measuring …");
      fillAll();
      notes.set(`${of}/${name}`, await measure(name, follows).catch(inWords));
      fillAll();
    }
  }
}
