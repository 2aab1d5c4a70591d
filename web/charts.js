/** Bars and tables of records. Colours come from the style sheet. */

import { bars, empty_bars, results } from "./bundle/core.js";
import { byId, div, h, scrolled, span } from "./dom.js";

/** @import { RunRecord } from "./webmm.js" */
/** A `Step` of webmm/page/tables.py. @typedef {import("./bundle/core.js").Step} Step */

/** Show a bar for each stage. @param {Step[]} steps of a ladder that waits @returns what shows its records as they arrive */
export function barChart(steps) {
  const list = byId("ladder-bars");
  list.innerHTML = empty_bars(steps);
  draw([], "waiting");
  return draw;

  /** @param {RunRecord[]} records of one size, in the order of the stages @param {"waiting" | "running" | "finished"} state */
  function draw(records, state) {
    for (const [i, { status, value, share, note }] of bars(records, steps, state).entries()) {
      const [, { firstElementChild: bar }, figure, words] = list.children[i].children;
      /** @type {HTMLElement} */ (list.children[i]).dataset.status = status;
      /** @type {HTMLElement} */ (bar).style.setProperty("--share", String(share));
      figure.textContent = value;
      words.textContent = note;
    }
  }
}

/** @param {RunRecord[]} records of one problem @param {string} caption @returns {HTMLElement} a table of all measured values */
export function tableOf(records, caption) {
  const described = results(records);
  const more = span("narrow", `. Swipe the table for ${described.heads.slice(4).join(", ")}.`);
  return div("card", h("p", { class: "hint" }, caption, more), scrolled(caption, described));
}
