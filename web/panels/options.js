// @ts-check
/** The options of a product: controls, and the `gpu.matmul()` call that they correspond to. */

import { div, field, h, select } from "../dom.js";
import { HostArray, Matrix, ProblemError, inWords, parseCsv } from "../webmm.js";
import { available } from "./ladder.js";

/** @import { App } from "../main.js" */
/** @import { DType } from "../webmm.js" */
/** @import { MatmulOptions } from "../engine/device.js" */
/** @import { Epilogue } from "../check.js" */
/** The operands' dtype, the options of `matmul()`, and the epilogue that they amount to, if any. @typedef {{dtype: DType, options: MatmulOptions, epilogue?: Epilogue}} Asked */

const BIASES = /** @type {[string, string][]} */ ([
  ["", "none"],
  ["column", "one per column"],
  ["row", "one per row"],
]);
const PRECISIONS = /** @type {[string, string][]} */ ([
  ["highest", "highest"],
  ["high", "high, on matrix units"],
]);

/** @param {App} app @param {() => void} onchange */
export function productOptions(app, onchange) {
  const types = available(app);
  const dtype = select({ id: "multiply-dtype", onchange }, types);
  const out = select({ id: "multiply-out", onchange }, [["", "same as A and B"], ...types]);
  const flip = (/** @type {string} */ name) =>
    h("input", { type: "checkbox", id: `multiply-transpose-${name.toLowerCase()}`, onchange });
  const [flipA, flipB] = [flip("A"), flip("B")];
  const alpha = h("input", { type: "text", id: "multiply-alpha", value: "1", inputMode: "decimal", oninput: onchange });
  const bias = select({ id: "multiply-bias", onchange: showValues }, BIASES);
  const values = h("input", {
    type: "text",
    id: "multiply-bias-values",
    placeholder: "random if empty",
    spellcheck: false,
    oninput: onchange,
  });
  const activation = select({ id: "multiply-activation", onchange }, [
    ["", "none"],
    ...app.bundle.core.ACTIVATIONS.keys(),
  ]);
  const precision = select({ id: "multiply-precision", onchange }, PRECISIONS);
  const valuesField = field("Bias values", values);
  valuesField.hidden = true;
  const check = (/** @type {HTMLElement} */ box, /** @type {string} */ label) =>
    h("label", { class: "check-field" }, box, label);
  const element = h(
    "fieldset",
    { class: "options" },
    h("legend", { class: "visually-hidden" }, "Options of the product"),
    field("Element type", dtype),
    div("checks", check(flipA, "Transpose A"), check(flipB, "Transpose B")),
    field("Alpha", alpha),
    field("Bias", bias),
    valuesField,
    field("Activation", activation),
    field("Result type", out),
    field("Precision", precision),
  );
  return { element, asked, call, flips: () => ({ a: flipA.checked, b: flipB.checked }) };

  function showValues() {
    valuesField.hidden = bias.value === "";
    onchange();
  }

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
    if (Number.isNaN(given.alpha)) throw new ProblemError(`alpha must be a number, not “${alpha.value}”`);
    const type = /** @type {DType} */ (dtype.value);
    const epilogue = { alpha: given.alpha ?? 1, activation: activation.value, bias: null, per: "" };
    if (!bias.value)
      return { dtype: type, options: given, ...((epilogue.alpha !== 1 || epilogue.activation) && { epilogue }) };
    const numbers = biasOf(bias.value === "row" ? rows : columns);
    const shape = bias.value === "row" ? [numbers.length, 1] : [numbers.length];
    const stored = HostArray.from(numbers, { shape }).as(type);
    return {
      dtype: type,
      options: { ...given, bias: stored },
      epilogue: { ...epilogue, bias: stored.floats(), per: bias.value },
    };
  }

  /** @param {number} count @returns {Float32Array} the values typed in, or `count` random ones */
  function biasOf(count) {
    if (!values.value.trim()) return Matrix.random(1, count, 3).floats();
    try {
      return parseCsv(values.value).floats();
    } catch (error) {
      throw new ProblemError(`bias: ${inWords(error)}`);
    }
  }
}
