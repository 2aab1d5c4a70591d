// @ts-check
/** Matrices as a visitor gives them – pasted, from files, or random – and as results: a heat map, numbers and files. */

import { download, field, figures, h } from "../dom.js";
import { Matrix, ProblemError, UnsupportedError, inWords, parseCsv, parseNpy, toCsv, toNpy } from "../webmm.js";

/** @import { App } from "../main.js" */
/** @import { NpyFile } from "../files.js" */

const SHOWN = 8; // rows and columns of numbers, at most
const PICTURE = 384; // width and height of the heat map in pixels, at most
const EXAMPLES = { A: "1, 2, 3\n4, 5, 6", B: "1, 0\n0, 1\n2, 2", X: "1, 2, 3, 4\n0.5, -1, 2, 0" };
const SEEDS = { A: 1, B: 2, X: 3 };

/**
 * Show a result, what its check says, and buttons to download it.
 * @param {HTMLElement} result @param {Matrix} c @param {string} name such as C @param {string} file without its suffix @param {string} check
 */
export function show(result, c, name, file, check) {
  result.replaceChildren(
    h("figure", { class: "card" }, h("figcaption", {}, `${name} as a heat map`), heatMap(c, name)),
    h(
      "div",
      { class: "card" },
      numbers(c, name),
      h("p", { class: "check", id: "multiply-check" }, "CPU check: ", check),
      h(
        "div",
        { class: "controls" },
        h(
          "button",
          {
            type: "button",
            id: "download-npy",
            onclick: () => download(`${file}.npy`, toNpy(c), "application/octet-stream"),
          },
          "Download .npy",
        ),
        h(
          "button",
          { type: "button", id: "download-csv", onclick: () => download(`${file}.csv`, toCsv(c), "text/csv") },
          "Download CSV",
        ),
      ),
    ),
  );
}

/** The controls of one operand. @param {App} app @param {"A" | "B" | "X"} name */
export function operand(app, name) {
  /** @type {Matrix | NpyFile | null} */
  let loaded = null;
  let seed = SEEDS[name];
  const id = name.toLowerCase();
  const text = h("textarea", {
    id: `${id}-text`,
    rows: 5,
    spellcheck: false,
    value: EXAMPLES[name],
    "aria-label": `${name} as rows of numbers`,
    oninput: () => take(null),
  });
  const about = h("p", { class: "about", id: `${id}-about`, role: "status" });
  const file = h("input", {
    type: "file",
    id: `${id}-file`,
    accept: ".npy,.csv,.tsv,.txt",
    "aria-label": `${name} from a CSV or .npy file`,
    onchange: read,
  });
  const rows = h("input", { type: "number", id: `${id}-rows`, min: 1, value: 256, inputMode: "numeric" });
  const columns = h("input", { type: "number", id: `${id}-columns`, min: 1, value: 256, inputMode: "numeric" });
  const draw = h("button", { type: "button", id: `${id}-random`, onclick: random }, "Random");
  const element = h(
    "fieldset",
    { class: "card operand" },
    h("legend", {}, name),
    text,
    h("div", { class: "row" }, file),
    h("div", { class: "row" }, field("Rows", rows), field("Columns", columns), draw),
    about,
  );
  element.addEventListener("dragover", (event) => event.preventDefault());
  element.addEventListener("drop", (event) => {
    event.preventDefault();
    const dropped = event.dataTransfer?.files[0];
    if (dropped) void open(dropped);
  });

  /** @param {Matrix | NpyFile | null} matrix @param {string} [words] */
  function take(matrix, words = "") {
    loaded = matrix;
    about.classList.remove("error");
    about.textContent = matrix ? `${words}: ${matrix.rows}×${matrix.columns} ${matrix.dtype}` : "";
  }

  /** @param {unknown} error */
  function refuse(error) {
    loaded = null;
    about.textContent = inWords(error);
    about.classList.add("error");
  }

  function read() {
    const chosen = file.files?.[0];
    if (chosen) void open(chosen);
  }

  /** @param {File} source */
  async function open(source) {
    try {
      const binary = source.name.toLowerCase().endsWith(".npy");
      const large = binary && source.size > app.device.memory / 4;
      const matrix = large
        ? await (await import("./large.js")).opened(source)
        : binary
          ? parseNpy(await source.arrayBuffer())
          : parseCsv(await source.text());
      take(matrix, source.name);
      text.value = preview(matrix);
    } catch (error) {
      refuse(
        error instanceof ProblemError ? error : new ProblemError(`${source.name} could not be read: ${inWords(error)}`),
      );
      text.value = "";
    }
  }

  function random() {
    try {
      const [m, n] = [Number(rows.value), Number(columns.value)];
      const most = Math.min(
        app.device.limits.maxStorageBufferBindingSize,
        app.device.limits.maxBufferSize,
        2 ** 31 - 4096,
      );
      if (m * n * 4 > most) {
        throw new UnsupportedError(
          `${m}×${n} needs ${(m * n * 4).toLocaleString("en")} bytes; ${app.device.info.name} allows ${most.toLocaleString("en")} per matrix`,
        );
      }
      const matrix = Matrix.random(m, n, seed);
      seed += 2;
      take(matrix, "random, from −0.5 to 0.5");
      text.value = preview(matrix);
    } catch (error) {
      refuse(error);
      text.value = "";
    }
  }

  /** @returns {Promise<Matrix | NpyFile>} */
  async function matrix() {
    if (loaded) return loaded;
    if (about.classList.contains("error") && text.value === "") throw new ProblemError(`${name}: ${about.textContent}`);
    try {
      return parseCsv(listed(text.value));
    } catch (error) {
      throw new ProblemError(`${name}: ${inWords(error)}`);
    }
  }
  return { element, matrix };
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

/** @param {Matrix} c @param {string} name @returns {HTMLElement} */
function numbers(c, name) {
  const values = c.floats();
  const rows = picks(c.rows);
  const columns = picks(c.columns);
  const cell = (/** @type {number | null} */ i, /** @type {number | null} */ j) =>
    h("td", { class: "number" }, i === null || j === null ? "…" : short(values[i * c.columns + j]));
  return h(
    "div",
    { class: "scroll", tabIndex: 0, role: "region", "aria-label": `Numbers of ${name}` },
    h(
      "table",
      { class: "matrix" },
      h("caption", {}, `${name}, ${c.rows}×${c.columns}`),
      h("thead", {}, h("tr", {}, h("td", {}), ...columns.map((j) => h("th", { scope: "col" }, j === null ? "…" : j)))),
      h(
        "tbody",
        {},
        ...rows.map((i) =>
          h("tr", {}, h("th", { scope: "row" }, i === null ? "…" : i), ...columns.map((j) => cell(i, j))),
        ),
      ),
    ),
  );
}

/** @param {number} length @returns {(number | null)[]} the indices to show; null for a gap */
function picks(length) {
  if (length <= SHOWN) return Array.from({ length }, (_, i) => i);
  return [...Array.from({ length: SHOWN - 2 }, (_, i) => i), null, length - 1];
}

/** @param {number} value */
const short = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(5))) : String(value));

