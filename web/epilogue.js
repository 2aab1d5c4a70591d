// @ts-check
/**
 * Functions of one's own of each element of a product: expressions with numbers and arrays, as in webmm/wgsl/own.py. Their
 * compiler is translated; the parser and the values of literals, which Python takes from its own modules, are here.
 */

import { DeviceArray } from "./engine/array.js";
import { ProblemError } from "./errors.js";
import { HostArray } from "./host.js";
import { Dict, make, repr } from "./python.js";
import { add, include } from "./templates.js";

/** @import { Call } from "./engine/plans.js" */
/** @import { HostData } from "./host.js" */
/** @import { Python } from "./bundle.js" */
/** A part of a text, as webmm/wgsl/compiler.py describes it. @typedef {{form: string, word: string, source: string, terms: Tree[], literal?: {value: any, form: string}}} Tree */
/** A function for a bundle, and its values. @typedef {{name: string, numbers: number[], operands: (DeviceArray | HostArray)[]}} Applied */

const MAX_NUMBERS = 4; // as in webmm/wgsl/functions.py
const MAX_OPERANDS = 3;
const MAX_DEPTH = 120; // as in webmm/wgsl/expressions.py
const SHOWN = 80;

/**
 * A function of each element, for `activation` of `Device.matmul()` and `Device.qmatmulWeights()`.
 *
 *     const leaky = new Epilogue("where(x > 0, x, slope * x)", { slope: 0.1 });
 *     const c = await gpu.matmul(a, b, { activation: leaky });
 *
 * The text is an expression of x in the language of Python's `webmm.elementwise()`. Its other names stand for `values`: up to
 * four numbers, and up to three arrays that broadcast to the result. Other values need no other shader, if arrays have the
 * same dtype: float32, float16, int32 or bool.
 */
export class Epilogue {
  /** @param {string} text @param {Record<string, number | HostData | DeviceArray>} [values] throws ProblemError for an invalid text, and for values that it does not use or lacks or that are too many */
  constructor(text, values = {}) {
    if (typeof text !== "string" || !text)
      throw new ProblemError(
        'an epilogue needs a text, such as new Epilogue("where(x > 0, x, slope * x)", { slope: 0.1 })',
      );
    this.text = text;
    const names = Object.keys(values);
    const numbers = names.filter((name) => typeof values[name] === "number");
    const arrays = names.filter((name) => typeof values[name] !== "number");
    if (numbers.length > MAX_NUMBERS || arrays.length > MAX_OPERANDS)
      throw this.#refused(
        `${numbers.length} numbers and ${arrays.length} arrays are too many; it may have ${MAX_NUMBERS} and ${MAX_OPERANDS} in all`,
      );
    if (names.includes("x")) throw this.#refused("x is the element itself; give the value another name");
    this.numbers = numbers.map((name) => /** @type {number} */ (values[name]));
    this.parts = arrays.map((name) => {
      const x = /** @type {HostData | DeviceArray} */ (values[name]);
      return x instanceof DeviceArray ? x : HostArray.from(x);
    });
    const words = new Map([["x", "x"]]);
    numbers.forEach((name, i) => words.set(name, `s${i}`));
    arrays.forEach((name, i) => words.set(name, `y${i}`));
    const parser = new Parser(text, words);
    this.tree = parser.whole();
    const unused = names.filter((name) => !parser.used.has(name));
    if (unused.length) throw new ProblemError(`epilogue ${shown(text)} does not use ${unused.join(", ")}`);
  }

  /** What plans depend on, besides the layouts of the arrays. */
  get kind() {
    return `${JSON.stringify(this.text)} ${this.numbers.map((x) => (Object.is(x, -0) ? "-0" : x))}`;
  }

  /** Compile it for a bundle, once. @param {Call} call @returns {Promise<Applied>} */
  async applied(call) {
    const { core, device } = call;
    const operands = this.parts.map((x) => call.data(x));
    const kinds = operands.map((x) => kindOf(x.dtype));
    const typed = new Dict([["x", "f32"]]);
    this.numbers.forEach((_, i) => typed.set(`s${i}`, "f32"));
    kinds.forEach((kind, i) => typed.set(`y${i}`, kind));
    const compiler = await device.bundle.module("compiler.js");
    const found = compiler.compiled_tree(this.text, noded(compiler, this.tree), typed, numbersOf(compiler));
    if (found.kind !== "f32")
      throw new ProblemError(`epilogue ${shown(this.text)} is ${found.kind}; write float32(${this.text}) for a float`);
    const name = `own_${keyed(`${found.wgsl} ${this.numbers.length} ${kinds}`)}`;
    if (!core.OWN.has(name)) {
      const link = make(core.Link, [this.text, found.wgsl, this.numbers.length, kinds]);
      const own = make(core.Function, [name, [link]]);
      for (const file of own.files) await device.bundle.module(`templates/elementwise/${file}.js`);
      add(`epilogues/${name}.wgsl`, (scope) =>
        [...own.files.map((/** @type {string} */ file) => include(`elementwise/${file}.wgsl`, scope)), own.text].join(
          "\n\n",
        ),
      );
      core.OWN.set(name, own);
    }
    return { name, numbers: this.numbers.map(Math.fround), operands };
  }

  /** @param {string} why */
  #refused(why) {
    return new ProblemError(`epilogue ${shown(this.text)}: ${why}`);
  }
}

