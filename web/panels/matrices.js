/** Matrices as a visitor gives them – pasted, from files, or random – and as results: a heat map, numbers and files. */

import { check_random, duration, exponent, figures } from "../bundle/core.js";
import { excerpt } from "../bundle/panels.js";
import { all, bind, button, byId, div, download, h, say, scrolled, span } from "../dom.js";
import { Matrix, ProblemError, inWords, parseCsv, parseNpy, toCsv, toNpy } from "../webmm.js";

/** @import { App } from "../main.js" */
/** @import { NpyFile } from "../files.js" */

const PICTURE = 384; // width and height of the heat map in pixels, at most
const EXAMPLES = { A: "1, 2, 3\n4, 5, 6", B: "1, 0\n0, 1\n2, 2", X: "1, 2, 3, 4\n0.5, -1, 2, 0" };
const SEEDS = { A: 1, B: 2, X: 3 };
const RANDOM = "random, from −0.5 to 0.5";

/** Compute a result. @template T @param {App} app @param {() => Promise<T>} work @param {string} [included] in its time, which is in words @returns {Promise<[result: T, took: string]>} */
export async function timed({ device: { pipelines } }, work, included = "upload and download") {
  const [started, compiled] = [performance.now(), pipelines.count];
  const result = await work();
  const spent = duration((performance.now() - started) * 1e3);
  return [result, `${spent}, ${pipelines.count > compiled ? "compilation, " : ""}${included} included`];
}

/**
 * Tell how a result was computed, or that it is wrong; show it, unless it is too large, what its check found, and buttons to download it.
 * @param {App} app @param {HTMLElement} message @param {HTMLElement} result
 * @param {{name?: string, title?: string, c: Matrix | NpyFile, dtype?: string, how: string, scope: string, error: number, bound: number, scale?: string, first?: string}} of
 *   `title` of its files, `dtype` that it was computed in; elements in the `scope` of the check, their largest `error` as a multiple of `scale`, the `first` wrong one
 */
export function show(app, message, result, of) {
  const { name = "C", title = "product", c, dtype = c.dtype, how, scope, error, bound, scale = "", first = "" } = of;
  const right = error <= bound;
  const wrong = `${name} is wrong${first && ` (${first})`}: this browser or driver computes it incorrectly. Please report it, with the adapter's name.`;
  app.tell(message, right ? `${name} is ${c.rows}×${c.columns} ${dtype}, computed ${how}.` : wrong, !right);
  const found = `largest error${scale && ` ÷ ${scale}`} is ${exponent(error)}; rounding explains up to ${exponent(bound)}`;
  const checked = h("p", { class: "check", id: "multiply-check" }, `CPU check: ${scope} compared; ${found}`);
  const file = `${title}-${c.rows}x${c.columns}`;
  const asNpy = () => download(`${file}.npy`, c instanceof Matrix ? toNpy(c) : c.blob, "application/octet-stream");
  const saving = div("controls", button("Download .npy", asNpy, { id: "download-npy" }));
  if (!(c instanceof Matrix)) return result.replaceChildren(div("card", checked, saving));
  saving.append(button("Download CSV", () => download(`${file}.csv`, toCsv(c), "text/csv"), { id: "download-csv" }));
  const values = c.floats();
  const element = (/** @type {number} */ i, /** @type {number} */ j) => values[i * c.columns + j];
  const numbers = excerpt(element, c.rows, c.columns, name);
  result.replaceChildren(
    h("figure", { class: "card" }, h("figcaption", {}, `${name} as a heat map`), heatMap(c, name)),
    div("card", scrolled(`Numbers of ${name}`, numbers, "matrix"), checked, saving),
  );
}

