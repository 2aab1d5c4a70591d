// @ts-check
/** A stage step by step on a small product: what one of its invocations, and its workgroup, reads and sums. */

import { field, figures, h, s } from "../dom.js";

/** @typedef {[row: number, column: number, rows: number, columns: number]} Rectangle */
/** What `webmm.page.steps.walk()` returns. @typedef {{
 *   kernel: string, a: number[][], b: number[][], invocations: [workgroup: number, tile: Rectangle][],
 *   steps: {kind: "load" | "share" | "read", k: number, reads: [a: Rectangle, b: Rectangle][]}[],
 * }} Walk */

const SIDE = 200; // of a matrix, in units of the drawing
const GAP = 18;
const KINDS = {
  load: "loads from storage, and adds the products of",
  share: "copies from storage to workgroup memory",
  read: "reads from workgroup memory, and adds the products of",
};

/** @param {import("../main.js").App} app */
export function stepsView({ bundle }) {
  const drawing = h("div", {});
  const words = h("p", { role: "status", id: "steps-words" });
  const step = h("input", { type: "range", id: "steps-step", min: 0, value: 0, oninput: draw });
  const invocation = h("input", { type: "range", id: "steps-invocation", min: 0, value: 0, oninput: draw });
  const title = h("figcaption", {});
  const controls = h("div", { class: "sliders" }, field("Step", step), field("Invocation", invocation));
  const element = h(
    "figure",
    { class: "card tile-picture", id: "steps", hidden: true },
    title,
    drawing,
    controls,
    words,
  );
  /** @type {Walk | null} */
  let walk = null;
  let wanted = "";
  const jump = h(
    "button",
    { type: "button", id: "steps-jump", hidden: true, onclick: () => element.scrollIntoView({ block: "center" }) },
    "Step through it",
  );
  return { element, jump, show };

  /** Show the steps of a stage, if it has some. @param {string} op @param {string} name */
  async function show(op, name) {
    wanted = `${op}/${name}`;
    const asked = wanted;
    try {
      const has = (await bundle.lessons()).steps.includes(asked);
      const found = has ? await bundle.packed(`learn/steps/${asked}`) : null;
      if (asked !== wanted) return;
      walk = found;
    } catch {
      walk = null; // offline, and not cached
    }
    element.hidden = jump.hidden = walk === null;
    if (!walk) return;
    title.textContent = `${walk.kernel} on ${walk.a.length}×${walk.b[0].length}×${walk.b.length}, step by step`;
    step.max = String(walk.steps.length - 1);
    invocation.max = String(walk.invocations.length - 1);
    step.value = invocation.value = "0";
    draw();
  }

  function draw() {
    if (!walk) return;
    const { a, b, invocations, steps } = walk;
    const [at, who] = [Number(step.value), Number(invocation.value)];
    const [workgroup, tile] = invocations[who];
    const { kind, reads } = steps[at];
    const mates = invocations.flatMap(([group], i) => (group === workgroup ? i : []));
    const sums = sumsOf(walk, who, at);
    // What the workgroup holds in workgroup memory was copied in the last step of that kind.
    const held = kind === "read" ? steps.slice(0, at).findLast((each) => each.kind === "share") : steps[at];
    const mine = reads[who];
    const picture = (/** @type {0 | 1} */ of) => ({
      band: mates.map((i) => held?.reads[i][of] ?? mine[of]),
      slab: [mine[of]],
    });
    drawing.replaceChildren(
      s(
        "svg",
        { viewBox: `0 0 ${2 * SIDE + GAP + 2} ${2 * SIDE + 2 * GAP}`, role: "img", "aria-label": "A, B and C" },
        matrix("A", [1, SIDE + GAP], a, picture(0)),
        matrix("B", [SIDE + GAP, 1], b, picture(1)),
        matrix("C", [SIDE + GAP, SIDE + GAP], sums, { tile: mates.map((i) => invocations[i][1]), mine: [tile] }),
      ),
    );
    const done = steps.slice(0, at + 1);
    const count = (/** @type {string[]} */ kinds, /** @type {(reads: [Rectangle, Rectangle]) => number} */ of) =>
      done.filter((each) => kinds.includes(each.kind)).reduce((sum, each) => sum + of(each.reads[who]), 0);
    const loads = count(["load", "share"], ([x, y]) => area(x) + area(y));
    const fmas = count(["load", "read"], ([x, y]) => area(x) * area(y));
    const one = area(tile) === 1 && kind !== "share" ? `: ${element_("C", tile)} = ${sums[tile[0]][tile[1]]}` : "";
    words.textContent =
      `Step ${at + 1} of ${steps.length}: invocation ${who} of ${invocations.length}, in workgroup ${workgroup}, ` +
      `${KINDS[kind]} ${element_("A", mine[0])} and ${element_("B", mine[1])}${one}. ` +
      `So far it made ${loads} loads from storage for ${fmas} FMA${fmas === 1 ? "" : "s"}${fmas ? `: ${figures(loads / fmas)} per FMA` : ""}.` +
      (kind === "share" ? " A barrier follows: the tiles are complete before anyone reads them." : "");
    step.setAttribute("aria-valuetext", `${at + 1} of ${steps.length}`);
    invocation.setAttribute("aria-valuetext", `${who} of ${invocations.length}`);
  }
}

