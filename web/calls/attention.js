/** The call for attention, as in webmm/calls/attention.py; what its arguments mean is translated. */

import { DeviceArray } from "../engine/array.js";
import { HostArray, sizeOf } from "../host.js";
import { dataclasses } from "../python.js";
import { isGiven, laidOut, reshaped, viewOf } from "./operands.js";
import { number } from "./options.js";
import { Labelled, inPieces } from "./pieces.js";

/** @import { Data } from "./operands.js" */
/** @import { Call } from "../engine/plans.js" */
/**
 * What scores are multiplied by, their bound, which keys queries see (a translated `Seen`), and the position of the first
 * query; of a piece of the keys, `start` is the number of its first one.
 * @typedef {{factor: number, cap: number, seen: any, shift: number, start?: number}} Settings
 */

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
  if (!sizeOf(shape) || !keys) return resident ? call.device.zeros(shape, out) : call.result(shape, out, false);
  const settings = { factor, cap, seen, shift: core.shift_of(seen, shape[shape.length - 2], keys, lengths !== null) };
  const atOnce = core.keys_at_once(core.largest_buffer(call.device.choices.described), arrays[1], arrays[2], mask);
  if (atOnce < keys) {
    const combined = (await inKeyPieces(core, call, arrays, mask, lengths, shape, settings, atOnce)).as(out);
    call.complete = false;
    return resident ? call.device.array(combined) : combined;
  }
  const result = await call.result(shape, out, resident);
  await compute(core, call, arrays, mask, lengths, result, settings);
  return result;
}

/**
 * Compute the result in pieces of at most so many keys, combined by the largest scores and the sums of weights.
 * @param {any} core @param {Call} call @param {Data[]} arrays @param {Data | null} mask @param {Data | null} lengths @param {number[]} shape of the result
 * @param {Settings} settings @param {number} most
 */
async function inKeyPieces(core, call, [q, k, v], mask, lengths, shape, settings, most) {
  const empty = (/** @type {number} */ columns) => {
    const shape = [...q.shape.slice(0, -1), columns];
    return new HostArray(new Float32Array(sizeOf(shape)), shape, "float32");
  };
  const tokens = (/** @type {Data} */ x, /** @type {number} */ start) => {
    const shape = [...x.shape.slice(0, -2), Math.min(most, k.rows - start), x.columns];
    return viewOf(x, shape, x.strides, start * x.strides[x.ndim - 2]);
  };
  const rows = sizeOf(shape.slice(0, -1));
  const result = new Float64Array(rows * v.columns);
  const [top, weight] = [new Float64Array(rows).fill(core.LEAST_SCORE), new Float64Array(rows)];
  for (let start = 0; start < k.rows; start += most) {
    const [keys, values] = [tokens(k, start), tokens(v, start)];
    const hidden = mask && keysOf(mask, start, keys.rows);
    const [piece, sums] = [empty(v.columns), empty(2)];
    await compute(core, call, [q, keys, values], hidden, lengths, piece, { ...settings, start });
    await compute(core, call, [q, keys, keys], hidden, lengths, sums, { ...settings, start }, new core.RowSums());
    for (let row = 0; row < rows; row++) {
      const [score, sum] = sums.data.subarray(2 * row, 2 * row + 2);
      const larger = Math.max(top[row], score);
      const [before, added] = [weight[row] * 2 ** (top[row] - larger), sum * 2 ** (score - larger)];
      [top[row], weight[row]] = [larger, before + added];
      for (let i = row * v.columns; i < (row + 1) * v.columns; i++)
        result[i] = (result[i] * before + piece.data[i] * added) / (weight[row] || 1);
    }
  }
  return new HostArray(Float32Array.from(result), shape, "float32");
}

/** @param {Data} mask @param {number} start @param {number} count @returns {Data} it for these keys */
function keysOf(mask, start, count) {
  const last = mask.ndim - 1;
  if (last < 0 || mask.shape[last] === 1) return mask;
  return viewOf(mask, [...mask.shape.slice(0, last), count], mask.strides, start * mask.strides[last]);
}

/**
 * Compute the result in pieces of the batch, of the heads of k and v, and of queries.
 * @param {any} core @param {Call} call @param {Data[]} arrays @param {Data | null} mask @param {Data | null} lengths @param {Data} result @param {Settings} settings
 * @param {any} [sums] the kernel for the largest score and the sum of weights of each query, two columns in the place of the result
 */
async function compute(core, call, [q, k, v], mask, lengths, result, settings, sums) {
  const { factor, cap, seen, shift, start = 0 } = settings;
  const groups = core.heads_of(k);
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
    const whole = core.attention_of(q, k, v, o, factor, cap, seen, shift + first - start, hidden, counts);
    const problem = start ? dataclasses.replace(whole, { first_key: start }) : whole;
    const given = [q, k, v, o, ...[hidden, counts].filter((x) => x !== null)];
    return call.run(sums ? core.of_row_sums(problem) : problem, given, sums);
  };
  const flops = (2 * q.size * k.rows * (q.columns + v.columns)) / q.columns;
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
