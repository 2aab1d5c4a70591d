/** The visitor's own matrices: pasted, from files, or random; their product as a heat map, numbers and files. */

import { FORMS } from "../bundle/ops.js";
import { all, bind, byId, options as listed, say } from "../dom.js";
import { Checker, Matrix, errorBound, problemOf } from "../webmm.js";
import { operand, show, timed, transposed } from "./matrices.js";
import { productOptions } from "./options.js";

/** @import { NpyFile } from "../files.js" */

/** @param {import("../main.js").App} app @param {HTMLElement} root */
export function setup(app, root) {
  const { bundle, device } = app;
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
    const [c, took] = await timed(app, () => device.matmul(x.as(dtype), y.as(dtype), asked));
    say(message, "Checking on the CPU …");
    const rounding = bundle.index.dtypes[c.dtype];
    const checker = new Checker(left.as(dtype), right.as(dtype), rounding, epilogue);
    const error = await checker.error(c);
    const bound = errorBound(problem.k, c.dtype, rounding, epilogue?.activation);
    const { alpha = 1, per = "", activation = "" } = epilogue ?? {};
    const given = [c.dtype, asked.precision ?? "highest", alpha, per, activation, device.choices.described];
    const how = `by ${device.choose(device.core.finished(bundle.problem(problem), ...given)).label} in ${took}`;
    const scale = epilogue ? "(|alpha||A||B| + |bias|)" : "|A||B|";
    show(app, message, result, { c, how, scope: checker.scope, error, bound, scale });
  }

  /** @param {Matrix | NpyFile} x @param {Matrix | NpyFile} y */
  async function multiplyLarge(x, y) {
    const { multiplyFiles } = await import("./large.js");
    const progress = (/** @type {number} */ done, /** @type {number} */ total) =>
      say(message, `Multiplying … ${done} of ${total} pieces`);
    const work = () => multiplyFiles(app, [x, y], options.asked(x.rows, y.columns), progress);
    const [{ c, checked, error, bound }, took] = await timed(app, work, "files and check");
    const check = { scope: `${checked} elements`, error, bound, scale: "|alpha||A||B|" };
    show(app, message, result, { c, how: `piece by piece in ${took}`, ...check });
  }
}