/** @type {Map<string, number>} a number for each function */
const numbered = new Map();

/** @param {string} key */
function keyed(key) {
  if (!numbered.has(key)) numbered.set(key, numbered.size);
  return numbered.get(key);
}

/** @param {string} dtype @returns {string} the kind in which its elements are computed */
function kindOf(dtype) {
  const kind = { float32: "f32", float16: "f32", int32: "i32", bool: "bool" }[dtype];
  if (!kind)
    throw new ProblemError(`an array of an epilogue is ${dtype}; cast it to one of float32, float16, int32, bool`);
  return kind;
}

/** @param {string} text @returns {string} it for a message */
const shown = (text) => {
  const words = repr(text);
  return words.length <= SHOWN ? words : `${words.slice(0, SHOWN)}…`;
};

// The parser

const TOKEN =
  /\s*(?:((?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)|(==|!=|<=|>=|<<|>>|\*\*|\/\/|[-+*/%<>&|^~(),.[\]]))/y;
const LEVELS = [["|"], ["^"], ["&"], ["<<", ">>"], ["+", "-"], ["*", "/", "%", "//"]]; // of binary operators, the loosest first
const WGSL = new Map([
  ["|", "||"],
  ["&", "&&"],
]);
const UNARY = new Map([
  ["+", "+"],
  ["-", "negate"],
  ["~", "not"],
]);
const COMPARED = ["<", "<=", ">", ">=", "==", "!="];

class Parser {
  /** @type {Set<string>} the names of values that occur */
  used = new Set();
  #at = 0;
  /** @type {{word: string, start: number, end: number, kind: string}[]} */
  #tokens = [];

  /** @param {string} text @param {Map<string, string>} names what they are called in WGSL */
  constructor(text, names) {
    this.text = text;
    this.names = names;
    TOKEN.lastIndex = 0;
    for (let start = 0; text.slice(start).trim(); start = TOKEN.lastIndex) {
      TOKEN.lastIndex = start;
      const found = TOKEN.exec(text);
      if (!found) throw this.#wrong();
      const word = found[1] ?? found[2] ?? found[3];
      const kind = found[1] ? "number" : found[2] ? "name" : "sign";
      this.#tokens.push({ word, start: TOKEN.lastIndex - word.length, end: TOKEN.lastIndex, kind });
    }
  }

  /** @returns {Tree} */
  whole() {
    const tree = this.#comparison(0);
    if (this.#next) throw this.#wrong();
    return tree;
  }

  get #next() {
    return this.#tokens[this.#at];
  }

  #wrong(why = "invalid syntax") {
    return new ProblemError(`${shown(this.text)} is not an expression: ${why}`);
  }

  /** @param {string} sign */
  #take(sign) {
    if (this.#next?.kind !== "sign" || this.#next.word !== sign) return false;
    this.#at += 1;
    return true;
  }

  /** @param {string} sign */
  #expect(sign) {
    if (!this.#take(sign)) throw this.#wrong();
  }

  /** @param {string} form @param {string} word @param {number} first its first token @param {Tree[]} [terms] @returns {Tree} */
  #node(form, word, first, terms = []) {
    const source = this.text.slice(this.#tokens[first].start, this.#tokens[this.#at - 1].end);
    return { form, word, source, terms };
  }

  /** @param {number} depth @returns {Tree} */
  #comparison(depth) {
    if (depth > MAX_DEPTH) throw this.#wrong("too many nested parentheses");
    const first = this.#at;
    const terms = [this.#binary(0, depth)];
    let sign = "";
    while (this.#next?.kind === "sign" && COMPARED.includes(this.#next.word)) {
      sign ||= this.#next.word;
      this.#at += 1;
      terms.push(this.#binary(0, depth));
    }
    return sign ? this.#node("comparison", sign, first, terms) : terms[0];
  }

  /** @param {number} level @param {number} depth @returns {Tree} */
  #binary(level, depth) {
    if (level === LEVELS.length) return this.#unary(depth);
    const first = this.#at;
    let left = this.#binary(level + 1, depth);
    while (this.#next?.kind === "sign" && LEVELS[level].includes(this.#next.word)) {
      const { word } = this.#next;
      this.#at += 1;
      const right = this.#binary(level + 1, depth);
      left = this.#node("binary", WGSL.get(word) ?? word, first, [left, right]);
    }
    return left;
  }

  /** @param {number} depth @returns {Tree} */
  #unary(depth) {
    if (depth > MAX_DEPTH) throw this.#wrong("too many nested parentheses");
    const first = this.#at;
    const sign = this.#next?.kind === "sign" ? UNARY.get(this.#next.word) : undefined;
    if (!sign) return this.#power(depth);
    this.#at += 1;
    return this.#node("unary", sign, first, [this.#unary(depth + 1)]);
  }

  /** @param {number} depth @returns {Tree} */
  #power(depth) {
    const first = this.#at;
    const base = this.#atom(depth);
    return this.#take("**") ? this.#node("binary", "**", first, [base, this.#unary(depth + 1)]) : base;
  }

  /** @param {number} depth @returns {Tree} */
  #atom(depth) {
    const first = this.#at;
    const token = this.#next;
    if (!token) throw this.#wrong();
    if (this.#take("(")) {
      const inside = this.#comparison(depth + 1);
      this.#expect(")");
      return inside;
    }
    this.#at += 1;
    if (token.kind === "number") return this.#number(token.word, first);
    if (token.kind !== "name") throw this.#wrong();
    if (token.word === "True" || token.word === "False")
      return { ...this.#node("number", "", first), literal: { value: token.word === "True", form: "bool" } };
    if (this.#take("(")) return this.#arguments(token.word, first, depth);
    const name = this.names.get(token.word);
    if (name === undefined)
      throw new ProblemError(
        `expression ${shown(this.text)}: ${token.word} was not given; the operands are ${[...this.names.keys()].join(", ")}`,
      );
    this.used.add(token.word);
    return this.#node("name", name, first);
  }

  /** @param {string} word @param {number} first @returns {Tree} */
  #number(word, first) {
    const digits = word.replaceAll("_", "");
    const form = /[.eE]/.test(digits) ? "float" : "int";
    return { ...this.#node("number", "", first), literal: { value: Number(digits), form } };
  }

  /** @param {string} name @param {number} first @param {number} depth @returns {Tree} */
  #arguments(name, first, depth) {
    const terms = [];
    while (!this.#take(")")) {
      if (terms.length) this.#expect(",");
      if (terms.length && this.#take(")")) break;
      terms.push(this.#comparison(depth + 1));
    }
    return this.#node("call", name, first, terms);
  }
}

// What the compiler asks of numbers

/** @param {any} compiler @param {Tree} tree @returns {Python} a translated `Node` */
function noded(compiler, { form, word, source, terms, literal }) {
  const known = literal ? make(compiler.Literal, [literal.value, literal.form]) : null;
  return make(compiler.Node, [form, word, source, terms.map((term) => noded(compiler, term)), known]);
}

/** @type {Record<string, (...x: any[]) => any>} the operations of numbers */
const OPERATIONS = {
  "+": (x, y) => x + y,
  "-": (x, y) => x - y,
  "*": (x, y) => x * y,
  "/": (x, y) => x / y,
  negate: (x) => -x,
  not: (x) => !x,
  "<": (x, y) => x < y,
  "<=": (x, y) => x <= y,
  ">": (x, y) => x > y,
  ">=": (x, y) => x >= y,
  "==": (x, y) => x === y,
  "!=": (x, y) => x !== y,
  "&&": (x, y) => (typeof x === "boolean" ? x && y : x & y),
  "||": (x, y) => (typeof x === "boolean" ? x || y : x | y),
  select: (condition, x, y) => (condition ? x : y),
  exp: Math.exp,
  log: Math.log,
  sqrt: Math.sqrt,
  tanh: Math.tanh,
  abs: Math.abs,
  maximum: (x, y) => (Number.isNaN(x) ? x : Number.isNaN(y) || y > x ? y : x),
  minimum: (x, y) => (Number.isNaN(x) ? x : Number.isNaN(y) || y < x ? y : x),
  isnan: Number.isNaN,
  float32: Number,
  int32: (x) => (Number.isNaN(x) ? 0 : Math.max(-(2 ** 31), Math.min(2 ** 31 - 1, Math.trunc(Number(x))))),
  bool: Boolean,
};
const REAL = ["/", "exp", "log", "sqrt", "tanh", "float32"]; // those whose results are floats

/** @param {string} operation @param {any[]} values */
function computed(operation, values) {
  const compute = OPERATIONS[operation];
  if (!compute) throw new ProblemError(`${operation}() of numbers alone is not computed; write its value`);
  return compute(...values);
}

/** @param {any} compiler @returns {Python} a translated `Numbers` */
function numbersOf(compiler) {
  /** @param {any} value @param {string} kind */
  const constant = (value, kind) => {
    if (kind === "bool") return make(compiler.Compiled, [value ? "true" : "false", kind], { value: Boolean(value) });
    if (kind === "i32") {
      if (value !== (value | 0)) throw new ProblemError(`${value} does not fit int32`);
      return make(compiler.Compiled, [`i32(${value})`, kind], { value });
    }
    const number = Math.fround(Number(value));
    if (!Number.isFinite(number) && Number.isFinite(value)) throw new ProblemError(`${value} does not fit float32`);
    const size = Math.abs(number);
    const wgsl = size >= 2 ** -16 && size <= 2 ** 16 ? `f32(${asFloat(number)})` : `constant_f32(0x${bits(number)}u)`;
    return make(compiler.Compiled, [wgsl, kind], { value: number, depth: 2 });
  };
  /** @param {string} operation @param {any[]} given */
  const literal = (operation, given) => {
    if (operation === "/" && !Number(given[1].value))
      throw new ProblemError("division by zero in a part without operands");
    const value = computed(operation, given.map((x) => x.value)); // prettier-ignore
    const real = REAL.includes(operation) || given.some((x) => x.form === "float");
    return make(compiler.Literal, [value, typeof value === "boolean" ? "bool" : real ? "float" : "int"]);
  };
  /** @param {string} operation @param {any[]} terms @param {string} kind */
  const folded = (operation, terms, kind) => constant(computed(operation, terms.map((x) => x.value)), kind); // prettier-ignore
  return make(compiler.Numbers, [literal, folded, (/** @type {any} */ x, /** @type {string} */ kind) => constant(x.value, kind), wordsOf, shown]); // prettier-ignore
}

/** @param {any} node */
const wordsOf = ({ source }) => (source.length <= SHOWN ? source : `${source.slice(0, SHOWN)}…`);

/** @param {number} x of usual size @returns {string} as Python writes a float */
function asFloat(x) {
  if (Number.isInteger(x)) return `${x}.0`;
  return Math.abs(x) < 1e-4 ? x.toExponential().replace(/e-(\d)$/, "e-0$1") : String(x);
}

/** @param {number} x @returns {string} the bits of a float32, in hexadecimal */
const bits = (x) => new Uint32Array(new Float32Array([x]).buffer)[0].toString(16).padStart(8, "0");
