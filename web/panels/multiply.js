// @ts-check
/** The visitor's own matrices: pasted, from files, or random; their product as a heat map, numbers and files. */

import { exponent } from "../charts.js";
import { download, field, figures, h, s, time } from "../dom.js";
import { call, dataclasses } from "../python.js";
import { productOptions } from "./options.js";
import {
  Checker,
  Matrix,
  ProblemError,
  UnsupportedError,
  errorBound,
  inWords,
  parseCsv,
  parseNpy,
  problemOf,
  toCsv,
  toNpy,
} from "../webmm.js";

/** @typedef {import("../main.js").App} App */
/** @typedef {import("../files.js").NpyFile} NpyFile */

const SHOWN = 8; // rows and columns of numbers, at most
const PICTURE = 384; // width and height of the heat map in pixels, at most
const EXAMPLE = { A: "1, 2, 3\n4, 5, 6", B: "1, 0\n0, 1\n2, 2" };

/** @param {App} app @param {HTMLElement} root */
export function setup(app, root) {
  const a = operand(app, "A");
  const b = operand(app, "B");
  const options = productOptions(app, showCall);
  const written = h("code", { id: "multiply-call" });
  const message = h("p", { class: "message", id: "multiply-message", role: "status" });
  const run = h("button", { type: "button", class: "primary", id: "multiply-run", onclick: start }, "Multiply");
  const result = h("div", { class: "result" });
  root.append(
    h(
      "div",
      { class: "lead" },
      h("h2", {}, "Your own matrices"),
      h(
        "p",
        {},
        "Compute C = A·B: paste rows of numbers, choose a CSV or .npy file, or generate random matrices. They stay in this tab.",
      ),
    ),
    h("div", { class: "operands" }, a.element, b.element),
    options.element,
    h("div", { class: "controls" }, run, written),
    message,
    result,
  );
  showCall();

  function showCall() {
    written.textContent = options.call();
  }

  async function start() {
    run.disabled = true;
    message.classList.remove("error");
    message.textContent = "Multiplying …";
    result.replaceChildren();
    try {
      await app.exclusively(multiply);
    } catch (error) {
      message.textContent = inWords(error);
      message.classList.add("error");
    } finally {
      run.disabled = false;
    }
  }

  async function multiply() {
    const flips = options.flips();
    const [x, y] = [await a.matrix(), await b.matrix()];
    if (!(x instanceof Matrix && y instanceof Matrix)) return multiplyLarge(x, y);
    const [left, right] = [flips.a ? transposed(x) : x, flips.b ? transposed(y) : y];
    const { dtype, options: asked, epilogue } = options.asked(left.rows, right.columns);
    const problem = problemOf(left.as(dtype), right.as(dtype));
    const started = performance.now();
    const c = await app.device.matmul(x.as(dtype), y.as(dtype), asked);
    const spent = (performance.now() - started) * 1e3;
    message.textContent = "Checking on the CPU …";
    const rounding = app.bundle.index.dtypes[c.dtype];
    const checker = new Checker(left.as(dtype), right.as(dtype), rounding, epilogue);
    const error = await checker.error(c);
    const bound = errorBound(problem.k, c.dtype, rounding, epilogue?.activation);
    const isRight = error <= bound;
    message.classList.toggle("error", !isRight);
    message.textContent = isRight
      ? `C is ${c.rows}×${c.columns} ${c.dtype}, computed by ${kernelOf(app, problem, asked, epilogue).label} in ${time(spent)}, upload and download included.`
      : `C is wrong: this browser or driver computes it incorrectly. Please report it, with the adapter's name.`;
    app.announce(message.textContent);
    const scale = epilogue ? "(|alpha||A||B| + |bias|)" : "|A||B|";
    show(
      c,
      `${checker.scope} compared; largest error ÷ ${scale} is ${exponent(error)}; rounding explains up to ${exponent(bound)}`,
    );
  }

  /** @param {Matrix | NpyFile} x @param {Matrix | NpyFile} y */
  async function multiplyLarge(x, y) {
    const { multiplyFiles } = await import("./large.js");
    const asked = options.asked(x.rows, y.columns);
    const started = performance.now();
    const { c, checked, error, bound } = await multiplyFiles(app, [x, y], asked, (done, total) => {
      message.textContent = `Multiplying … ${done} of ${total} pieces`;
    });
    const spent = (performance.now() - started) * 1e3;
    message.classList.toggle("error", !(error <= bound));
    message.textContent =
      error <= bound
        ? `C is ${c.rows}×${c.columns} ${c.dtype}, computed piece by piece in ${time(spent)}, files and check included.`
        : `C is wrong: this browser or driver computes it incorrectly. Please report it, with the adapter's name.`;
    app.announce(message.textContent);
    const name = `product-${c.rows}x${c.columns}.npy`;
    const save = () => download(name, c.blob, "application/octet-stream");
    const words = `${checked} elements compared; largest error ÷ |alpha||A||B| is ${exponent(error)}; rounding explains up to ${exponent(bound)}`;
    result.replaceChildren(
      h(
        "div",
        { class: "card" },
        h("p", { class: "check", id: "multiply-check" }, "CPU check: ", words),
        h(
          "div",
          { class: "controls" },
          h("button", { type: "button", id: "download-npy", onclick: save }, "Download .npy"),
        ),
      ),
    );
  }

  /** @param {Matrix} c @param {string} check */
  function show(c, check) {
    const name = `product-${c.rows}x${c.columns}`;
    result.replaceChildren(
      h("figure", { class: "card" }, h("figcaption", {}, "C as a heat map"), heatMap(c)),
      h(
        "div",
        { class: "card" },
        numbers(c),
        h("p", { class: "check", id: "multiply-check" }, "CPU check: ", check),
        h(
          "div",
          { class: "controls" },
          h(
            "button",
            {
              type: "button",
              id: "download-npy",
              onclick: () => download(`${name}.npy`, toNpy(c), "application/octet-stream"),
            },
            "Download .npy",
          ),
          h(
            "button",
            { type: "button", id: "download-csv", onclick: () => download(`${name}.csv`, toCsv(c), "text/csv") },
            "Download CSV",
          ),
        ),
      ),
    );
  }
}

