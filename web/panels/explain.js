// @ts-check
/** Each stage: what it changed, its tile as a picture, its shader, and sliders that run another configuration. */

import { Bench, Operands } from "../bench.js";
import { field, figures, h, s, select, shape, time } from "../dom.js";
import { ITEM_SIZE, inWords } from "../webmm.js";
import { available } from "./ladder.js";

/** @typedef {import("../main.js").App} App */
/** @typedef {import("../webmm.js").Kernel} Kernel */
/** @typedef {import("../webmm.js").Tunable} Tunable */
/** @typedef {import("../webmm.js").Problem} Problem */
/** @typedef {import("../webmm.js").DType} DType */

const SIZES = [[64, 64, 64], [128, 128, 128], [256, 256, 256], [512, 512, 512], [1024, 1024, 1024], [2048, 2048, 2048], [4096, 4096, 4096], [333, 257, 129]];

/** @param {App} app @param {HTMLElement} root */
export function setup(app, root) {
  const { bundle, device } = app;
  let kernel = device.stage("pipelined");
  const stages = h("div", { class: "stages", role: "radiogroup", "aria-label": "Stage" });
  const about = h("div", { class: "about-stage" });
  const picture = h("figure", { class: "card tile-picture" });
  const sliders = h("div", { class: "sliders" });
  const reason = h("p", { class: "reason", id: "explain-reason" });
  const outcome = h("p", { class: "outcome", id: "explain-outcome", role: "status" });
  const sizes = select({ id: "explain-size", onchange: refresh }, SIZES.map((p, i) => [String(i), shape({ m: p[0], n: p[1], k: p[2] })]));
  const dtypes = select({ id: "explain-dtype", onchange: refresh }, available(app));
  const run = h("button", { type: "button", class: "primary", id: "explain-run", onclick: measure }, "Run this configuration");
  const code = h("pre", { tabIndex: 0, role: "region", "aria-label": "WGSL", id: "explain-code" });
  const copy = h("button", { type: "button", id: "explain-copy", onclick: copyCode }, "Copy");
  const title = h("span", {}, "WGSL");
  let text = "";
  sizes.value = device.info.kind === "cpu" ? "1" : "4";

  root.append(
    h("div", { class: "lead" }, h("h2", {}, "Why each stage is faster"), stages),
    h(
      "div",
      { class: "explain" },
      h("div", {}, about, picture, h("div", { class: "card" }, sliders, reason, h("div", { class: "controls" }, field("Size", sizes), field("Element type", dtypes), run), outcome)),
      h("div", { class: "card code" }, h("div", { class: "code-head" }, title, copy), code),
    ),
  );
  for (const name of bundle.stages) {
    const input = h("input", { type: "radio", name: "stage", value: name, checked: name === kernel.name, onchange: () => choose(device.stage(name)) });
    stages.append(h("label", {}, input, h("span", {}, name)));
  }
  choose(kernel);

  /** @returns {Problem} */
  function problem() {
    const [m, n, k] = SIZES[Number(sizes.value)];
    return { m, n, k, dtype: /** @type {any} */ (dtypes.value) };
  }

  /** @param {Kernel} chosen */
  function choose(chosen) {
    const other = chosen.name !== kernel.name || sliders.childElementCount === 0;
    kernel = chosen;
    if (other) showStage();
    moveSliders();
    outcome.textContent = "";
    refresh();
  }

  function showStage() {
    const { name, summary, changed } = kernel.stage;
    about.replaceChildren(h("h3", {}, name), h("p", { class: "summary" }, summary), h("p", {}, changed));
    sliders.replaceChildren(...kernel.stage.tunables.map(control));
    if (!kernel.stage.tunables.length) sliders.append(h("p", { class: "hint" }, "This stage has nothing to set."));
  }

  /** A slider over the values that a tuner may try, or a list for words. @param {Tunable} tunable */
  function control(tunable) {
    const values = valuesOf(tunable.name);
    const id = `tunable-${tunable.name}`;
    const output = h("output", { htmlFor: id });
    const change = () => choose(nearest(tunable.name, values[Number(input.value)]));
    const input = typeof tunable.default === "number"
      ? h("input", { type: "range", id, min: 0, max: values.length - 1, step: 1, disabled: values.length < 2, oninput: change })
      : select({ id, onchange: change }, values.map((value, i) => [String(i), String(value)]));
    input.dataset.tunable = tunable.name;
    return h("label", { class: "slider" }, h("span", { class: "label" }, tunable.name.toUpperCase(), typeof tunable.default === "number" && output), input, h("span", { class: "hint" }, tunable.doc));
  }

  /** @param {string} name @returns {(number | string)[]} */
  function valuesOf(name) {
    const tunable = kernel.stage.tunables.find((t) => t.name === name);
    const values = new Set([...(tunable?.candidates ?? []), kernel.config[name]]);
    return [...values].sort((x, y) => (typeof x === "number" && typeof y === "number" ? x - y : 0));
  }

  /** The configuration with `name` at `value`, and otherwise as it is, or as little else as makes it one. @param {string} name @param {number | string} value */
  function nearest(name, value) {
    const same = (/** @type {Kernel} */ other) => bundle.configured(kernel.name, { ...other.config, [name]: value });
    const distance = (/** @type {Kernel} */ other) =>
      Object.entries(kernel.config).reduce((sum, [key, x]) => {
        const y = other.config[key];
        if (key === name || x === y) return sum;
        return sum + 1 + (typeof x === "number" && typeof y === "number" ? Math.abs(Math.log2(x / y)) / 8 : 0);
      }, 0);
    const others = (bundle.kernels.get(kernel.name) ?? []).flatMap((other) => same(other) ?? []);
    return same(kernel) ?? others.reduce((best, k) => (distance(k) < distance(best) ? k : best), others[0] ?? kernel);
  }

  function moveSliders() {
    for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (sliders.querySelectorAll("[data-tunable]"))) {
      const name = String(input.dataset.tunable);
      const value = kernel.config[name];
      input.value = String(valuesOf(name).indexOf(value));
      if (input.type === "range") input.setAttribute("aria-valuetext", String(value));
      const output = input.parentElement?.querySelector("output");
      if (output) output.textContent = String(value);
    }
  }

  function refresh() {
    picture.replaceChildren(h("figcaption", {}, `One workgroup's share, and one ${kernel.matrix ? "subgroup" : "invocation"}'s`), tilePicture(kernel), legend(kernel, shownDtype()));
    const why = device.reason(kernel, problem());
    reason.textContent = why ? `Cannot run here: ${why}.` : "";
    run.disabled = Boolean(why);
    sliders.classList.toggle("ineligible", Boolean(why));
    void showCode();
  }

  /** The element type asked for, or one that the stage multiplies. @returns {DType} */
  function shownDtype() {
    const suited = /** @type {DType[]} */ (kernel.dtypes);
    const { dtype } = problem();
    return suited.includes(dtype) ? dtype : suited[0];
  }

  async function showCode() {
    const shown = kernel;
    const asked = problem();
    const dtype = shownDtype();
    try {
      const wgsl = await kernel.wgsl({ ...asked, dtype });
      if (shown !== kernel) return; // another was chosen meanwhile
      text = wgsl;
      title.textContent = `${kernel.label}${dtype === asked.dtype ? "" : ` for ${dtype}`}, ${wgsl.split("\n").length} lines of WGSL`;
      code.replaceChildren(...highlighted(wgsl));
    } catch (error) {
      code.textContent = inWords(error);
    }
  }

  async function copyCode() {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    } catch {
      getSelection()?.selectAllChildren(code);
      copy.textContent = "Selected: press Ctrl-C";
    }
    setTimeout(() => (copy.textContent = "Copy"), 2000);
  }

  async function measure() {
    run.disabled = true;
    const chosen = kernel;
    const p = problem();
    outcome.textContent = `Running ${chosen.label} at ${shape(p)} …`;
    try {
      await app.exclusively(async () => {
        const operands = await Operands.random(device, p);
        try {
          const record = await new Bench(device, { limit: 2 }).run(chosen, operands);
          outcome.textContent = record.status === "ok"
            ? `${chosen.label} at ${shape(p)}: ${figures(record.gflops)} GFLOP/s, ${time(record.median_us)}, checked.`
            : `${record.status}: ${record.reason}`;
          app.announce(outcome.textContent);
        } finally {
          operands.free();
        }
      });
    } catch (error) {
      outcome.textContent = inWords(error);
    } finally {
      run.disabled = Boolean(device.reason(kernel, problem()));
    }
  }
}

