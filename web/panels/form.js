/** The form of an op of one array: the visitor's X, along its rows; the op's row checks the result. */

import { all, byId, say } from "../dom.js";
import { compared, rowCase } from "../exhibits.js";
import { Matrix, UnsupportedError } from "../webmm.js";
import { operand, show, timed } from "./matrices.js";

/** @param {import("../main.js").App} app @returns {(name: string) => void} shows the form of an op, or of OP:VARIANT */
export function opForm(app) {
  const { bundle, device } = app;
  const x = operand(app, "X");
  const [dtype] = all("select", "form-dtype");
  const [run] = all("button", "form-run");
  const [message] = all("p", "form-message");
  const result = byId("form-result");
  return (name) => {
    say(message, "");
    result.replaceChildren();
    run.textContent = `Compute ${name}`;
    run.onclick = () => app.attempt(run, message, () => compute(name), { words: "Computing …", result });
  };

  /** @param {string} name */
  async function compute(name) {
    const given = await x();
    if (!(given instanceof Matrix))
      throw new UnsupportedError("a file that is too large for memory can be an operand of a matrix product only");
    const host = given.as(/** @type {import("../webmm.js").DType} */ (dtype.value));
    const row = await bundle.row(.../** @type {[string, string?]} */ (name.split(":")));
    const problem = row.problem([host.rows, host.columns, 1], host.dtype);
    const kernel = device.choose(problem);
    const [y, took] = await timed(app, async () => (await rowCase(device, row, problem, host)).compute(kernel));
    say(message, "Checking on the CPU …");
    const numbers = y.floats();
    const check = await compared(row, problem, host.floats(), numbers);
    const c = new Matrix(numbers, [host.rows, numbers.length / host.rows]);
    const about = { name: "y", title: name.replace(":", "-"), c, dtype: y.dtype, how: `by ${kernel.label} in ${took}` };
    show(app, message, result, { ...about, ...check });
  }
}
