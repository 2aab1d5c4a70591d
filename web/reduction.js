/** Reductions of one's own, and ours that are declared in the same way, as in webmm/wgsl/reductions.py; their terms are translated. */

import { keyed } from "./epilogue.js";
import { ProblemError } from "./errors.js";
import { apply, numbersOf } from "./expressions.js";
import { HostArray } from "./host.js";
import { Dict, make } from "./python.js";
import { add, module } from "./templates.js";

/** @import { Call } from "./engine/plans.js" */
/** @import { Python } from "./bundle.js" */

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
    const texts = [map, combine, identity].map((each) => Object.entries(several ? each : { v: each }));
    if (texts[2].some(([, x]) => typeof x !== "number"))
      throw new ProblemError(`identity must be numbers, not ${JSON.stringify(identity)}`);
    /** The fields of a translated `Declaration`. */
    this.texts = [...texts.map((each) => new Dict(each)), finish];
    /** What plans depend on. */
    this.kind = JSON.stringify([texts, finish], (_, x) => (typeof x === "number" ? `=${x}` : x));
  }
}

/** @type {Map<string, string[]>} the files of the functions of declared operations */
const functions = new Map();

/** @param {Call} call @param {unknown} op @returns {Promise<Python>} the translated `Operation`; throws ProblemError for an unknown name, and for a declaration that is none */
export async function declared({ core, device }, op) {
  const [compiler] = await Promise.all([device.bundle.module("compiler.js"), device.bundle.module(TEMPLATE)]);
  const made = (/** @type {string} */ name, /** @type {Python} */ floats, /** @type {Python} */ integers) => {
    functions.set(
      name,
      [floats, integers].flatMap((terms) => terms?.wgsl.get("functions") ?? []),
    );
    add(`reduce/operations/${name}.wgsl`, (scope) => {
      scope.state = (module("common/reduce/elements.wgsl", scope).integers ? integers : floats).wgsl;
      const common = module("common/reduce/declared.wgsl", scope);
      for (const each of compiler.EXPORTED) scope[each] = common[each];
      return "";
    });
  };
  const operationOf = (/** @type {string} */ name, /** @type {Python} */ texts) =>
    compiler.declared(name, texts, numbersOf(compiler), apply, made);
  for (const [name, texts] of compiler.OURS) operationOf(name, texts);
  const found =
    op instanceof Reduction
      ? operationOf(`own_${keyed(op.kind)}`, make(compiler.Declaration, op.texts))
      : core.operation_of(op);
  const names = new Set(functions.get(found.name));
  await Promise.all([...names].map((name) => device.bundle.module(`templates/elementwise/${name}.js`)));
  return found;
}

/** Set y[i, j] to results over an axis, in float64, or modulo 2^32: as in webmm/calls/reduce.py. @param {Python} operation @param {Python} dtype @param {HostArray[]} parts @param {number} length @param {number} step @param {HostArray} y */
export function combine(operation, dtype, parts, length, step, y) {
  const whole = dtype.name === "int32";
  const result = operation.joined ?? ofBuiltIn(operation);
  const found = Float64Array.from(y.data, (_, i) => {
    const each = parts.map(({ data }) => Array.from({ length: data.length / y.size }, (_, n) => data[n * y.size + i]));
    return result(each, length, whole, step);
  });
  y.data.set(new HostArray(found, y.shape, "float64").as(y.dtype).data);
}

/** @param {Python} operation @returns {(parts: number[][], length: number, whole: boolean, step: number) => number} */
const ofBuiltIn =
  ({ name, of_parts, index }) =>
  ([values, positions], length, whole, step) => {
    const total = values.reduce((a, b) => apply(JOINED[of_parts || name], whole ? "i32" : "f32", [a, b]));
    if (!index) return of_parts ? total / length : total;
    const best = values.findIndex((x) => Object.is(x, total)); // the first one, or the first NaN
    return positions[best] + best * step;
  };