// The picture

const SPAN = 232; // units of the drawing that the window on C takes
const GAP = 16;

/** A, B and C with a workgroup's tile and one invocation's elements. @param {Kernel} kernel */
function tilePicture(kernel) {
  const { rows, columns, inner } = tileOf(kernel);
  const extent = Math.min(256, Math.max(32, 2 ** Math.ceil(Math.log2(3 * Math.max(rows, columns)))));
  const depth = extent / 2;
  const unit = SPAN / extent;
  const [row0, col0] = [rows * 2 <= extent ? rows : 0, columns * 2 <= extent ? columns : 0];
  const left = depth * unit + GAP;
  const step = Math.min(inner, depth);
  const k0 = step * 2 <= depth ? step : 0;
  const box = (/** @type {string} */ name, /** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ w, /** @type {number} */ height) =>
    s("rect", { class: name, x: x * unit, y: y * unit, width: Math.max(w * unit, 1.2), height: Math.max(height * unit, 1.2) });
  const matrix = (/** @type {string} */ name, /** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ w, /** @type {number} */ height, /** @type {(SVGElement | null)[]} */ ...inside) =>
    s("g", { transform: `translate(${x} ${y})` }, box("matrix", 0, 0, w, height), ...inside, s("text", { class: "matrix-name", x: 6, y: 15 }, name));
  const { sm, sn } = kernel.config;
  const cells = kernel.matrix
    ? [box("mine", col0, row0, Number(sn), Number(sm))]
    : ownElements(kernel).map(([r, c]) => box("mine", col0 + c, row0 + r, 1, 1));
  const each = kernel.matrix ? `${ownInWords(kernel)} per subgroup` : `${ownInWords(kernel)} each`;
  const label = `A tile of ${rows} by ${columns} elements of C per workgroup, ${kernel.invocations} invocations, ${each}, in steps of ${inner} along k`;
  return s(
    "svg",
    { viewBox: `0 0 ${left + SPAN + 2} ${left + SPAN + 2}`, role: "img", "aria-label": label },
    matrix("A", 1, left, depth, extent, box("band", 0, row0, depth, rows), box("slab", k0, row0, step, rows)),
    matrix("B", left, 1, extent, depth, box("band", col0, 0, columns, depth), box("slab", col0, k0, columns, step)),
    matrix("C", left, left, extent, extent, ...gridLines(extent, rows, columns, unit), box("tile", col0, row0, columns, rows), ...cells),
  );
}

