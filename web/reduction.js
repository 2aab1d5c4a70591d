/** Reductions of one's own, and ours that are declared in the same way, as in webmm/wgsl/reductions.py; their terms are translated. */

import { laidOut } from "./calls/operands.js";
import { DeviceArray } from "./engine/array.js";
import { keyed } from "./epilogue.js";
import { ProblemError } from "./errors.js";
import { apply, numbersOf } from "./expressions.js";
import { HostArray } from "./host.js";
import { Dict, dataclasses, make } from "./python.js";
import { add, module } from "./templates.js";

/** @import { Call } from "./engine/plans.js" */
/** @import { Data } from "./calls/operands.js" */
/** @import { Python } from "./bundle.js" */
/** @import { Elements } from "./host.js" */
/** Parts of an axis that are reduced one by one: their lengths, and what reduces each by an operation. @typedef {{length: number, step: number, results: (operation: Python, dtype: any) => Promise<Elements[]>}} Parts */

const TEMPLATE = "templates/common/reduce/declared.js";
/** How the results over two parts are combined, as an operation of expressions. @type {Record<string, string>} */
const JOINED = { sum: "+", prod: "*", max: "maximum", min: "minimum", logsumexp: "logaddexp" };

/**
 * A reduction, for `Device.reduce()`.
 *
 *     const rms = new Reduction({ map: "x * x", combine: "a + b", identity: 0, finish: "sqrt(v / n)" });
 *     const y = await gpu.reduce(x, rms, { axis: 1 });
 *
 * The texts are those of Python's `webmm.Reduction`; for a state of up to four values, the first three are objects with the
 * same keys. The call throws ProblemError for an expression that is not allowed, and for an `identity` or a `combine` that, on
 * samples, is none.
 */
export class Reduction {
  /** @param {{map: string | Record<string, string>, combine: string | Record<string, string>, identity: number | Record<string, number>, finish?: string}} texts */
  constructor({ map, combine, identity, finish = "" }) {
    const several = typeof map === "object";
    if ([combine, identity].some((each) => (typeof each === "object") !== several))
      throw new ProblemError("map, combine and identity must all be single, or objects with the same keys");
    /** @type {any[]} */
    this.texts = [...[map, combine, identity].map((each) => Object.entries(several ? each : { v: each })), finish];
    if (this.texts[2].some((/** @type {[string, any]} */ [, x]) => typeof x !== "number"))
      throw new ProblemError(`identity must be numbers, not ${JSON.stringify(identity)}`);
    /** What plans depend on. */
    this.kind = JSON.stringify(this.texts, (_, x) => (typeof x === "number" ? `=${x}` : x));
  }

  /** @param {any} compiler @returns {Python} a translated `Declaration`; throws ProblemError if the texts do not fit each other */
  declaration(compiler) {
    const found = make(compiler.Declaration, [...this.texts.slice(0, 3).map((each) => new Dict(each)), this.texts[3]]);
    found.check();
    return found;
  }
}

/** @type {WeakMap<any, Declared>} by their operations */
const known = new WeakMap();

/** A declared operation for a bundle, whose name problems and templates know, with its terms for floats and for int32. */
export class Declared {
  /** @param {any} core @param {any} compiler translated modules @param {string} name @param {Python} texts a translated `Declaration` */
  constructor(core, compiler, name, texts) {
    this.core = core;
    this.compiler = compiler;
    this.texts = texts;
    const [floats, integers, refused] = compiler.terms_of_kinds(texts, compiler.tree_of, numbersOf(compiler));
    const [near, far] = [compiler.SAMPLES, compiler.FAR].map((each) => (floats ? each : each.map(Math.trunc)));
    compiler.check_combine(texts, floats ?? integers, near, far, apply);
    this.terms = (/** @type {boolean} */ whole) => (whole ? integers : floats);
    this.operation = compiler.operation(name, floats, integers, refused, null);
    add(`reduce/operations/${name}.wgsl`, (scope) => {
      scope.state = this.terms(module("common/reduce/elements.wgsl", scope).integers).wgsl;
      const common = module("common/reduce/declared.wgsl", scope);
      for (const each of compiler.EXPORTED) scope[each] = common[each];
      return "";
    });
    core.DECLARED.set(name, this.operation);
    known.set(this.operation, this);
  }

  /** @param {any} core @param {any} compiler @param {string} name @param {() => Python} texts @returns {Declared} the one of that name, made once */
  static once(core, compiler, name, texts) {
    return known.get(core.DECLARED.get(name)) ?? new Declared(core, compiler, name, texts());
  }

