// @ts-check
/** The visitor's own matrices: pasted, from files, or random; their product as a heat map, numbers and files. */

import { exponent } from "../charts.js";
import { download, field, h, select, time } from "../dom.js";
import { call, dataclasses } from "../python.js";
import { Checker, Matrix, errorBound, problemOf } from "../webmm.js";
import { operand, show } from "./matrices.js";
import { productOptions } from "./options.js";

/** @import { App } from "../main.js" */
/** @import { NpyFile } from "../files.js" */

/** @param {App} app @param {HTMLElement} root */
export function setup(app, root) {
  const a = operand(app, "A");
  const b = operand(app, "B");
  const options = productOptions(app, showCall);
  const written = h("code", { id: "multiply-call" });
  const message = h("p", { class: "message", id: "multiply-message", role: "status" });
  const run = h("button", { type: "button", class: "primary", id: "multiply-run", onclick: start }, "Multiply");
  const result = h("div", { class: "result" });
  const ops = select({ id: "multiply-op", onchange: choose }, [["", "Matrix product"]]);
  const product = h(
    "div",
    {},
    h("div", { class: "operands" }, a.element, b.element),
    options.element,
    h("div", { class: "controls" }, run, written),
    message,
    result,
  );
  const other = h("div", { hidden: true });
  root.append(
    h(
      "div",
      { class: "lead" },
      h("h2", {}, "Your own matrices"),
      h(
        "p",
        {},
        "Compute C = A·B, or an operation of each row: paste rows of numbers or a list such as [[1, 2], [3, 4]], choose a CSV or .npy file, or generate random matrices. They stay in this tab.",
      ),
    ),
    h("div", { class: "controls" }, field("Operation", ops)),
    product,
    other,
  );
  showCall();
  void app.bundle.module("ops.js").then(
    ({ FORMS }) => ops.append(...FORMS.map((/** @type {string} */ name) => h("option", { value: name }, name))),
    () => (ops.disabled = true), // offline, and not cached
  );

  /** Show the form of the chosen op. */
  async function choose() {
    product.hidden = ops.value !== "";
    other.hidden = ops.value === "";
    if (ops.value) other.replaceChildren((await import("./form.js")).form(app, ops.value));
  }

  function showCall() {
    written.textContent = options.call();
  }

  async function start() {
    message.textContent = "Multiplying …";
    result.replaceChildren();
    await app.attempt(run, message, multiply);
  }

  async function multiply() {
    const flips = options.flips();
    const [x, y] = [await a.matrix(), await b.matrix()];
    if (!(x instanceof Matrix && y instanceof Matrix)) return multiplyLarge(x, y);
    const [left, right] = [flips.a ? transposed(x) : x, flips.b ? transposed(y) : y];
    const { dtype, options: asked, epilogue } = options.asked(left.rows, right.columns);
    const problem = problemOf(left.as(dtype), right.as(dtype));
    const { pipelines } = app.device;
    const [started, compiled] = [performance.now(), pipelines.count];
    const c = await app.device.matmul(x.as(dtype), y.as(dtype), asked);
    const spent = (performance.now() - started) * 1e3;
    const included = pipelines.count > compiled ? "compilation, upload and download" : "upload and download";
    message.textContent = "Checking on the CPU …";
    const rounding = app.bundle.index.dtypes[c.dtype];
    const checker = new Checker(left.as(dtype), right.as(dtype), rounding, epilogue);
    const error = await checker.error(c);
    const bound = errorBound(problem.k, c.dtype, rounding, epilogue?.activation);
    const isRight = error <= bound;
    message.classList.toggle("error", !isRight);
    message.textContent = isRight
      ? `C is ${c.rows}×${c.columns} ${c.dtype}, computed by ${kernelOf(app, problem, asked, epilogue).label} in ${time(spent)}, ${included} included.`
      : `C is wrong: this browser or driver computes it incorrectly. Please report it, with the adapter's name.`;
    app.announce(message.textContent);
    const scale = epilogue ? "(|alpha||A||B| + |bias|)" : "|A||B|";
    show(
      result,
      c,
      "C",
      `product-${c.rows}x${c.columns}`,
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