/** @param {Rectangle} rectangle */
const area = ([, , rows, columns]) => rows * columns;

/** @param {string} name @param {Rectangle} rectangle @returns {string} such as A[0–3, 2] */
function element_(name, [row, column, rows, columns]) {
  const range = (/** @type {number} */ first, /** @type {number} */ count) =>
    count > 1 ? `${first}–${first + count - 1}` : first;
  return `${name}[${range(row, rows)}, ${range(column, columns)}]`;
}

/** The sums of an invocation's elements after a step; NaN where others compute. @param {Walk} walk @param {number} who @param {number} at @returns {number[][]} */
function sumsOf({ a, b, invocations, steps }, who, at) {
  const [row, column, rows, columns] = invocations[who][1];
  const inner = steps.slice(0, at + 1).flatMap(({ kind, k }) => (kind === "share" ? [] : k));
  const sum = (/** @type {number} */ i, /** @type {number} */ j) => inner.reduce((x, k) => x + a[i][k] * b[k][j], 0);
  const inside = (/** @type {number} */ i, /** @type {number} */ j) =>
    i >= row && i < row + rows && j >= column && j < column + columns;
  return a.map((_, i) => b[0].map((_, j) => (inside(i, j) ? sum(i, j) : NaN)));
}

/** A matrix with its numbers, and rectangles by class. @param {string} name @param {[number, number]} at @param {number[][]} values @param {Record<string, Rectangle[]>} marked */
function matrix(name, at, values, marked) {
  const unit = SIDE / values.length;
  const box = (/** @type {string} */ kind, /** @type {Rectangle} */ [row, column, rows, columns]) =>
    s("rect", { class: kind, x: column * unit, y: row * unit, width: columns * unit, height: rows * unit });
  const number = (/** @type {number} */ value, /** @type {number} */ row, /** @type {number} */ column) =>
    s(
      "text",
      { class: "cell", x: (column + 0.5) * unit, y: (row + 0.5) * unit + unit / 6, "font-size": unit / 2.2 },
      value,
    );
  return s(
    "g",
    { transform: `translate(${at})` },
    box("matrix", [0, 0, values.length, values[0].length]),
    ...Object.entries(marked).flatMap(([kind, all]) => all.map((each) => box(kind, each))),
    ...values.flatMap((row, i) => row.flatMap((value, j) => (Number.isNaN(value) ? [] : number(value, i, j)))),
    s(
      "text",
      { class: "matrix-name", ...(name === "B" ? { x: -13, y: SIDE / 2 } : { x: SIDE / 2, y: SIDE + 14 }) },
      name,
    ),
  );
}
