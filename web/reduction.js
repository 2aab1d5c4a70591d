// @ts-check
/** Reductions of one's own, and ours that are declared in the same way, as in webmm/wgsl/reductions.py; their terms are translated. */

import { viewOf } from "./calls/operands.js";
import { DeviceArray } from "./engine/array.js";
import { keyed } from "./epilogue.js";
import { ProblemError, UnsupportedError } from "./errors.js";
import { apply, numbersOf } from "./expressions.js";
import { HostArray } from "./host.js";
import { Dict, make } from "./python.js";
import { add, module } from "./templates.js";

/** @import { Call } from "./engine/plans.js" */
/** @import { Data } from "./calls/operands.js" */
/** @import { Python } from "./bundle.js" */
/** @import { Elements } from "./host.js" */
const TEMPLATE = "templates/common/reduce/declared.js";
const EXPORTED = ["fields", "types", "at_once", "yields", "functions", "lift", "result", "in_subgroup"];

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
}

/** A declared operation for a bundle, whose name problems and templates know, with its terms for floats and for int32. */
export class Declared {
  /** @param {any} core @param {any} compiler translated modules @param {string} name @param {Python} texts a translated `Declaration` */
  constructor(core, compiler, name, texts) {
    this.core = core;
    this.compiler = compiler;
    this.texts = texts;
    const both = ["f32", "i32"].map((kind) => this.#compiled(kind));
    const [floats, integers] = both.map((each) => (each instanceof ProblemError ? null : each));
    if (!floats && !integers) throw both[0];
    const [near, far] = [compiler.SAMPLES, compiler.FAR].map((each) => (floats ? each : each.map(Math.trunc)));
    compiler.check_combine(texts, floats ?? integers, near, far, apply);
    const refused = both.map((each) => (each instanceof ProblemError ? each.message : ""));
    this.terms = (/** @type {boolean} */ whole) => (whole ? integers : floats);
    this.operation = compiler.operation(name, floats, integers, refused, null);
    add(`reduce/operations/${name}.wgsl`, (scope) => {
      scope.state = this.terms(module("common/reduce/elements.wgsl", scope).integers).wgsl;
      const common = module("common/reduce/declared.wgsl", scope);
      for (const each of EXPORTED) scope[each] = common[each];
      return "";
    });
    core.DECLARED.set(name, this.operation);
  }

  /** @param {string} kind of elements */
  #compiled(kind) {
    const { compiler } = this;
    try {
      return compiler.terms_of(this.texts, compiler.tree_of, numbersOf(compiler), kind);
    } catch (error) {
      if (error instanceof ProblemError) return error;
      throw error;
    }
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

  /**
   * Reduce an axis of `length` elements from the states of parts of `step`, which are combined here.
   * @param {string} dtype @param {number} length @param {number} step @param {HostArray} y the results
   * @param {(operation: Python, dtype: any) => Promise<Elements[]>} ofParts the results of another operation over each part
   */
  async inParts(dtype, length, step, ofParts, y) {
    const terms = this.terms(dtype === "int32");
    if (terms.positions)
      throw new UnsupportedError(
        `a reduction whose map uses i takes at most ${step.toLocaleString("en")} of these ${length.toLocaleString("en")} elements at once: positions in pieces would start anew`,
      );
    /** @type {[string, Elements[]][]} */
    const found = [];
    const { map, combine, identity } = this.texts;
    for (const name of terms.names) {
      const texts = make(this.compiler.Declaration, [map, combine, identity, name]);
      const { operation } = new Declared(this.core, this.compiler, `own_${this.operation.name}_${name}`, texts);
      found.push([name, await ofParts(operation, terms.kinds.get(name) === "i32" ? "int32" : "float32")]);
    }
    const results = Array.from({ length: y.size }, (_, i) => {
      let all = terms.none;
      for (let part = 0; part < found[0][1].length; part++)
        all = terms.combined(all, new Dict(found.map(([name, parts]) => [name, parts[part][i]])), apply);
      return Number(terms.finished(all, length, apply));
    });
    y.data.set(new HostArray(Float64Array.from(results), y.shape, "float64").as(y.dtype).data);
  }
}

/** @type {WeakMap<any, Map<string, Declared>>} those of a translated module, by name */
const known = new WeakMap();

/** @param {Call} call @param {unknown} op @returns {Promise<Declared>} throws ProblemError for an unknown name, and for a declaration that is none */
export async function declared(call, op) {
  const { core, device } = call;
  const [compiler] = await Promise.all([device.bundle.module("compiler.js"), device.bundle.module(TEMPLATE)]);
  const found = declaredOnce(core, compiler, op);
  await Promise.all(found.functions.map((file) => device.bundle.module(`templates/elementwise/${file}.js`)));
  return found;
}

/** @param {any} core @param {any} compiler @param {unknown} op @returns {Declared} */
function declaredOnce(core, compiler, op) {
  /** @type {Map<string, Declared>} */
  const all = known.get(compiler) ?? new Map();
  known.set(compiler, all);
  if (!all.size) for (const [name, texts] of compiler.OURS) all.set(name, new Declared(core, compiler, name, texts));
  if (!(op instanceof Reduction)) return /** @type {Declared} */ (all.get(core.operation_of(op).name));
  const name = `own_${keyed(op.kind)}`;
  const [mapped, combined, identity, finish] = op.texts;
  const dicts = [mapped, combined, identity].map((each) => new Dict(each));
  const texts = make(compiler.Declaration, [...dicts, finish]);
  texts.check();
  if (!all.has(name)) all.set(name, new Declared(core, compiler, name, texts));
  return /** @type {Declared} */ (all.get(name));
}

/** @param {Call} call @param {any} given @param {any} second @returns {Promise<Data[]>} both arrays in host memory or on the device, the second broadcast to the shape of the first */
export async function together(call, given, second) {
  const [x, y] = [call.data(given), call.data(second)];
  if (String(call.core.broadcast_shape(x.shape, y.shape)) !== String(x.shape))
    throw new ProblemError(`y of shape [${y.shape}] does not broadcast to x, of shape [${x.shape}]`);
  const there = x instanceof DeviceArray || y instanceof DeviceArray;
  const [a, b] = there ? [await call.array(x), await call.array(y)] : [x, y];
  const strides = x.shape.map((_, at) => {
    const axis = at - x.ndim + b.ndim;
    return axis < 0 || b.shape[axis] === 1 ? 0 : b.strides[axis];
  });
  return [a, viewOf(b, x.shape, strides)];
}
