/** Expressions of the elements of arrays, as in webmm/calls/expression.py, and the calls that are made of them. */

import { DeviceArray } from "../engine/array.js";
import { Epilogue } from "../epilogue.js";
import { ProblemError } from "../errors.js";
import { numbersOf } from "../expressions.js";
import { provide } from "../python.js";
import { activationOf } from "./gemm.js";
import { flag } from "./options.js";
import { bindingOf, inPieces } from "./pieces.js";
import { mapped } from "./reduce.js";

/** @import { Data } from "./operands.js" */
/** @import { Call } from "../engine/plans.js" */
/** @import { Engine as Device } from "../engine/engine.js" */
/** @import { ElementType } from "../host.js" */
/** @import { Link } from "../epilogue.js" */
/** Queues an expression of arrays that broadcast to `y`, which may be any view. @typedef {(xs: DeviceArray[], y: DeviceArray) => Promise<void>} Queue */

/** @param {Device} device @returns {Promise<any>} the translated modules of expressions */
export async function expressions({ bundle }) {
  const [compiler, late] = await Promise.all(["compiler.js", "elements.js"].map((name) => bundle.module(name)));
  provide("webmm.choose.elementwise._fused", () => [new late.Fused(), new late.Fused(late.COMPATIBLE)]);
  return { ...late, compiler };
}

/** Compile a function of x and of other arrays. @param {Call} call @param {Link} link @param {number[]} numbers @param {ElementType[]} dtypes floats, or those that an `Epilogue` takes @param {ElementType} out a float @returns {Promise<Queue>} */
export async function queueOf(call, link, numbers, dtypes, out) {
  const core = await expressions(call.device);
  const { compiler } = core;
  const kinds = dtypes.slice(1).map((dtype) => compiler.kind_of(call.element(dtype)));
  const wgsl = compiler.expression_of(link.text, link.numbers, link.arrays, kinds, numbersOf(compiler));
  for (const file of call.core.files_of(wgsl)) await call.device.bundle.module(`templates/elementwise/${file}.js`);
  const bits = [...new Uint32Array(Float32Array.from(numbers).buffer)];
  const elements = [...dtypes, out].map((dtype) => call.element(dtype));
  const whole = core.expression_for(link.text, wgsl, "f32", elements, bits, "f32");
  return async (xs, y) => {
    const views = xs.map((x) => x.broadcastTo(...y.shape));
    for (const block of core.blocks([...views, y], bindingOf(call)))
      await call.run(core.expression_at(whole, block), ...xs, y);
  };
}

/** `Device.map()`. @param {Call} call @param {any} given @param {any} f */
export async function map(call, given, f) {
  if (!f) throw new ProblemError("map() needs a function: the name of an activation, or an Epilogue");
  const x = call.data(given);
  if (!(f instanceof Epilogue)) return mapped(call, x, (await activationOf(call, f)).name);
  call.core.check_floats("activations", call.element(x.dtype));
  const arrays = f.parts.map((part) => call.data(part));
  const numbers = [...f.numbers];
  call.core.check_operands(arrays, x.shape);
  await f.applied(call); // checks the texts and values
  const { links } = f;
  const apart = links.length > 1 && x.dtype !== "float32"; // what is between two functions is float32
  const steps = [IDENTITY, ...links, IDENTITY].slice(apart && links[0].wgsl ? 0 : 1);
  if (!(apart && links[links.length - 1].wgsl)) steps.pop();
  /** @type {Data} */
  let value = x;
  for (const [i, link] of steps.entries()) {
    if (value !== x && value instanceof DeviceArray) call.own(value);
    const own = [value, ...arrays.splice(0, link.arrays.length)];
    const given = numbers.splice(0, link.numbers.length);
    value = link.wgsl
      ? await mapped(call, value, (await new Epilogue({ wgsl: link.text }).applied(call)).name)
      : await expressed(call, link, given, own, i === steps.length - 1 ? x.dtype : "float32");
  }
  return value;
}

/** @type {Link} */
export const IDENTITY = { text: "x", wgsl: false, numbers: [], arrays: [] };

/** @param {Call} call @param {Link} link @param {number[]} numbers @param {Data[]} xs that broadcast to the first one @param {ElementType} out @returns {Promise<Data>} the expression, dense */
async function expressed(call, link, numbers, xs, out) {
  const queue = await queueOf(call, link, numbers, xs.map((x) => x.dtype), out); // prettier-ignore
  const y = await call.result(xs[0].shape, out, ...xs);
  if (!y.size) return y;
  const [result, ...operands] = [y, ...xs].map((x) => call.core.labelled(x, call.core.BATCH));
  await inPieces(
    call,
    async (...all) => queue(all, /** @type {DeviceArray} */ (all.pop())),
    operands,
    result,
    call.core.BATCH,
  );
  return y;
}

/** `Device.rotary()`. @param {Call} call @param {any} x @param {any} cos @param {any} sin @param {any} options */
export async function rotary(call, x, cos, sin, options) {
  const core = await expressions(call.device);
  const given = [x, cos, sin].map((each) => call.data(each));
  const [source, ...tables] = given;
  core.check_rotary(...given);
  const interleaved = flag("interleaved", options.interleaved);
  const y = await call.result(source.shape, source.dtype, ...given);
  if (!y.size) return y;
  const dtypes = [source, tables[0], source, tables[1]].map((each) => each.dtype);
  const queues = await Promise.all(
    core.ROTATED.map((/** @type {string} */ text) =>
      queueOf(call, { ...IDENTITY, text, arrays: ["c", "y", "s"] }, [], dtypes, y.dtype),
    ),
  );
  const half = y.columns / 2;
  const ranges = interleaved ? [[0, null, 2], [1, null, 2]] : [[0, half], [half]]; // prettier-ignore
  const seen = (/** @type {DeviceArray} */ x) => ranges.map((range) => x.slice(...Array(x.ndim - 1).fill(null), range)); // the first and the second of all pairs
  const compute = async (/** @type {DeviceArray[]} */ [x, c, s], /** @type {DeviceArray} */ y) => {
    const [first, second] = seen(x);
    for (const [i, target] of seen(y).entries()) await queues[i]([first, c, second, s], target);
  };
  const [whole, ...operands] = given.map((each, i) => call.core.labelled(each, call.core.BATCH + (i ? "p" : "w")));
  await inPieces(
    call,
    async (...all) => compute(all, /** @type {DeviceArray} */ (all.pop())),
    [whole, ...operands],
    call.core.labelled(y, `${call.core.BATCH}w`),
    call.core.BATCH,
  );
  return y;
}
