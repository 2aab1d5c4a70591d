/** The options of a product, and the `gpu.matmul()` call that they correspond to. */

import { all, options as listed } from "../dom.js";
import { HostArray, Matrix, ProblemError, inWords, parseCsv } from "../webmm.js";

/** @import { DType } from "../webmm.js" */
/** @import { MatmulOptions } from "../engine/device.js" */
/** @import { Epilogue } from "../check.js" */
/** The operands' dtype, the options of `matmul()`, and the epilogue that they amount to, if any. @typedef {{dtype: DType, options: MatmulOptions, epilogue?: Epilogue}} Asked */

/** @param {import("../main.js").App} app */
export function productOptions(app) {
  const [dtype, out, bias] = all("select", "multiply-dtype", "multiply-out", "multiply-bias");
  const [activation, precision] = all("select", "multiply-activation", "multiply-precision");
  const [flipA, flipB] = all("input", "multiply-transpose-a", "multiply-transpose-b");
  const [alpha, values] = all("input", "multiply-alpha", "multiply-bias-values");
  activation.append(...listed([...app.bundle.core.ACTIVATIONS.keys()]));
  return { asked, call, flips: () => ({ a: flipA.checked, b: flipB.checked }) };

  /** @returns {Record<string, any>} the options that differ from the defaults, except the bias */
  function options() {
    return {
      ...(flipA.checked && { transposeA: true }),
      ...(flipB.checked && { transposeB: true }),
      ...(alpha.value.trim() !== "1" && { alpha: alpha.value.trim() === "" ? NaN : Number(alpha.value) }),
      ...(activation.value && { activation: activation.value }),
      ...(out.value && { outDtype: out.value }),
      ...(precision.value !== "highest" && { precision: precision.value }),
    };
  }

  /** @returns {string} the call in JavaScript */
  function call() {
    const words = Object.entries(options()).map(([name, value]) => `${name}: ${JSON.stringify(value)}`);
    if (bias.value) words.push("bias");
    return `await gpu.matmul(a, b${words.length ? `, { ${words.join(", ")} }` : ""})`;
  }

  /** @param {number} rows of C @param {number} columns of C @returns {Asked} throws ProblemError if alpha or a bias value is not a number */
  function asked(rows, columns) {
    const given = options();
    const [{ alpha: factor = 1 }, type] = [given, /** @type {DType} */ (dtype.value)];
    if (Number.isNaN(factor)) throw new ProblemError(`alpha must be a number, not “${alpha.value}”`);
    if (bias.value) given.bias = biasOf(bias.value === "row" ? rows : columns).as(type);
    const added = given.bias?.floats() ?? null;
    const epilogue = { alpha: factor, activation: activation.value, bias: added, per: bias.value };
    const isPlain = factor === 1 && !activation.value && !bias.value;
    return { dtype: type, options: given, ...(!isPlain && { epilogue }) };
  }

  /** @param {number} count @returns {HostArray} the values typed in, or `count` random ones */
  function biasOf(count) {
    try {
      const numbers = values.value.trim() ? parseCsv(values.value).floats() : Matrix.random(1, count, 3).floats();
      return HostArray.from(numbers, { shape: bias.value === "row" ? [numbers.length, 1] : [numbers.length] });
    } catch (error) {
      throw new ProblemError(`bias: ${inWords(error)}`);
    }
  }
}
