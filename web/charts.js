// @ts-check
/** Bars and tables of records. Colours come from the style sheet. */

import { bars, results } from "./bundle/core.js";
import { byId, div, h, scrolled, span, table } from "./dom.js";

/** @import { RunRecord } from "./webmm.js" */
/** A `Step` of webmm/page/tables.py. @typedef {import("./bundle/core.js").Step} Step */

/** A bar chart with one bar per stage, updated as records arrive. */
export class Bars {
  #done = 0;
  /** @type {Step[]} */
  #steps = [];
  /** @type {HTMLElement[]} */
  #rows = [];

  /** @param {Step[]} stages */
  show(stages) {
    this.#done = 0;
    this.#steps = stages;
    this.#rows = stages.map(({ label, summary, branch, href }) => {
      const name = h(
        "span",
        { class: "name", title: summary },
        branch.replaceAll(" ", "\u2002"),
        h("a", { href }, label),
      );
      const others = [span("track", span("bar")), span("value"), span("note", summary)];
      return h("li", { "data-kernel": label, "data-status": "waiting" }, name, ...others);
    });
    byId("ladder-bars").replaceChildren(...this.#rows);
  }

  /** @param {number} i the index of the running stage */
  running(i) {
    this.#show(this.#rows[i], "running", "running …");
  }

  /** Mark the stages without a record as not run. */
  finish() {
    for (const row of this.#rows.slice(this.#done)) this.#show(row, "waiting", "not run");
  }

  /** @param {RunRecord[]} records of one size, in the order of the stages */
  update(records) {
    this.#done = records.length;
    const follows = this.#steps.map((step) => step.follows);
    for (const [i, { status, value, share, note }] of bars(records, follows).entries())
      this.#show(this.#rows[i], status, value, share, note);
  }

  /** @param {HTMLElement} row @param {string} status @param {string} value @param {number} [share] @param {string} [note] */
  #show(row, status, value, share = 0, note) {
    const [, { firstElementChild: bar }, figure, words] = row.children;
    row.dataset.status = status;
    /** @type {HTMLElement} */ (bar).style.setProperty("--share", String(share));
    figure.textContent = value;
    words.textContent = note ?? words.textContent;
  }
}

/** @param {RunRecord[]} records of one problem @param {string} caption @returns {HTMLElement} a table of all measured values */
export function tableOf(records, caption) {
  const described = results(records, changes);
  const more = span("narrow", `. Swipe the table for ${described.heads.slice(4).join(", ")}.`);
  return div("card", h("p", { class: "hint" }, caption, more), scrolled(caption, table(described)));
}

const SHOWN = new Set(["dot", "size", "tile", "bm", "bn", "bk", "tm", "tn", "wx", "wy", "lanes"]);

/** @param {RunRecord} record @returns {string} the settings of its kernel that a table shows */
const changes = ({ kernel, config }) =>
  Object.entries(config)
    .filter(([name]) => SHOWN.has(name) || kernel.includes(".")) // a visitor's own text has a point
    .map(([name, value]) => `${name}\u00a0${value}`)
    .join(" · ");