  /** @param {string} dtype @returns {number} the result over no elements */
  none(dtype) {
    const terms = this.terms(dtype === "int32");
    return Number(terms.finished(terms.none, 0, apply));
  }

  /** @param {boolean} whole @param {Parts} parts @param {number} size @returns {Promise<any[]>} as `inParts()` */
  async inParts(whole, { length, step, results }, size) {
    const { core, compiler, operation } = this;
    const terms = this.terms(whole);
    if (terms.positions) throw compiler.has_positions(step, length);
    /** @type {[string, Elements[]][]} */
    const found = [];
    for (const name of terms.names) {
      const unfinished = () => dataclasses.replace(this.texts, { finish: name });
      const state = Declared.once(core, compiler, `own_${operation.name}_${name}`, unfinished).operation;
      found.push([name, await results(state, terms.kinds.get(name) === "i32" ? "int32" : "float32")]);
    }
    return Array.from({ length: size }, (_, i) => {
      const states = found[0][1].map((_, part) => new Dict(found.map(([name, parts]) => [name, parts[part][i]])));
      const all = states.reduce((a, b) => terms.combined(a, b, apply), terms.none);
      return terms.finished(all, length, apply);
    });
  }
}

/** @param {Call} call @param {unknown} op @returns {Promise<Declared>} throws ProblemError for an unknown name, and for a declaration that is none */
export async function declared({ core, device }, op) {
  const [compiler] = await Promise.all([device.bundle.module("compiler.js"), device.bundle.module(TEMPLATE)]);
  if (!core.DECLARED.size) for (const [name, texts] of compiler.OURS) new Declared(core, compiler, name, texts);
  const found =
    op instanceof Reduction
      ? Declared.once(core, compiler, `own_${keyed(op.kind)}`, () => op.declaration(compiler))
      : /** @type {Declared} */ (known.get(core.operation_of(op)));
  const functions = [false, true].flatMap((whole) => [...(found.terms(whole)?.wgsl.get("functions") ?? [])]);
  await Promise.all(functions.map((file) => device.bundle.module(`templates/elementwise/${file}.js`)));
  return found;
}

/** Set `y` to the results over an axis, of which those over parts are combined: in float64, or modulo 2^32. @param {any} core @param {Python} operation @param {Declared | null} own @param {string} dtype of the elements @param {Parts} parts @param {HostArray} y */
export async function inParts(core, operation, own, dtype, parts, y) {
  const whole = dtype === "int32";
  const found = own ? own.inParts(whole, parts, y.size) : ofBuiltIn(core, operation, dtype, parts, y.size);
  y.data.set(new HostArray(Float64Array.from(await found), y.shape, "float64").as(y.dtype).data);
}

/** @param {any} core @param {Python} operation @param {string} dtype @param {Parts} parts @param {number} size @returns {Promise<number[]>} as `inParts()` */
async function ofBuiltIn(core, operation, dtype, { length, step, results }, size) {
  const name = operation.of_parts || operation.name;
  const [kind, sums] = dtype === "int32" ? ["i32", dtype] : ["f32", core.DTYPES.get(dtype).sums.name];
  const parts = await results(core.OPERATIONS.get(name), sums);
  const join = (/** @type {number} */ a, /** @type {number} */ b) => apply(JOINED[name], kind, [a, b]);
  const totals = Array.from({ length: size }, (_, i) => parts.map((part) => part[i]).reduce(join));
  if (!operation.index) return operation.of_parts ? totals.map((total) => total / length) : totals;
  const within = await results(operation, "int32");
  return totals.map((total, i) => {
    const best = parts.findIndex((part) => Object.is(part[i], total)); // the first one, or the first NaN
    return within[best][i] + best * step;
  });
}

/** @param {Call} call @param {any} given @param {any} second @returns {Promise<Data[]>} both arrays in host memory or on the device, the second broadcast to the shape of the first */
export async function together(call, given, second) {
  const [x, y] = [call.data(given), call.data(second)];
  if (String(call.core.broadcast_shape(x.shape, y.shape)) !== String(x.shape))
    throw new ProblemError(`y of shape [${y.shape}] does not broadcast to x, of shape [${x.shape}]`);
  const there = x instanceof DeviceArray || y instanceof DeviceArray;
  const [a, b] = there ? [await call.array(x), await call.array(y)] : [x, y];
  return [a, laidOut(b, call.core.broadcast(b, x.shape))];
}