/** @param {number} extent @param {number} rows @param {number} columns @param {number} unit */
function gridLines(extent, rows, columns, unit) {
  const lines = [];
  if (rows * unit >= 3) for (let r = rows; r < extent; r += rows) lines.push(s("line", { class: "tiles", x1: 0, x2: SPAN, y1: r * unit, y2: r * unit }));
  if (columns * unit >= 3) for (let c = columns; c < extent; c += columns) lines.push(s("line", { class: "tiles", x1: c * unit, x2: c * unit, y1: 0, y2: SPAN }));
  return lines;
}

/** @param {Kernel} kernel @returns {{rows: number, columns: number, inner: number}} */
function tileOf(kernel) {
  const { tile_m, tile_n, elements } = kernel.of.grid;
  return elements ? { rows: 1, columns: Math.min(elements, 256), inner: 1 } : { rows: tile_m, columns: tile_n, inner: kernel.of.inner_step };
}

/** Rows and columns, within the tile, of what one invocation computes. @param {Kernel} kernel @returns {[number, number][]} */
function ownElements(kernel) {
  const number = (/** @type {string} */ name, /** @type {number} */ otherwise) => Number(kernel.config[name] ?? otherwise);
  const { rows, columns } = tileOf(kernel);
  const total = kernel.of.grid.elements ? kernel.of.grid.elements : rows * columns;
  const each = Math.max(1, Math.round(total / kernel.invocations));
  const tm = Math.min(rows, number("tm", each >= 4 ? each / 4 : 1));
  const tn = Math.max(1, each / tm);
  const fragments = "bk" in kernel.config && "tm" in kernel.config; // register tiles: 4×4 fragments, spread over the tile
  const [strideM, strideN] = fragments ? [(rows / tm) * 4, (columns / tn) * 4] : [4, 4];
  const at = (/** @type {number} */ i, /** @type {number} */ stride) => Math.floor(i / 4) * stride + (i % 4);
  /** @type {[number, number][]} */
  const out = [];
  for (let i = 0; i < tm; i++) for (let j = 0; j < tn; j++) out.push([at(i, strideM), at(j, strideN)]);
  return out;
}