/** @param {Matrix} c @param {string} name @returns {HTMLElement} */
function heatMap(c, name) {
  const values = c.floats();
  const largest = values.reduce((most, v) => (Number.isFinite(v) ? Math.max(most, Math.abs(v)) : most), 0) || 1;
  const [width, height] = [Math.min(c.columns, PICTURE), Math.min(c.rows, PICTURE)];
  const at = (/** @type {number} */ place, /** @type {number} */ length, /** @type {number} */ shown) =>
    Math.floor((place * length) / shown);
  const label = `Heat map of ${name}, from −${figures(largest)} to ${figures(largest)}`;
  const canvas = h("canvas", { width, height, class: "heat", role: "img", "aria-label": label });
  paint(canvas, (x, y) => values[at(y, c.rows, height) * c.columns + at(x, c.columns, width)] / largest);
  const scale = h("canvas", { width: 40, height: 1, class: "scale", "aria-hidden": "true" });
  paint(scale, (x) => x / 19.5 - 1);
  return h(
    "div",
    { class: "heat-frame" },
    canvas,
    h("div", { class: "legend" }, h("span", {}, `−${figures(largest)}`), scale, h("span", {}, figures(largest))),
  );
}

/** @param {HTMLCanvasElement} canvas @param {(x: number, y: number) => number} value of a pixel, from -1 to 1 */
function paint(canvas, value) {
  const { width, height } = canvas;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(width, height);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) image.data.set(colour(value(x, y)), 4 * (y * width + x));
  context.putImageData(image, 0, 0);
}

const LOW = [29, 78, 216];
const MIDDLE = [245, 245, 244];
const HIGH = [194, 65, 12];

/** @param {number} value from -1 to 1; anything else is grey @returns {[number, number, number, number]} */
function colour(value) {
  if (!Number.isFinite(value)) return [120, 113, 108, 255];
  const end = value < 0 ? LOW : HIGH;
  const t = Math.min(1, Math.abs(value));
  const mix = (/** @type {number} */ i) => Math.round(MIDDLE[i] + (end[i] - MIDDLE[i]) * t);
  return [mix(0), mix(1), mix(2), 255];
}