/**
 * The kernel that `matmul()` chooses for a product of dense matrices, as those uploaded from host memory are.
 * @param {App} app @param {import("../webmm.js").Problem} p @param {import("../engine/device.js").MatmulOptions} asked @param {import("../check.js").Epilogue} [epilogue]
 */
function kernelOf({ device, bundle }, p, { outDtype, precision = "highest" }, epilogue) {
  const { core } = bundle;
  const plain = call(core.gemm, [p.m, p.n, p.k], { dtype: p.dtype, out_dtype: outDtype ?? null, precision });
  const finished = epilogue
    ? dataclasses.replace(plain, { alpha: epilogue.alpha, bias: epilogue.per, activation: epilogue.activation })
    : plain;
  return device.choose(/** @type {any} */ (core.attainable(finished, device.choices.described)));
}

/** @param {Matrix} x @returns {Matrix} */
function transposed(x) {
  const { data, rows, columns } = x;
  const flipped = data.map((_, i) => data[(i % rows) * columns + Math.floor(i / rows)]);
  return new Matrix(flipped, [columns, rows], x.dtype);
}

/** The controls of one operand. @param {App} app @param {"A" | "B"} name */
function operand(app, name) {
  /** @type {Matrix | NpyFile | null} */
  let loaded = null;
  let seed = name === "A" ? 1 : 2;
  const id = name.toLowerCase();
  const text = h("textarea", {
    id: `${id}-text`,
    rows: 5,
    spellcheck: false,
    value: EXAMPLE[name],
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
      return parseCsv(text.value);
    } catch (error) {
      throw new ProblemError(`${name}: ${inWords(error)}`);
    }
  }
  return { element, matrix };
}

/** @param {Matrix | NpyFile} matrix @returns {string} the matrix as text, or its corner */
function preview(matrix) {
  if (matrix instanceof Matrix && matrix.rows * matrix.columns <= 400) return toCsv(matrix).trimEnd();
  return `# ${matrix.rows}×${matrix.columns}, too large to show here; typing replaces the matrix`;
}

/** @param {Matrix} c @returns {HTMLElement} */
function numbers(c) {
  const values = c.floats();
  const rows = picks(c.rows);
  const columns = picks(c.columns);
  const cell = (/** @type {number | null} */ i, /** @type {number | null} */ j) =>
    h("td", { class: "number" }, i === null || j === null ? "…" : short(values[i * c.columns + j]));
  return h(
    "div",
    { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Numbers of C" },
    h(
      "table",
      { class: "matrix" },
      h("caption", {}, `C, ${c.rows}×${c.columns}`),
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

/** @param {Matrix} c @returns {HTMLElement} */
function heatMap(c) {
  const values = c.floats();
  const largest = values.reduce((most, v) => (Number.isFinite(v) ? Math.max(most, Math.abs(v)) : most), 0) || 1;
  const width = Math.min(c.columns, PICTURE);
  const height = Math.min(c.rows, PICTURE);
  const canvas = h("canvas", { width, height, class: "heat", role: "img" });
  canvas.setAttribute("aria-label", `Heat map of C, from −${figures(largest)} to ${figures(largest)}`);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(width, height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const i = Math.floor((y * c.rows) / height) * c.columns + Math.floor((x * c.columns) / width);
      image.data.set(colour(values[i] / largest), 4 * (y * width + x));
    }
  }
  context.putImageData(image, 0, 0);
  const scale = s("svg", { viewBox: "0 0 200 10", class: "scale", "aria-hidden": "true", preserveAspectRatio: "none" });
  for (let i = 0; i < 40; i++) {
    const [r, g, b] = colour(i / 19.5 - 1);
    scale.append(s("rect", { x: i * 5, y: 0, width: 5.2, height: 10, fill: `rgb(${r},${g},${b})` }));
  }
  return h(
    "div",
    { class: "heat-frame" },
    canvas,
    h("div", { class: "legend" }, h("span", {}, `−${figures(largest)}`), scale, h("span", {}, figures(largest))),
  );
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
