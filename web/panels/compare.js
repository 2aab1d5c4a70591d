// @ts-check
/** A comparison of two runs, such as this browser and Python on the same machine. */

import { div, figures, h, options, row, scrolled, select, span, table } from "../dom.js";
import { shape, speedOf, unitOf } from "../ops.js";

/** @import { App } from "../main.js" */
/** @import { RunRecord } from "../webmm.js" */
/** @typedef {{name: string, records: RunRecord[]}} Run */

/** @param {App} app @param {any} panels bundle/panels.js @returns {HTMLElement} */
export function comparison(app, { compared, likely }) {
  const left = select({ id: "compare-left", "aria-label": "First run", onchange: show });
  const right = select({ id: "compare-right", "aria-label": "Second run", onchange: show });
  const body = div("");
  const element = h("div", { class: "card", id: "compare" }, h("h3", {}, "Two runs side by side"), body);
  app.addEventListener("runs", update);
  update();
  return element;

  function update() {
    const chosen = [left.value, right.value];
    const names = app.runs.map((run) => run.name);
    for (const list of [left, right]) list.replaceChildren(...options(names));
    left.value = names.includes(chosen[0]) ? chosen[0] : likely(app.runs, shape);
    right.value = names[0] ?? ""; // the newest run
    show();
  }

  function show() {
    const [a, b] = [left.value, right.value].map((name) => app.runs.find((run) => run.name === name));
    const others = "run the ladder or the tuner, import saved results, or open a shared link";
    if (!a || !b) {
      body.replaceChildren(h("p", { class: "hint" }, `To see runs here, ${others}.`));
      return;
    }
    body.replaceChildren(
      ...(a === b && app.runs.length === 1
        ? [h("p", { class: "hint pair" }, `Only one run so far: ${a.name}. To compare it with another, ${others}.`)]
        : [div("pair", left, h("span", { "aria-hidden": "true" }, "and"), right)]),
      sideBySide(a, b),
    );
  }

  /** @param {Run} a @param {Run} b maybe the same run, which is shown once */
  function sideBySide(a, b) {
    const [exact, pairs] = compared(a, b, shape);
    const figure = (/** @type {RunRecord | null} */ r) =>
      r ? (r.status === "ok" ? figures(speedOf(r)) : r.status) : "–";
    const rows = pairs.map((/** @type {(RunRecord | null)[]} */ [p, q]) => {
      const any = /** @type {RunRecord} */ (p ?? q);
      const ratio = p?.gflops && q?.gflops ? `${figures(q.gflops / p.gflops)} ×` : "";
      const sizes = [...new Set([p, q].flatMap((r) => (r ? shape(r) : [])))].join(" and ");
      const about = span("config", `${sizes} ${any.dtype}, ${unitOf(any)}`);
      return row([any.kernel, about], a === b ? [figure(p)] : [figure(p), figure(q), ratio]);
    });
    const who = (/** @type {RunRecord[]} */ records) =>
      records[0] ? `${records[0].adapter}, ${records[0].engine}` : "no results";
    const heads = a === b ? [who(a.records)] : [who(a.records), who(b.records), "second ÷ first"];
    const caption = `Best configuration of each kernel${exact ? "" : "; the sizes differ"}`;
    return scrolled("Two runs side by side", table(["Kernel", ...heads], rows, caption));
  }
}
