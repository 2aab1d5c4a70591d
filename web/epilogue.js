/** Functions of one's own of each element of a product: expressions with numbers and arrays, as in webmm/wgsl/own.py. */

import { DeviceArray } from "./engine/array.js";
import { ProblemError } from "./errors.js";
import { numbersOf } from "./expressions.js";
import { HostArray } from "./host.js";
import { Dict, make, repr } from "./python.js";
import { add, include } from "./templates.js";

/** @import { Call } from "./engine/plans.js" */
/** @import { HostData } from "./host.js" */
/** A function for a bundle, and its values. @typedef {{name: string, numbers: number[], operands: (DeviceArray | HostArray)[]}} Applied */

/**
 * A function of each element, for `activation` of `Device.matmul()` and `Device.qmatmulWeights()`, and for `Device.map()`.
 *
 *     const leaky = new Epilogue("where(x > 0, x, slope * x)", { slope: 0.1 });
 *     const c = await gpu.matmul(a, b, { activation: leaky });
 *
 * The text is an expression of x in the language of Python's `webmm.elementwise()`. Its other names stand for `values`: up to
 * four numbers, and up to three arrays that broadcast to the result. Other values need no other shader, if arrays have the
 * same dtype: float32, float16, int32 or bool. `new Epilogue({ wgsl })` is an expression in WGSL of x, a vec4f, or code that
 * defines `fn activate(x: vec4f) -> vec4f`; nothing checks what it computes.
 */
export class Epilogue {
  /** @param {string | {wgsl: string}} given @param {Record<string, number | HostData | DeviceArray>} [values] the call that it is passed to throws ProblemError for an invalid text, and for values that it does not use or lacks or that are too many */
  constructor(given, values = {}) {
    const wgsl = typeof given === "object";
    const text = typeof given === "object" ? given?.wgsl : given;
    if (typeof text !== "string" || !text)
      throw new ProblemError(
        'an epilogue needs a text, such as new Epilogue("where(x > 0, x, slope * x)", { slope: 0.1 })',
      );
    const names = Object.keys(values);
    const numbers = names.filter((name) => typeof values[name] === "number");
    const arrays = names.filter((name) => typeof values[name] !== "number");
    if (wgsl && names.length)
      throw new ProblemError(`epilogue ${repr(text)}: WGSL takes x alone, not ${names.join(", ")}`);
    this.text = text;
    this.wgsl = wgsl;
    this.names = { numbers, arrays };
    this.numbers = numbers.map((name) => /** @type {number} */ (values[name]));
    this.parts = arrays.map((name) => {
      const x = /** @type {HostData | DeviceArray} */ (values[name]);
      return x instanceof DeviceArray ? x : HostArray.from(x);
    });
    /** The functions that are applied in turn, each of one text. @type {Epilogue[]} */
    this.links = [this];
  }

  /** What plans depend on, besides the layouts of the arrays. */
  get kind() {
    const links = this.links.map(({ text, wgsl, names }) => ({ text, wgsl, ...names }));
    return `${JSON.stringify(links)} ${this.numbers.map((x) => (Object.is(x, -0) ? "-0" : x))}`;
  }

  /** Apply this one, and another one, or the activation of that name, to the result. @param {Epilogue | string} following @returns {Epilogue} */
  then(following) {
    const other = following instanceof Epilogue ? following : new Epilogue(`${following}(x)`);
    return Object.assign(new Epilogue("x"), {
      links: [...this.links, ...other.links],
      numbers: [...this.numbers, ...other.numbers],
      parts: [...this.parts, ...other.parts],
    });
  }

  /** Compile it for a bundle, once. @param {Call} call @returns {Promise<Applied>} */
  async applied(call) {
    const { core, device } = call;
    const operands = this.parts.map((x) => call.data(x));
    const compiler = await device.bundle.module("compiler.js");
    const links = this.links.map(({ text, wgsl, names, parts }) => {
      if (wgsl) return make(core.Link, [text, text, 0, [], true]); // in Python with a function of NumPy
      const arrays = new Dict(names.arrays.map((name, i) => [name, parts[i].dtype]));
      return compiler.link_of(text, names.numbers, arrays, compiler.tree_of, numbersOf(compiler));
    });
    compiler.check_count(this.links.map(({ text }) => text).join(", then "), this.numbers.length, operands.length);
    const name = `own_${keyed(links.map((link) => `${link.wgsl} ${link.numbers} ${link.kinds} ${link.numpy}`).join("\n"))}`;
    if (!core.OWN.has(name)) {
      const own = make(core.Function, [name, links]);
      const paths = own.included.map((/** @type {string} */ file) => `elementwise/${file}`);
      for (const each of paths) await device.bundle.module(`templates/${each}.js`);
      add(`epilogues/${name}.wgsl`, (scope) =>
        [...paths.map((/** @type {string} */ each) => include(`${each}.wgsl`, scope)), own.text].join("\n\n"),
      );
      for (const width of [1, 4]) add(`epilogues/${name}/${width}.wgsl`, () => own.statements(width));
      core.OWN.set(name, own);
    }
    return { name, numbers: this.numbers.map(Math.fround), operands };
  }
}

/** @type {Map<string, number>} a number for each function */
const numbered = new Map();

/** @param {string} key @returns {number} the same for the same key */
export function keyed(key) {
  if (!numbered.has(key)) numbered.set(key, numbered.size);
  return /** @type {number} */ (numbered.get(key));
}
