// @ts-check
/** The visitor's own matrices: pasted, from files, or random; their product as a heat map, numbers and files. */

import { exponent } from "../charts.js";
import { PRIMARY, button, div, download, field, h, messageLine, options as listed, select, time } from "../dom.js";
import { call, dataclasses } from "../python.js";
import { Checker, Matrix, errorBound, problemOf } from "../webmm.js";
import { checked, judge, operand, show, timed } from "./matrices.js";
import { productOptions } from "./options.js";

/** @import { App } from "../main.js" */
/** @import { NpyFile } from "../files.js" */

/** @param {App} app @param {HTMLElement} root */
export function setup(app, root) {
  const a = operand(app, "A");
  const b = operand(app, "B");
  const options = productOptions(app, showCall);
  const written = h("code", { id: "multiply-call" });
  const message = messageLine("multiply-message");
  const run = button("multiply-run", "Multiply", start, PRIMARY);
  const result = div("result");
  const ops = select({ id: "multiply-op", onchange: choose }, [["", "Matrix product"]]);
  const operands = div("operands", a.element, b.element);
  const product = div("", operands, options.element, div("controls", run, written), message, result);
  const other = h("div", { hidden: true });
  root.append(
    div(
      "lead",
      h("h2", {}, "Your own matrices"),
      h(
        "p",
        {},
        "Compute C = A·B, or an operation of each row: paste rows of numbers or a list such as [[1, 2], [3, 4]], choose a CSV or .npy file, or generate random matrices. They stay in this tab.",
      ),
    ),
    div("controls", field("Operation", ops)),
    product,
    other,
  );
  showCall();
  void app.bundle.module("ops.js").then(
    ({ FORMS }) => ops.append(...listed(FORMS)),
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
    const [c, took] = await timed(app, () => app.device.matmul(x.as(dtype), y.as(dtype), asked));
    message.textContent = "Checking on the CPU …";
    const rounding = app.bundle.index.dtypes[c.dtype];
    const checker = new Checker(left.as(dtype), right.as(dtype), rounding, epilogue);
    const error = await checker.error(c);
    const bound = errorBound(problem.k, c.dtype, rounding, epilogue?.activation);
    const { label } = kernelOf(app, problem, asked, epilogue);
    const words = `C is ${c.rows}×${c.columns} ${c.dtype}, computed by ${label} in ${took}.`;
    judge(app, message, error <= bound, words);
    const scale = epilogue ? "(|alpha||A||B| + |bias|)" : "|A||B|";
    show(result, c, "C", `product-${c.rows}x${c.columns}`, `${checker.scope} ${within(error, scale, bound)}`);
  }

  /** @param {Matrix | NpyFile} x @param {Matrix | NpyFile} y */
  async function multiplyLarge(x, y) {
    const { multiplyFiles } = await import("./large.js");
    const asked = options.asked(x.rows, y.columns);
    const started = performance.now();
    const {
      c,
      checked: count,
      error,
      bound,
    } = await multiplyFiles(app, [x, y], asked, (done, total) => {
      message.textContent = `Multiplying … ${done} of ${total} pieces`;
    });
    const spent = time((performance.now() - started) * 1e3);
    const words = `C is ${c.rows}×${c.columns} ${c.dtype}, computed piece by piece in ${spent}, files and check included.`;
    judge(app, message, error <= bound, words);
    const name = `product-${c.rows}x${c.columns}.npy`;
    const save = button("download-npy", "Download .npy", () => download(name, c.blob, "application/octet-stream"));
    const check = `${count} elements ${within(error, "|alpha||A||B|", bound)}`;
    result.replaceChildren(div("card", ...checked(check, save)));
  }
}

/** @param {number} error @param {string} scale of errors @param {number} bound */
const within = (error, scale, bound) =>
  `compared; largest error ÷ ${scale} is ${exponent(error)}; rounding explains up to ${exponent(bound)}`;

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
