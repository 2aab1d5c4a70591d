// @ts-check
/** Reductions of one's own, and ours that are declared in the same way, as in webmm/wgsl/reductions.py; their terms are translated. */

import { laidOut } from "./calls/operands.js";
import { DeviceArray } from "./engine/array.js";
import { keyed } from "./epilogue.js";
import { ProblemError } from "./errors.js";
import { apply, numbersOf } from "./expressions.js";
import { HostArray } from "./host.js";
import { Dict, make } from "./python.js";
import { add, module } from "./templates.js";

/** @import { Call } from "./engine/plans.js" */
/** @import { Data } from "./calls/operands.js" */
/** @import { Python } from "./bundle.js" */
/** @import { Elements } from "./host.js" */
/** Computes the results of an operation over each part of an axis. @typedef {(operation: Python, dtype: any) => Promise<Elements[]>} OfParts */

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
  }

  /** What plans depend on. */
  get kind() {
    return JSON.stringify(this.texts, (_, x) => (typeof x === "number" ? `=${x}` : x));
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

  /** The files of functions that its expressions call. @returns {string[]} */
  get functions() {
    return [false, true].flatMap((whole) => [...(this.terms(whole)?.wgsl.get("functions") ?? [])]);
  }

  /** @param {string} dtype @returns {number} the result over no elements */
  none(dtype) {
    const terms = this.terms(dtype === "int32");
    return Number(terms.finished(terms.none, 0, apply));
  }

  /** @param {boolean} whole @param {number} length @param {number} step @param {OfParts} ofParts @param {number} size @returns {Promise<any[]>} as `inParts()` */
  async inParts(whole, length, step, ofParts, size) {
    const terms = this.terms(whole);
    if (terms.positions) throw this.compiler.has_positions(step, length);
    /** @type {[string, Elements[]][]} */
    const found = [];
    const { core, compiler, operation } = this;
    const { map, combine, identity } = this.texts;
    for (const name of terms.names) {
      const texts = () => make(compiler.Declaration, [map, combine, identity, name]);
      const state = Declared.once(core, compiler, `own_${operation.name}_${name}`, texts).operation;
      found.push([name, await ofParts(state, terms.kinds.get(name) === "i32" ? "int32" : "float32")]);
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
  await Promise.all(found.functions.map((file) => device.bundle.module(`templates/elementwise/${file}.js`)));
  return found;
}

/**
 * Reduce an axis of `length` elements from the results over parts of `step`, which are combined in float64, or modulo 2^32.
 * @param {any} core @param {Python} operation @param {Declared | null} own @param {string} dtype of the elements
 * @param {number} length @param {number} step @param {OfParts} ofParts @param {HostArray} y the results
 */
export async function inParts(core, operation, own, dtype, length, step, ofParts, y) {
  const whole = dtype === "int32";
  const results = await (own
    ? own.inParts(whole, length, step, ofParts, y.size)
    : ofBuiltIn(core, operation, whole ? "int32" : core.DTYPES.get(dtype).sums.name, length, step, ofParts, y.size));
  y.data.set(new HostArray(Float64Array.from(results), y.shape, "float64").as(y.dtype).data);
}

/** @param {any} core @param {Python} operation @param {string} dtype of results over parts @param {number} length @param {number} step @param {OfParts} ofParts @param {number} size @returns {Promise<number[]>} as `inParts()` */
async function ofBuiltIn(core, operation, dtype, length, step, ofParts, size) {
  const name = operation.of_parts || operation.name;
  const parts = await ofParts(core.OPERATIONS.get(name), dtype);
  const join = (/** @type {number} */ a, /** @type {number} */ b) =>
    apply(JOINED[name], dtype === "int32" ? "i32" : "f32", [a, b]);
  const totals = Array.from({ length: size }, (_, i) => parts.map((part) => part[i]).reduce(join));
  if (!operation.index) return operation.of_parts ? totals.map((total) => total / length) : totals;
  const within = await ofParts(operation, "int32");
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
