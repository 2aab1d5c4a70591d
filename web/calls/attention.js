// @ts-check
/** The call for attention, as in webmm/calls/attention.py; what its arguments mean is translated. */

import { DeviceArray } from "../engine/array.js";
import { HostArray } from "../host.js";
import { isGiven, laidOut, reshaped, viewOf } from "./operands.js";
import { number } from "./options.js";
import { Labelled, inPieces } from "./pieces.js";

/** @import { Data } from "./operands.js" */
/** @import { Call } from "../engine/plans.js" */
/** What scores are multiplied by, their bound, and which keys queries see (a translated `Seen`). @typedef {{factor: number, cap: number, seen: any}} Settings */

/** `Device.attention()`. @param {Call} call @param {any} q @param {any} k @param {any} v @param {any} options */
export async function attention(call, q, k, v, options) {
  const core = await call.device.bundle.op("attention");
  const seen = core.seen_by(options.causal ?? false, options.window ?? [-1, -1]);
  const cap = core.cap_of(number("softcap", options.softcap, 0));
  const arrays = [q, k, v].map((x) => call.data(x));
  const shape = core.attention_shape(...arrays);
  const [keys, width] = arrays[1].shape.slice(-2);
  const factor = core.factor_of(isGiven(options.scale) ? number("scale", options.scale, 1) : null, width);
  const mask = isGiven(options.mask) ? call.data(options.mask) : null;
  if (mask) core.check_mask(mask, [...shape.slice(0, -1), keys]);
  const lengths = isGiven(options.lengths) ? counted(core, call, options.lengths, shape.slice(0, -3), keys) : null;
  const resident = [...arrays, mask, lengths].some((x) => x instanceof DeviceArray);
  const out = call.dtype(options.outDtype, arrays[0].dtype);
  core.check_floats("attention", call.element(out));
  const result = await call.result(shape, out, resident);
  if (result.size && keys) await compute(core, call, arrays, mask, lengths, result, { factor, cap, seen });
  else if (resident) return call.device.zeros(shape, out);
  return result;
}

/**
 * Compute the result in pieces of the batch, of the heads of k and v, and of queries.
 * @param {any} core @param {Call} call @param {Data[]} arrays @param {Data | null} mask @param {Data | null} lengths @param {Data} result @param {Settings} settings
 */
async function compute(core, call, [q, k, v], mask, lengths, result, { factor, cap, seen }) {
  const groups = core.heads_of(k);
  const [queries, keys] = [q.rows, k.rows];
  const shift = core.shift_of(seen, queries, keys, lengths !== null);
  const five = async (/** @type {Data} */ x) => {
    const layout = core.grouped(x, groups);
    return layout
      ? laidOut(x, layout)
      : reshaped(await call.read(/** @type {any} */ (x)), core.grouped_shape(x, groups));
  };
  const four = async (/** @type {Data} */ x) => {
    const all = await five(x);
    const [shape, strides] = [all.shape, all.strides].map((each) => each.filter((_, axis) => axis !== 2));
    return viewOf(all, shape, strides);
  };
  const operands = [
    new Labelled(await five(q), "bgrqw"),
    new Labelled(await four(k), "bgkw"),
    new Labelled(await four(v), "bgkx"),
  ];
  if (mask) {
    const spread = await five(laidOut(mask, core.broadcast(mask, core.mask_shape(mask, q.shape.slice(0, -3)))));
    operands.push(new Labelled(spread, core.mask_axes(spread.shape)));
  }
  if (lengths) operands.push(new Labelled(lengths, "b"));
  const piece = (
    /** @type {DeviceArray[]} */ [q, k, v, ...more],
    /** @type {DeviceArray} */ o,
    /** @type {any} */ { at },
  ) => {
    const hidden = mask ? more[0].broadcastTo(...q.shape.slice(0, 4), k.shape[2]) : null;
    const counts = lengths ? more[mask ? 1 : 0] : null;
    const first = at.get("q")?.[0] ?? 0;
    const problem = core.attention_of(q, k, v, o, factor, cap, seen, shift + first, hidden, counts);
    return call.run(problem, [q, k, v, o, ...[hidden, counts].filter((x) => x !== null)]);
  };
  const flops = (2 * q.size * keys * (q.columns + v.columns)) / q.columns;
  await inPieces(call, piece, operands, new Labelled(await five(result), "bgrqx", true, true), "bgq", { flops });
}

/** @param {any} core @param {Call} call @param {any} given @param {number[]} batch @param {number} keys @returns {Data} the lengths of sequences as a vector of int32; throws ProblemError for other shapes, dtypes or values */
function counted(core, call, given, batch, keys) {
  const x = call.data(given);
  core.check_lengths(x, batch);
  if (x instanceof DeviceArray) core.check_resident_counts(x, x.contiguous);
  else {
    const numbers = Array.from(x.data);
    const plain = !(given instanceof HostArray || ArrayBuffer.isView(given)); // a list has no dtype
    const kind = plain && numbers.every(Number.isInteger) ? "int32" : x.dtype;
    core.check_counts(kind, Math.min(keys, ...numbers), Math.max(0, ...numbers), keys);
  }
  return reshaped(x instanceof HostArray ? x.as("int32") : x, [x.size]);
}
