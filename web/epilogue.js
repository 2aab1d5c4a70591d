// @ts-check
/** Functions of one's own of each element of a product: expressions with numbers and arrays, as in webmm/wgsl/own.py. */

import { DeviceArray } from "./engine/array.js";
import { ProblemError } from "./errors.js";
import { numbersOf } from "./expressions.js";
import { HostArray } from "./host.js";
import { Dict, make, repr } from "./python.js";
import { add, include } from "./templates.js";

/** @import { Call } from "./engine/plans.js" */
/** @import { HostData } from "./host.js" */
/** @import { Python } from "./bundle.js" */
/** One of the functions that are applied in turn: an expression, and the names of its numbers and arrays. @typedef {{text: string, wgsl: boolean, numbers: string[], arrays: string[]}} Link */
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
    /** @type {Link[]} */
    this.links = [{ text, wgsl, numbers, arrays }];
    if (wgsl && names.length)
      throw new ProblemError(`epilogue ${repr(text)}: WGSL takes x alone, not ${names.join(", ")}`);
    this.numbers = numbers.map((name) => /** @type {number} */ (values[name]));
    this.parts = arrays.map((name) => {
      const x = /** @type {HostData | DeviceArray} */ (values[name]);
      return x instanceof DeviceArray ? x : HostArray.from(x);
    });
  }

  /** What plans depend on, besides the layouts of the arrays. */
  get kind() {
    return `${JSON.stringify(this.links)} ${this.numbers.map((x) => (Object.is(x, -0) ? "-0" : x))}`;
  }

  /** Apply this one, and another one, or the activation of that name, to the result. @param {Epilogue | string} following @returns {Epilogue} */
  then(following) {
    const other = following instanceof Epilogue ? following : new Epilogue(`${following}(x)`);
    const both = new Epilogue("x");
    both.links = [...this.links, ...other.links];
    both.numbers = [...this.numbers, ...other.numbers];
    both.parts = [...this.parts, ...other.parts];
    return both;
  }

  /** Compile it for a bundle, once. @param {Call} call @returns {Promise<Applied>} */
  async applied(call) {
    const { core, device } = call;
    const operands = this.parts.map((x) => call.data(x));
    const compiler = await device.bundle.module("compiler.js");
    let at = 0;
    const links = this.links.map((link) => {
      const kinds = operands.slice(at, (at += link.arrays.length)).map((x) => kindOf(x.dtype));
      return linked(core, compiler, link, kinds);
    });
    if (this.numbers.length > core.MAX_NUMBERS || operands.length > core.MAX_OPERANDS)
      throw new ProblemError(
        `epilogue ${compiler.shown(this.links.map(({ text }) => text).join(", then "))}: ${this.numbers.length} numbers and ${operands.length} arrays are too many; it may have ${core.MAX_NUMBERS} and ${core.MAX_OPERANDS} in all`,
      );
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

/** @param {any} core @param {any} compiler @param {Link} link @param {string[]} kinds of its arrays @returns {Python} the translated `Link` */
function linked(core, compiler, link, kinds) {
  const { text, wgsl, numbers } = link;
  if (wgsl) return make(core.Link, [text, text, 0, [], true]); // in Python with a function of NumPy
  return make(core.Link, [text, compiledOf(compiler, link, "x", "y", kinds), numbers.length, kinds]);
}

/**
 * Compile an expression of floats.
 * @param {any} compiler @param {Link} link @param {string} element what x is in WGSL @param {string} array the name of its arrays there, followed by their numbers
 * @param {string[]} kinds of the arrays @param {number} [first] the number of the first array @returns {string} WGSL
 */
export function compiledOf(compiler, { text, numbers, arrays }, element, array, kinds, first = 0) {
  const words = `epilogue ${compiler.shown(text)}`;
  const places = new Dict([["x", element]]);
  const typed = new Dict([[element, "f32"]]);
  numbers.forEach((name, i) => (places.set(name, `s${i}`), typed.set(`s${i}`, "f32")));
  arrays.forEach((name, i) => (places.set(name, `${array}${first + i}`), typed.set(`${array}${first + i}`, kinds[i])));
  if (numbers.includes("x") || arrays.includes("x"))
    throw new ProblemError(`${words}: x is the element itself; give the value another name`);
  const tree = compiler.tree_of(text);
  const used = compiler.names_of(tree);
  const unknown = used.find((/** @type {string} */ name) => !places.has(name));
  if (unknown !== undefined)
    throw new ProblemError(
      `expression ${compiler.shown(text)}: ${unknown} was not given; the operands are ${[...places.keys()].join(", ")}`,
    );
  const unused = [...numbers, ...arrays].filter((name) => !used.includes(name));
  if (unused.length) throw new ProblemError(`${words} does not use ${unused.join(", ")}`);
  const found = compiler.compiled_tree(text, compiler.placed(tree, places), typed, numbersOf(compiler));
  if (found.kind !== "f32") throw new ProblemError(`${words} is ${found.kind}; write float32(${text}) for a float`);
  return found.wgsl;
}

/** @type {Map<string, number>} a number for each function */
const numbered = new Map();

/** @param {string} key @returns {number} the same for the same key */
export function keyed(key) {
  if (!numbered.has(key)) numbered.set(key, numbered.size);
  return /** @type {number} */ (numbered.get(key));
}

/** @param {string} dtype @returns {string} the kind in which its elements are computed */
export function kindOf(dtype) {
  const kind = { float32: "f32", float16: "f32", int32: "i32", bool: "bool" }[dtype];
  if (!kind)
    throw new ProblemError(`an array of an epilogue is ${dtype}; cast it to one of float32, float16, int32, bool`);
  return kind;
}
