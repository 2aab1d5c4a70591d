// @ts-check
/** A comparison of two runs, such as this browser and Python on the same machine. */

import { figures, h, select } from "../dom.js";
import { shape, speedOf, unitOf } from "../ops.js";

/** @import { App } from "../main.js" */
/** @import { RunRecord } from "../webmm.js" */

/** @param {App} app @returns {HTMLElement} */
export function comparison(app) {
  const left = select({ id: "compare-left", "aria-label": "First run", onchange: show }, []);
  const right = select({ id: "compare-right", "aria-label": "Second run", onchange: show }, []);
  const body = h("div", {});
  const element = h("div", { class: "card", id: "compare" }, h("h3", {}, "Two runs side by side"), body);
  app.addEventListener("runs", update);
  update();
  return element;

  function update() {
    const chosen = [left.value, right.value];
    for (const list of [left, right])
      list.replaceChildren(...app.runs.map((run) => h("option", { value: run.name }, run.name)));
    const names = app.runs.map((run) => run.name);
    left.value = names.includes(chosen[0]) ? chosen[0] : likeFirst(app.runs);
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
        : [h("div", { class: "pair" }, left, h("span", { "aria-hidden": "true" }, "and"), right)]),
      sideBySide(a, b),
    );
  }
}

/** @typedef {{name: string, records: RunRecord[]}} Run */

/** @param {RunRecord} r */
const kernelOf = (r) => `${r.op} ${r.kernel} ${r.dtype}`;
/** @param {RunRecord} r */
const exactly = (r) => `${kernelOf(r)} ${shape(r)}`;

/** @param {Run} a @param {Run} b @param {(r: RunRecord) => string} key */
function share(a, b, key) {
  const keys = new Set(b.records.map(key));
  return a.records.some((r) => keys.has(key(r)));
}

/** @param {Run[]} runs newest first @returns {string} the name of the run to compare with the first: the newest on the same problems, or else of the same kernels */
function likeFirst([first, ...others]) {
  const like = others.find((run) => share(run, first, exactly)) ?? others.find((run) => share(run, first, kernelOf));
  return (like ?? others[0] ?? first)?.name ?? "";
}

/** The fastest record of each kernel, by `key`. @param {Run} run @param {(r: RunRecord) => string} key */
function best({ records }, key) {
  /** @type {Map<string, RunRecord>} */
  const map = new Map();
  for (const r of records) if ((map.get(key(r))?.gflops ?? -1) < (r.gflops ?? 0)) map.set(key(r), r);
  return map;
}

/** @param {Run} a @param {Run} b maybe the same run, which is shown once */
function sideBySide(a, b) {
  const key = share(a, b, exactly) ? exactly : kernelOf; // rates at different sizes, if there are no equal ones
  const [x, y] = [best(a, key), best(b, key)];
  const keys = [...new Set([...x.keys(), ...y.keys()])];
  const figure = (/** @type {RunRecord | undefined} */ r) =>
    r ? (r.status === "ok" ? figures(speedOf(r)) : r.status) : "–";
  const rows = keys.map((key) => {
    const [p, q] = [x.get(key), y.get(key)];
    const any = /** @type {RunRecord} */ (p ?? q);
    const ratio = p?.gflops && q?.gflops ? `${figures(q.gflops / p.gflops)} ×` : "";
    return h(
      "tr",
      {},
      h(
        "th",
        { scope: "row" },
        any.kernel,
        h(
          "span",
          { class: "config" },
          `${[...new Set([p, q].flatMap((r) => (r ? shape(r) : [])))].join(" and ")} ${any.dtype}, ${unitOf(any)}`,
        ),
      ),
      ...(a === b ? [figure(p)] : [figure(p), figure(q), ratio]).map((v) => h("td", { class: "number" }, v)),
    );
  });
  const who = (/** @type {RunRecord[]} */ records) =>
    records[0] ? `${records[0].adapter}, ${records[0].engine}` : "no results";
  return h(
    "div",
    { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Two runs side by side" },
    h(
      "table",
      {},
      h(
        "caption",
        {},
        key === exactly ? "Best configuration of each kernel" : "Best configuration of each kernel; the sizes differ",
      ),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "col" }, "Kernel"),
          ...(a === b ? [who(a.records)] : [who(a.records), who(b.records), "second ÷ first"]).map((head) =>
            h("th", { scope: "col" }, head),
          ),
        ),
      ),
      h("tbody", {}, ...rows),
    ),
  );
}