/** @param {Kernel} kernel @returns {string} what one invocation computes, of matrix units a subgroup */
function ownInWords(kernel) {
  const { sm, sn } = kernel.config;
  if (kernel.matrix) return `${sm} × ${sn} of C in fragments of ${kernel.matrix.m} × ${kernel.matrix.n}`;
  const count = ownElements(kernel).length;
  return `${count} ${count === 1 ? "element" : "elements"}`;
}

/** @param {Kernel} kernel @param {DType} dtype */
function legend(kernel, dtype) {
  const { rows, columns, inner } = tileOf(kernel);
  const memory = kernel.of.workgroup_bytes;
  const reuse = (2 * rows * columns) / ((rows + columns) * ITEM_SIZE[dtype]);
  return h(
    "ul",
    { class: "legend-list" },
    h("li", { class: "key-tile" }, `${rows} × ${columns} of C per workgroup of ${kernel.invocations}`),
    h("li", { class: "key-mine" }, `${ownInWords(kernel)} per ${kernel.matrix ? "subgroup" : "invocation"}`),
    h("li", { class: "key-slab" }, memory ? `steps of ${inner} along k, ${memory.toLocaleString("en")} bytes of workgroup memory` : "no workgroup memory"),
    h("li", { class: "key-band" }, `${figures(reuse)} FLOP per byte of A and B, if each is fetched once per tile`),
  );
}

// The code

const TOKENS = /(\/\/[^\n]*)|(@\w+)|\b(fn|let|var|const|struct|if|else|for|while|loop|return|break|continue|enable|override|switch|case|default|true|false)\b|\b(u32|i32|f32|f16|bool|vec[234][fuih]?|array|atomic|mat\dx\d[fh]?|ptr)\b|\b(\d[\w.]*)/g;
const CLASSES = ["comment", "attribute", "keyword", "type", "literal"];

/** @param {string} wgsl @returns {(Node | string)[]} */
function highlighted(wgsl) {
  const out = [];
  let last = 0;
  for (const match of wgsl.matchAll(TOKENS)) {
    out.push(wgsl.slice(last, match.index));
    const kind = match.slice(1).findIndex((group) => group !== undefined);
    out.push(h("span", { class: CLASSES[kind] }, match[0]));
    last = match.index + match[0].length;
  }
  return [...out, wgsl.slice(last)];
}
