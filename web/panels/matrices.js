// @ts-check
/** Matrices as a visitor gives them – pasted, from files, or random – and as results: a heat map, numbers and files. */

import { button, div, download, field, figures, h, row, say, scrolled, table, time } from "../dom.js";
import { Matrix, ProblemError, UnsupportedError, inWords, parseCsv, parseNpy, toCsv, toNpy } from "../webmm.js";

/** @import { App } from "../main.js" */
/** @import { NpyFile } from "../files.js" */

const SHOWN = 8; // rows and columns of numbers, at most
const PICTURE = 384; // width and height of the heat map in pixels, at most
const EXAMPLES = { A: "1, 2, 3\n4, 5, 6", B: "1, 0\n0, 1\n2, 2", X: "1, 2, 3, 4\n0.5, -1, 2, 0" };
const SEEDS = { A: 1, B: 2, X: 3 };

/** Compute a result. @template T @param {App} app @param {() => Promise<T>} work @returns {Promise<[result: T, took: string]>} the time that it took, in words */
export async function timed({ device: { pipelines } }, work) {
  const [started, compiled] = [performance.now(), pipelines.count];
  const result = await work();
  const spent = time((performance.now() - started) * 1e3);
  return [result, `${spent}, ${pipelines.count > compiled ? "compilation, " : ""}upload and download included`];
}

/** Tell that a result is right, or that it is wrong. @param {App} app @param {HTMLElement} message @param {boolean} right @param {string} words for a right one @param {string} [name] of the result, and its first wrong element */
export function judge(app, message, right, words, name = "C", first = "") {
  const wrong = `${name} is wrong${first && ` (${first})`}: this browser or driver computes it incorrectly. Please report it, with the adapter's name.`;
  say(message, right ? words : wrong, !right);
  app.announce(right ? words : wrong);
}

/** What the check of a result says, and buttons to download it. @param {string} check @param {...HTMLElement} buttons */
export const checked = (check, ...buttons) => [
  h("p", { class: "check", id: "multiply-check" }, "CPU check: ", check),
  div("controls", ...buttons),
];

/**
 * Show a result, what its check says, and buttons to download it.
 * @param {HTMLElement} result @param {Matrix} c @param {string} name such as C @param {string} file without its suffix @param {string} check
 */
export function show(result, c, name, file, check) {
  const npy = () => download(`${file}.npy`, toNpy(c), "application/octet-stream");
  const csv = () => download(`${file}.csv`, toCsv(c), "text/csv");
  const buttons = [button("download-npy", "Download .npy", npy), button("download-csv", "Download CSV", csv)];
  result.replaceChildren(
    h("figure", { class: "card" }, h("figcaption", {}, `${name} as a heat map`), heatMap(c, name)),
    div("card", numbers(c, name), ...checked(check, ...buttons)),
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
  const length = (/** @type {string} */ axis) =>
    h("input", { type: "number", id: `${id}-${axis}`, min: 1, value: 256, inputMode: "numeric" });
  const [rows, columns] = ["rows", "columns"].map(length);
  const draw = button(`${id}-random`, "Random", random);
  const element = h(
    "fieldset",
    { class: "card operand" },
    h("legend", {}, name),
    text,
    div("row", file),
    div("row", field("Rows", rows), field("Columns", columns), draw),
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
    say(about, matrix ? `${words}: ${matrix.rows}×${matrix.columns} ${matrix.dtype}` : "");
  }

  /** @param {unknown} error */
  function refuse(error) {
    loaded = null;
    say(about, inWords(error), true);
    text.value = "";
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
    }
  }

  function random() {
    try {
      const { info, limits } = app.device;
      const [m, n] = [Number(rows.value), Number(columns.value)];
      const most = Math.min(limits.maxStorageBufferBindingSize, limits.maxBufferSize, 2 ** 31 - 4096);
      if (m * n * 4 > most) {
        throw new UnsupportedError(
          `${m}×${n} needs ${(m * n * 4).toLocaleString("en")} bytes; ${info.name} allows ${most.toLocaleString("en")} per matrix`,
        );
      }
      const matrix = Matrix.random(m, n, seed);
      seed += 2;
      take(matrix, "random, from −0.5 to 0.5");
      text.value = preview(matrix);
    } catch (error) {
      refuse(error);
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
  const columns = picks(c.columns);
  const named = (/** @type {number | null} */ i) => i ?? "…";
  const cell = (/** @type {number | null} */ i, /** @type {number | null} */ j) =>
    i === null || j === null ? "…" : short(values[i * c.columns + j]);
  const rows = picks(c.rows).map((i) =>
    row(
      [named(i)],
      columns.map((j) => cell(i, j)),
    ),
  );
  const whole = table(["", ...columns.map(named)], rows, `${name}, ${c.rows}×${c.columns}`, { class: "matrix" });
  return scrolled(`Numbers of ${name}`, whole);
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
  const ends = [`−${figures(largest)}`, figures(largest)].map((words) => h("span", {}, words));
  return div("heat-frame", canvas, div("legend", ends[0], scale, ends[1]));
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
