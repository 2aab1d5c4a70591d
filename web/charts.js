// @ts-check
/** Charts and tables of records: bars, the roofline, and the table. Colours come from the style sheet. */

import { figures, h, percent, s, time } from "./dom.js";
import { shape, speedOf, unitOf } from "./ops.js";
import { bytesOf, flopsOf } from "./webmm.js";

/** @typedef {import("./webmm.js").RunRecord} RunRecord */
/** @typedef {import("./webmm.js").Roofline} Roofline */

/** @param {RunRecord} record */
const problem = (record) => ({
  m: record.m,
  n: record.n,
  k: record.k,
  dtype: /** @type {import("./webmm.js").DType} */ (record.dtype),
});

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
        h("span", { class: "track" }, h("span", { class: "bar" })),
        h("span", { class: "value" }, ""),
        h("span", { class: "note" }, summary),
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
export function table(records, caption) {
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
  const rows = ordered.map((r) =>
    h(
      "tr",
      { class: r === best ? "best" : "" },
      h("th", { scope: "row" }, r.kernel, changes(r)),
      ...(r.status === "ok"
        ? figuresOf(r).map((x) => h("td", { class: "number" }, x))
        : [h("td", { colSpan: heads.length - 1, class: "reason" }, h("b", {}, r.status), ` ${r.reason ?? ""}`)]),
    ),
  );
  return h(
    "div",
    {},
    h(
      "p",
      { class: "hint" },
      caption,
      h("span", { class: "narrow" }, `. Swipe the table for ${heads.slice(4).join(", ")}.`),
    ),
    h(
      "div",
      { class: "scroll", tabIndex: 0, role: "region", "aria-label": caption },
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
        h("tbody", {}, ...rows),
      ),
    ),
  );
}

/** @param {RunRecord} record */
function changes(record) {
  const settings = Object.entries(record.config)
    .filter(([name]) => SHOWN.has(name))
    .map(([name, value]) => `${name}\u00a0${value}`);
  return settings.length ? h("span", { class: "config" }, settings.join(" · ")) : null;
}
const SHOWN = new Set(["dot", "size", "tile", "bm", "bn", "bk", "tm", "tn", "wx", "wy", "lanes"]);

/** @param {number | null} value an error, or its bound */
export const exponent = (value) =>
  value === null ? "–" : value === 0 ? "0" : Number.isFinite(value) ? value.toExponential(1) : "∞";

const WIDTH = 480;
const HEIGHT = 400;
const MARGIN = { left: 56, right: 18, top: 18, bottom: 44 };

/**
 * The speed of each kernel under the limits of memory bandwidth and FMA rate, on logarithmic axes.
 * @param {RunRecord[]} records @param {Roofline} roofline
 * @returns {SVGElement}
 */
export function rooflineChart(records, roofline) {
  const points = records
    .filter((r) => r.status === "ok")
    .map((r) => ({ r, x: flopsOf(problem(r)) / bytesOf(problem(r)), y: Number(r.gflops) }));
  const ridge = roofline.gflops / roofline.gbytes;
  const xs = [ridge / 4, ridge * 4, ...points.map((p) => p.x / 1.6), ...points.map((p) => p.x * 2.4)];
  const ys = [
    roofline.gflops * 2,
    ...points.map((p) => p.y / 1.8),
    ...points.map((p) => p.y * 1.8),
    roofline.gflops / 50,
  ];
  const { svg, x, y } = roof(
    roofline,
    [Math.min(...xs), Math.max(...xs)],
    [Math.min(...ys), Math.max(...ys)],
    "FLOP per byte of A, B and C",
  );
  const best = fastest(records);
  if (best)
    svg.setAttribute(
      "aria-label",
      `${svg.getAttribute("aria-label")}; the fastest kernel, ${best.kernel}, reached ${figures(best.gflops)} GFLOP/s`,
    );
  svg.append(
    ...points.map(({ r, x: px, y: py }) =>
      s(
        "circle",
        { class: r === best ? "dot best" : "dot", cx: x(px), cy: y(py), r: r === best ? 6.5 : 4.5 },
        s("title", {}, `${r.kernel} ${shape(r)}: ${figures(r.gflops)} GFLOP/s`),
      ),
    ),
    ...labels(points, x, y, best),
  );
  return svg;
}

