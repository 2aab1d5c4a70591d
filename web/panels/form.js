// @ts-check
/** The form of an op of one array: the visitor's X, along its rows; the op's row checks the result. */

import { exponent } from "../charts.js";
import { PRIMARY, button, div, field, messageLine, select } from "../dom.js";
import { blank, compared } from "../exhibits.js";
import { Matrix, UnsupportedError } from "../webmm.js";
import { available } from "./ladder.js";
import { judge, operand, show, timed } from "./matrices.js";

/** @import { App } from "../main.js" */

/** @param {App} app @param {string} name an op, or OP:VARIANT @returns {HTMLElement} */
export function form(app, name) {
  const { bundle, device } = app;
  const x = operand(app, "X");
  const dtype = select({ id: "form-dtype" }, available(app));
  const message = messageLine("form-message");
  const run = button("form-run", `Compute ${name}`, start, PRIMARY);
  const result = div("result");
  const controls = div("controls", field("Element type", dtype), run);
  return div("", div("operands", x.element), controls, message, result);

  async function start() {
    message.textContent = "Computing …";
    result.replaceChildren();
    await app.attempt(run, message, compute);
  }

  async function compute() {
    const given = await x.matrix();
    if (!(given instanceof Matrix))
      throw new UnsupportedError("a file that is too large for memory can be an operand of a matrix product only");
    const host = given.as(/** @type {import("../webmm.js").DType} */ (dtype.value));
    const row = await bundle.row(.../** @type {[string, string?]} */ (name.split(":")));
    const problem = row.problem([host.rows, host.columns, 1], host.dtype);
    const kernel = device.choose(problem);
    const [y, took] = await timed(app, () => computed(kernel.of, problem, host));
    message.textContent = "Checking on the CPU …";
    const numbers = y.floats();
    const { scope, error, bound, first } = await compared(row, problem, host.floats(), numbers);
    const columns = numbers.length / host.rows;
    const words = `y is ${host.rows}×${columns} ${y.dtype}, computed by ${kernel.label} in ${took}.`;
    judge(app, message, error <= bound, words, "y", first);
    const check = `${scope} compared; largest error is ${exponent(error)}, rounding explains up to ${exponent(bound)}`;
    const file = `${name.replace(":", "-")}-${host.rows}x${columns}`;
    show(result, new Matrix(numbers, [host.rows, columns]), "y", file, check);
  }

  /** @param {any} kernel @param {any} problem translated @param {Matrix} host */
  async function computed(kernel, problem, host) {
    const there = await device.array(host);
    const y = await blank(device, problem).catch((error) => {
      there.free();
      throw error;
    });
    try {
      device.submit(await device.launches.get(kernel, problem, [there, y]), 1);
      return await y.read();
    } finally {
      there.free();
      y.free();
    }
  }
}
