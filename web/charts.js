// @ts-check
/** Charts and tables of records: bars, the roofline, and the table. Colours come from the style sheet. */

import { div, drawn, figures, h, percent, row, scrolled, span, table, time } from "./dom.js";
import { shape, speedOf, unitOf } from "./ops.js";
import { bytesOf, flopsOf } from "./webmm.js";

/** @import { RunRecord, Roofline } from "./webmm.js" */

/** @param {RunRecord[]} records @returns {RunRecord | null} */
export function fastest(records) {
  return records.reduce(
    (best, r) => ((r.gflops ?? 0) > (best?.gflops ?? 0) ? r : best),
    /** @type {RunRecord | null} */ (null),
  );
}

/** A stage of a ladder: `follows` names the one that it is compared with besides the first, `depth` is the number of branches that lead to it, and `href` opens its chapter. @typedef {{label: string, summary: string, follows: string, depth: number, href: string}} Step */

/** A bar chart with one bar per stage, updated as records arrive. */
export class Bars {
  #done = 0;
  /** @type {Step[]} */
  #steps = [];
  /** @type {HTMLElement[]} */
  #rows = [];
  element = h("ol", { class: "bars" });

  /** @param {Step[]} stages */
  show(stages) {
    this.#done = 0;
    this.#steps = stages;
    this.#rows = stages.map(({ label, summary, depth, href }, i) =>
      h(
        "li",
        { "data-kernel": label, "data-status": "waiting" },
        h(
          "span",
          { class: "name", title: summary },
          "\u2002".repeat(2 * Math.max(0, depth - 1)) +
            (depth > (stages[i - 1]?.depth ?? 0) ? "└\u2002" : depth ? "\u2002\u2002" : ""),
          h("a", { href }, label),
        ),
        span("track", span("bar")),
        span("value"),
        span("note", summary),
      ),
    );
    this.element.replaceChildren(...this.#rows);
  }

  /** @param {number} i the index of the running stage */
  running(i) {
    this.#show(this.#rows[i], "running", 0, "running …");
  }

  /** Mark the stages without a record as not run. */
  finish() {
    for (const row of this.#rows.slice(this.#done)) this.#show(row, "waiting", 0, "not run");
  }

  /** @param {RunRecord[]} records of one size, in the order of the stages */
  update(records) {
    this.#done = records.length;
    const best = fastest(records);
    const first = records[0];
    for (const [i, record] of records.entries()) {
      const row = this.#rows[i];
      if (record.status !== "ok") {
        this.#show(row, record.status, 0, record.status, record.reason ?? "");
        continue;
      }
      const speed = Number(record.gflops);
      const before = records.slice(0, i).findLast((r) => r.kernel === this.#steps[i].follows);
      const others = [...new Set([first, before])].filter((r) => r?.gflops && r !== record);
      const notes = [
        ...others.map((r) => `${figures(speed / Number(r?.gflops))} × ${r?.kernel}`),
        record.peak_fraction ? `${percent(record.peak_fraction)} of peak` : null,
      ];
      const share = best?.gflops ? speed / best.gflops : 0;
      this.#show(
        row,
        record === best ? "best" : "ok",
        share,
        figures(speedOf(record)),
        notes.filter(Boolean).join(" · ") || "checked",
      );
    }
  }

  /** @param {HTMLElement} row @param {string} status @param {number} share @param {string} value @param {string} [note] */
  #show(row, status, share, value, note) {
    row.dataset.status = status;
    /** @type {HTMLElement} */ (row.querySelector(".bar")).style.setProperty("--share", String(share));
    /** @type {HTMLElement} */ (row.querySelector(".value")).textContent = value;
    if (note !== undefined) /** @type {HTMLElement} */ (row.querySelector(".note")).textContent = note;
  }
}

/** @param {RunRecord[]} records of one problem @param {string} caption @returns {HTMLElement} a table of all measured values */
export function tableOf(records, caption) {
  const called = records.some((r) => r.call_us);
  const ordered = [...records].sort((r, q) => (q.gflops ?? -1) - (r.gflops ?? -1));
  const best = fastest(records);
  const heads = ["Kernel", unitOf(records[0]), "Median", "Best", ...(called ? ["Call"] : []), "Error", "Bound"];
  const figuresOf = (/** @type {RunRecord} */ r) => [
    figures(speedOf(r)),
    time(r.median_us),
    time(r.best_us),
    ...(called ? [time(r.call_us ?? null)] : []),
    exponent(r.max_error),
    exponent(r.error_bound),
  ];
  const failed = (/** @type {RunRecord} */ { status, reason }) =>
    h("td", { colSpan: heads.length - 1, class: "reason" }, h("b", {}, status), ` ${reason ?? ""}`);
  const rows = ordered.map((r) =>
    row([r.kernel, changes(r)], r.status === "ok" ? figuresOf(r) : [failed(r)], { class: r === best ? "best" : "" }),
  );
  const more = span("narrow", `. Swipe the table for ${heads.slice(4).join(", ")}.`);
  return div("", h("p", { class: "hint" }, caption, more), scrolled(caption, table(heads, rows)));
}

/** @param {RunRecord} record */
function changes(record) {
  const settings = Object.entries(record.config)
    .filter(([name]) => SHOWN.has(name) || record.kernel.includes(".")) // a visitor's own text has a point
    .map(([name, value]) => `${name}\u00a0${value}`);
  return settings.length ? span("config", settings.join(" · ")) : null;
}
const SHOWN = new Set(["dot", "size", "tile", "bm", "bn", "bk", "tm", "tn", "wx", "wy", "lanes"]);

/** @param {number | null} value an error, or its bound */
export const exponent = (value) =>
  value === null ? "–" : value === 0 ? "0" : Number.isFinite(value) ? value.toExponential(1) : "∞";

/**
 * The speed of each kernel under the limits of memory bandwidth and FMA rate, on logarithmic axes.
 * @param {RunRecord[]} records @param {Roofline} roofline @param {any} drawings bundle/drawings.js
 * @returns {SVGElement}
 */
export function rooflineChart(records, { gflops, gbytes }, { Point, roofline }) {
  const points = records
    .filter((r) => r.status === "ok")
    .map((r) => {
      const problem = /** @type {import("./webmm.js").Problem} */ (/** @type {unknown} */ (r));
      const words = `${r.kernel} ${shape(r)}: ${figures(r.gflops)} GFLOP/s`;
      return new Point(r.kernel, flopsOf(problem) / bytesOf(problem), Number(r.gflops), words);
    });
  const svg = drawn(roofline(gflops, gbytes, points));
  svg.classList.add("roofline");
  return svg;
}
