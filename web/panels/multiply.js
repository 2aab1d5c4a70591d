/** The visitor's own matrices: pasted, from files, or random; their product as a heat map, numbers and files. */

import { exponent } from "../bundle/core.js";
import { FORMS } from "../bundle/ops.js";
import { all, bind, byId, options as listed, say } from "../dom.js";
import { call, dataclasses } from "../python.js";
import { Checker, Matrix, errorBound, problemOf, toNpy } from "../webmm.js";
import { operand, show, timed, transposed } from "./matrices.js";
import { productOptions } from "./options.js";

/** @import { App } from "../main.js" */
/** @import { NpyFile } from "../files.js" */

/** @param {App} app @param {HTMLElement} root */
export function setup(app, root) {
  const [a, b] = [operand(app, "A"), operand(app, "B")];
  const options = productOptions(app);
  const [ops] = all("select", "multiply-op");
  const [run] = all("button", "multiply-run");
  const [message] = all("p", "multiply-message");
  const result = byId("multiply-result");
  /** @type {Promise<(name: string) => void> | undefined} */
  let form;
  ops.append(...listed(FORMS));
  bind(root, { choose, start, showCall });
  showCall();

  /** Show the form of the chosen op, once it is ready. */
  async function choose() {
    if (ops.value) {
      form ??= import("./form.js").then(({ opForm }) => opForm(app));
      (await form)(ops.value);
    }
    byId("multiply-product").hidden = ops.value !== "";
    byId("multiply-form").hidden = ops.value === "";
  }

  function showCall() {
    byId("multiply-call").textContent = options.call();
  }

  function start() {
    return app.attempt(run, message, multiply, { words: "Multiplying …", result });
  }

  async function multiply() {
    const flips = options.flips();
    const [x, y] = [await a(), await b()];
    if (!(x instanceof Matrix && y instanceof Matrix)) return multiplyLarge(x, y);
    const [left, right] = [flips.a ? transposed(x) : x, flips.b ? transposed(y) : y];
    const { dtype, options: asked, epilogue } = options.asked(left.rows, right.columns);
    const problem = problemOf(left.as(dtype), right.as(dtype));
    const [c, took] = await timed(app, () => app.device.matmul(x.as(dtype), y.as(dtype), asked));
    say(message, "Checking on the CPU …");
    const rounding = app.bundle.index.dtypes[c.dtype];
    const checker = new Checker(left.as(dtype), right.as(dtype), rounding, epilogue);
    const error = await checker.error(c);
    const bound = errorBound(problem.k, c.dtype, rounding, epilogue?.activation);
    const { label } = kernelOf(app, problem, asked, epilogue);
    const words = `C is ${c.rows}×${c.columns} ${c.dtype}, computed by ${label} in ${took}.`;
    const scale = epilogue ? "(|alpha||A||B| + |bias|)" : "|A||B|";
    const check = `${checker.scope} ${within(error, scale, bound)}`;
    const file = `product-${c.rows}x${c.columns}`;
    show(app, message, result, { right: error <= bound, words, file, npy: () => toNpy(c), check, c });
  }

  /** @param {Matrix | NpyFile} x @param {Matrix | NpyFile} y */
  async function multiplyLarge(x, y) {
    const { multiplyFiles } = await import("./large.js");
    const progress = (/** @type {number} */ done, /** @type {number} */ total) =>
      say(message, `Multiplying … ${done} of ${total} pieces`);
    const work = () => multiplyFiles(app, [x, y], options.asked(x.rows, y.columns), progress);
    const [{ c, checked, error, bound }, took] = await timed(app, work, "files and check");
    const words = `C is ${c.rows}×${c.columns} ${c.dtype}, computed piece by piece in ${took}.`;
    const check = `${checked} elements ${within(error, "|alpha||A||B|", bound)}`;
    const file = `product-${c.rows}x${c.columns}`;
    show(app, message, result, { right: error <= bound, words, file, npy: () => c.blob, check });
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
  const { alpha = 1, per: bias = "", activation = "" } = epilogue ?? {};
  const finished = dataclasses.replace(plain, { alpha, bias, activation });
  return device.choose(/** @type {any} */ (core.attainable(finished, device.choices.described)));
}
