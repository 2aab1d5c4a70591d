// @ts-check
/** A picture of A, B and C that shows the tile of one workgroup and the elements of one of its invocations. */

import { figures, h, s } from "../dom.js";

/** @typedef {import("../webmm.js").Kernel} Kernel */

const SPAN = 232; // side of the window on C, in units of the drawing
const GAP = 16;

/** A, B and C with a workgroup's tile and one invocation's elements. @param {Kernel} kernel */
export function tilePicture(kernel) {
  const { rows, columns, inner } = tileOf(kernel);
  const extent = Math.min(256, Math.max(32, 2 ** Math.ceil(Math.log2(3 * Math.max(rows, columns)))));
  const depth = extent / 2;
  const unit = SPAN / extent;
  const [row0, col0] = [rows * 2 <= extent ? rows : 0, columns * 2 <= extent ? columns : 0];
  const left = depth * unit + GAP;
  const step = Math.min(inner, depth);
  const k0 = step * 2 <= depth ? step : 0;
  const box = (
    /** @type {string} */ name,
    /** @type {number} */ x,
    /** @type {number} */ y,
    /** @type {number} */ w,
    /** @type {number} */ height,
  ) =>
    s("rect", {
      class: name,
      x: x * unit,
      y: y * unit,
      width: Math.max(w * unit, 1.2),
      height: Math.max(height * unit, 1.2),
    });
  const matrix = (
    /** @type {string} */ name,
    /** @type {number} */ x,
    /** @type {number} */ y,
    /** @type {number} */ w,
    /** @type {number} */ height,
    /** @type {(SVGElement | null)[]} */ ...inside
  ) =>
    s(
      "g",
      { transform: `translate(${x} ${y})` },
      box("matrix", 0, 0, w, height),
      ...inside,
      s("text", { class: "matrix-name", x: 6, y: height * unit - 8 }, name),
    );
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
    matrix(
      "C",
      left,
      left,
      extent,
      extent,
      ...gridLines(extent, rows, columns, unit),
      box("tile", col0, row0, columns, rows),
      ...cells,
    ),
  );
}

/** @param {number} extent @param {number} rows @param {number} columns @param {number} unit */
function gridLines(extent, rows, columns, unit) {
  const lines = [];
  if (rows * unit >= 3)
    for (let r = rows; r < extent; r += rows)
      lines.push(s("line", { class: "tiles", x1: 0, x2: SPAN, y1: r * unit, y2: r * unit }));
  if (columns * unit >= 3)
    for (let c = columns; c < extent; c += columns)
      lines.push(s("line", { class: "tiles", x1: c * unit, x2: c * unit, y1: 0, y2: SPAN }));
  return lines;
}

/** @param {Kernel} kernel @returns {{rows: number, columns: number, inner: number}} */
function tileOf(kernel) {
  const { tile_m, tile_n, elements } = kernel.of.grid;
  return elements
    ? { rows: 1, columns: Math.min(elements, 256), inner: 1 }
    : { rows: tile_m, columns: tile_n, inner: kernel.of.inner_step };
}

/** Rows and columns, within the tile, of the elements that one invocation computes. @param {Kernel} kernel @returns {[number, number][]} */
function ownElements(kernel) {
  const number = (/** @type {string} */ name, /** @type {number} */ otherwise) =>
    Number(kernel.config[name] ?? otherwise);
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

/** @param {Kernel} kernel @returns {string} what one invocation computes, or one subgroup with matrix units */
function ownInWords(kernel) {
  const { sm, sn } = kernel.config;
  if (kernel.matrix) return `${sm} × ${sn} of C in fragments of ${kernel.matrix.m} × ${kernel.matrix.n}`;
  const count = ownElements(kernel).length;
  return `${count} ${count === 1 ? "element" : "elements"}`;
}

/** The legend of the colours. @param {Kernel} kernel @param {number} itemsize bytes of an element of A @param {number} loaded FLOP per byte of storage as the shader loads and stores */
export function legend(kernel, itemsize, loaded) {
  const { rows, columns, inner } = tileOf(kernel);
  const memory = kernel.of.workgroup_bytes;
  const once = (2 * rows * columns) / ((rows + columns) * itemsize);
  const words = once > 1.1 * loaded ? `, ${figures(once)} if it loaded each element once per tile` : "";
  return h(
    "ul",
    { class: "legend-list" },
    h(
      "li",
      { class: "key-tile" },
      `${rows} × ${columns} of C per workgroup of ${kernel.invocations} ${kernel.invocations === 1 ? "invocation" : "invocations"}`,
    ),
    h("li", { class: "key-mine" }, `${ownInWords(kernel)} per ${kernel.matrix ? "subgroup" : "invocation"}`),
    h(
      "li",
      { class: "key-slab" },
      memory
        ? `steps of ${inner} along k, ${memory.toLocaleString("en")} bytes of workgroup memory`
        : "no workgroup memory",
    ),
    h(
      "li",
      { class: "key-band" },
      `what the tile needs of A and B: ${figures(loaded)} FLOP per byte as loaded${words}`,
    ),
  );
}