/** The controls of one operand. @param {App} app @param {"A" | "B" | "X"} name @returns {() => Promise<Matrix | NpyFile>} reads it */
export function operand(app, name) {
  /** @type {Matrix | NpyFile | null} */
  let loaded = null;
  let seed = SEEDS[name];
  const id = name.toLowerCase();
  const element = byId(`operand-${id}`);
  element.innerHTML = byId("operand").innerHTML.replaceAll("{name}", id).replaceAll("{NAME}", name);
  const [file, rows, columns] = all("input", `${id}-file`, `${id}-rows`, `${id}-columns`);
  const [text] = all("textarea", `${id}-text`);
  const [about] = all("p", `${id}-about`);
  text.value = EXAMPLES[name];
  const open = (/** @type {File | undefined} */ source) => source && load(source.name, () => read(source));
  bind(element, { typed: () => take(null), read: () => open(file.files?.[0]), random: () => load(RANDOM, random) });
  element.ondragover = (event) => event.preventDefault();
  element.ondrop = (event) => {
    event.preventDefault();
    void open(event.dataTransfer?.files[0]);
  };
  return matrix;

  /** @param {Matrix | NpyFile | null} matrix @param {string} [words] */
  function take(matrix, words = "") {
    loaded = matrix;
    say(about, matrix ? `${words}: ${matrix.rows}×${matrix.columns} ${matrix.dtype}` : "");
    if (matrix) text.value = preview(matrix);
  }

  /** Take the matrix that `make` returns, or say why there is none. @param {string} words @param {() => Promise<Matrix | NpyFile>} make */
  async function load(words, make) {
    try {
      take(await make(), words);
    } catch (error) {
      take(null);
      say(about, inWords(error), true);
      text.value = "";
    }
  }

  /** @param {File} source */
  async function read(source) {
    try {
      if (!source.name.toLowerCase().endsWith(".npy")) return parseCsv(await source.text());
      if (source.size <= app.device.memory / 4) return parseNpy(await source.arrayBuffer());
      return await (await import("./large.js")).opened(source);
    } catch (error) {
      if (error instanceof ProblemError) throw error;
      throw new ProblemError(`${source.name} could not be read: ${inWords(error)}`);
    }
  }

  async function random() {
    const [m, n] = [Number(rows.value), Number(columns.value)];
    check_random(m, n, app.device.capabilities);
    const made = Matrix.random(m, n, seed);
    seed += 2;
    return made;
  }

  async function matrix() {
    if (loaded) return loaded;
    if (about.classList.contains("error") && text.value === "") throw new ProblemError(`${name}: ${about.textContent}`);
    try {
      return parseCsv(listed(text.value));
    } catch (error) {
      throw new ProblemError(`${name}: ${inWords(error)}`);
    }
  }
}

/** @param {string} text @returns {string} a nested list of Python or JSON, or an array as NumPy prints it, as a row per line; other texts as they are */
function listed(text) {
  const list = /^(?:np\.)?(?:array\()?\s*\[([^]*)\](?:,\s*dtype=[\w.]+)?\s*\)?$/.exec(text.trim())?.[1];
  if (list === undefined) return text;
  if (!list.includes("[")) return list.replace(/\s+/g, " ");
  const rows = [...list.matchAll(/\[([^[\]]*)\]/g)].map(([, row]) => row.replace(/\s+/g, " ").trim());
  if (/[^\s,]/.test(list.replace(/\[[^[\]]*\]/g, "")))
    throw new ProblemError("a list must have numbers, or rows of numbers: [[1, 2], [3, 4]]");
  return rows.join("\n");
}

/** @param {Matrix | NpyFile} matrix @returns {string} the matrix as text, or its corner */
function preview(matrix) {
  if (matrix instanceof Matrix && matrix.rows * matrix.columns <= 400) return toCsv(matrix).trimEnd();
  return `# ${matrix.rows}×${matrix.columns}, too large to show here; typing replaces the matrix`;
}

/** @param {Matrix} x @returns {Matrix} */
export function transposed({ data, rows, columns, dtype }) {
  const flipped = data.map((_, i) => data[(i % rows) * columns + Math.floor(i / rows)]);
  return new Matrix(flipped, [columns, rows], dtype);
}

/** @param {Matrix} c @param {string} name @returns {HTMLElement} */
function heatMap(c, name) {
  const values = c.floats();
  const largest = values.reduce((most, v) => (Number.isFinite(v) ? Math.max(most, Math.abs(v)) : most), 0) || 1;
  const [width, height] = [Math.min(c.columns, PICTURE), Math.min(c.rows, PICTURE)];
  const ends = [`−${figures(largest)}`, figures(largest)];
  const label = `Heat map of ${name}, from ${ends[0]} to ${ends[1]}`;
  const canvas = h("canvas", { width, height, class: "heat", role: "img", "aria-label": label });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(width, height);
  for (let y = 0; y < height; y++) {
    const row = Math.floor((y * c.rows) / height) * c.columns;
    for (let x = 0; x < width; x++) {
      const value = values[row + Math.floor((x * c.columns) / width)];
      image.data.set(colour(value / largest), 4 * (y * width + x));
    }
  }
  context.putImageData(image, 0, 0);
  const legend = div("legend", span("", ends[0]), span("scale"), span("", ends[1]));
  return div("heat-frame", canvas, legend);
}

const SCALE = { low: [29, 78, 216], middle: [245, 245, 244], high: [194, 65, 12] }; // as of .scale in style.css

/** @param {number} value from -1 to 1; anything else is grey @returns {number[]} */
function colour(value) {
  if (!Number.isFinite(value)) return [120, 113, 108, 255];
  const end = value < 0 ? SCALE.low : SCALE.high;
  return [...SCALE.middle.map((middle, i) => middle + (end[i] - middle) * Math.abs(value)), 255];
}