/**
 * Draw a roofline and its axes, without points.
 * @param {Roofline} roofline @param {[number, number]} across range of FLOP per byte @param {[number, number]} up range of GFLOP/s
 * @param {string} words label of the horizontal axis
 * @returns {{svg: SVGElement, x: Scale, y: Scale}}
 */
export function roof(roofline, across, up, words) {
  const x = scale(...across, MARGIN.left, WIDTH - MARGIN.right);
  const y = scale(...up, HEIGHT - MARGIN.bottom, MARGIN.top);
  const ridgeX = Math.min(Math.max(roofline.gflops / roofline.gbytes, x.low), x.high);
  const sloped = Math.max(x.low, y.low / roofline.gbytes);
  const svg = s(
    "svg",
    {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      class: "roofline",
      role: "img",
      "aria-label": `Roofline: this device computes at most ${figures(roofline.gflops)} GFLOP/s and moves ${figures(roofline.gbytes)} GB/s`,
    },
    ...ticks(x).map((t) =>
      s(
        "g",
        {},
        s("line", { class: "grid", x1: x(t), x2: x(t), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }),
        s("text", { class: "tick", x: x(t), y: HEIGHT - MARGIN.bottom + 17, "text-anchor": "middle" }, figures(t)),
      ),
    ),
    ...ticks(y).map((t) =>
      s(
        "g",
        {},
        s("line", { class: "grid", x1: MARGIN.left, x2: WIDTH - MARGIN.right, y1: y(t), y2: y(t) }),
        s("text", { class: "tick", x: MARGIN.left - 7, y: y(t) + 4, "text-anchor": "end" }, figures(t)),
      ),
    ),
    s("text", { class: "axis", x: (MARGIN.left + WIDTH) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, words),
    s(
      "text",
      {
        class: "axis",
        x: 14,
        y: HEIGHT / 2 - 14,
        "text-anchor": "middle",
        transform: `rotate(-90 14 ${HEIGHT / 2 - 14})`,
      },
      "GFLOP/s",
    ),
    s("path", {
      class: "roof",
      d: `M${x(sloped)},${y(sloped * roofline.gbytes)} L${x(ridgeX)},${y(ridgeX * roofline.gbytes)} L${x(x.high)},${y(roofline.gflops)}`,
    }),
    s(
      "text",
      { class: "roof-label", x: WIDTH - MARGIN.right - 4, y: y(roofline.gflops) - 8, "text-anchor": "end" },
      `peak: ${figures(roofline.gflops)} GFLOP/s`,
    ),
    s(
      "text",
      { class: "roof-label", x: MARGIN.left + 8, y: MARGIN.top + 12 },
      `memory: ${figures(roofline.gbytes)} GB/s`,
    ),
  );
  return { svg, x, y };
}

/**
 * Names next to the dots, shifted so that they do not overlap.
 * @param {{r: RunRecord, x: number, y: number}[]} points @param {Scale} x @param {Scale} y @param {RunRecord | null} best
 */
function labels(points, x, y, best) {
  const sorted = [...points].sort((p, q) => q.y - p.y);
  let last = -Infinity;
  return sorted.map(({ r, x: px, y: py }) => {
    const at = Math.max(y(py) + 4, last + 13);
    last = at;
    const left = x(px) > WIDTH * 0.72;
    return s(
      "text",
      {
        class: r === best ? "name best" : "name",
        x: x(px) + (left ? -11 : 11),
        y: at,
        "text-anchor": left ? "end" : "start",
      },
      r.kernel,
    );
  });
}

/** @typedef {((value: number) => number) & {low: number, high: number}} Scale */

/** @param {number} low @param {number} high @param {number} from @param {number} to @returns {Scale} logarithmic */
function scale(low, high, from, to) {
  const span = Math.log(high / low);
  return Object.assign((/** @type {number} */ value) => from + (Math.log(value / low) / span) * (to - from), {
    low,
    high,
  });
}

/** @param {Scale} axis @returns {number[]} the powers of ten in its range, or those of four if fewer than three */
function ticks(axis) {
  const powers = (/** @type {number} */ base) => {
    const out = [];
    for (let e = Math.ceil(Math.log(axis.low) / Math.log(base)); base ** e <= axis.high; e++) out.push(base ** e);
    return out;
  };
  const tens = powers(10);
  return tens.length >= 3 ? tens : powers(4);
}
