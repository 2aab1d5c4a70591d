/** The call for attention, as in webmm/calls/attention.py; what its arguments mean is translated. */

import { DeviceArray, isResident } from "../engine/array.js";
import { HostArray, sizeOf, zeros } from "../host.js";
import { dataclasses } from "../python.js";
import { arranged, asIntegers, isGiven, laidOut, partOf, reshaped } from "./operands.js";
import { number } from "./options.js";
import { inPlacedPieces } from "./pieces.js";

/** @import { Python } from "../bundle.js" */
/** @import { Data } from "./operands.js" */
/** @import { Call } from "../engine/plans.js" */
/** The operands, with null for what there is not. @typedef {{q: Data, k: Data, v: Data, mask: Data | null, lengths: Data | null}} Given */

/** `Device.attention()`. @param {Call} call @param {any} givenQ @param {any} givenK @param {any} givenV @param {any} options */
export async function attention(call, givenQ, givenK, givenV, options) {
  const core = await call.device.bundle.op("attention");
  const [q, k, v] = [givenQ, givenK, givenV].map((x) => call.data(x));
  const shape = core.attention_shape(q, k, v);
  const [scale, counted] = [options.scale, options.lengths].map(isGiven);
  const factors = [number("softcap", options.softcap, 0), scale ? number("scale", options.scale, 1) : null];
  const settings = core.settings_of(options.causal ?? false, options.window ?? [-1, -1], ...factors, q, k, counted);
  const mask = isGiven(options.mask) ? call.data(options.mask) : null;
  if (mask) core.check_mask(mask, [...shape.slice(0, -1), k.rows]);
  const lengths = counted
    ? checkedLengths(core, call.data(asIntegers(options.lengths)), shape.slice(0, -3), k.rows)
    : null;
  const resident = isResident(q, k, v, mask, lengths);
  const out = call.dtype(options.outDtype, q.dtype);
  core.check_floats("attention", call.element(out));
  if (!sizeOf(shape) || !k.rows) return resident ? call.device.zeros(shape, out) : zeros(shape, out);
  const atOnce = core.keys_at_once(core.largest_buffer(call.device.choices.described), k, v, mask);
  const given = { q, k, v, mask, lengths };
  if (atOnce < k.rows) {
    const combined = (await inKeyPieces(core, call, given, shape, settings, atOnce)).as(out);
    call.complete = false;
    return resident ? call.device.array(combined) : combined;
  }
  const result = await call.result(shape, out, q, k, v, mask, lengths);
  await compute(core, call, given, result, settings);
  return result;
}

/**
 * Compute the result in pieces of at most so many keys, combined by the largest scores and the sums of weights.
 * @param {any} core @param {Call} call @param {Given} given @param {number[]} shape of the result
 * @param {Python} settings a translated `Settings` @param {number} most
 */
async function inKeyPieces(core, call, given, shape, settings, most) {
  const { q, k, v, mask } = given;
  const rows = sizeOf(shape.slice(0, -1));
  const result = new Float64Array(rows * v.columns);
  const [top, weight] = [new Float64Array(rows).fill(core.LEAST_SCORE), new Float64Array(rows)];
  for (let start = 0; start < k.rows; start += most) {
    const count = Math.min(most, k.rows - start);
    const [keys, values] = [k, v].map((x) => partOf(x, -2, start, count));
    const hidden = mask && mask.columns > 1 ? partOf(mask, -1, start, count) : mask;
    const [piece, sums] = [v.columns, 2].map((columns) => zeros(q.shape.with(-1, columns), "float32"));
    const [there, here] = [dataclasses.replace(settings, { first_key: start }), { ...given, k: keys, mask: hidden }];
    await compute(core, call, { ...here, v: values }, piece, there);
    await compute(core, call, { ...here, v: keys }, sums, there, new core.RowSums());
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

/**
 * Compute the result in pieces of the batch, of the heads of k and v, and of queries.
 * @param {any} core @param {Call} call @param {Given} given @param {Data} result @param {Python} settings a translated `Settings`
 * @param {any} [sums] the kernel for the largest score and the sum of weights of each query, two columns in the place of the result
 */
async function compute(core, call, { q, k, v, mask, lengths }, result, settings, sums) {
  const groups = core.heads_of(k);
  const five = async (/** @type {Data} */ x, axes = "bgrqk", placed = false) =>
    call.core.labelled(await arranged(call, x, (x) => core.grouped(x, groups)), axes, true, placed);
  const operands = [await five(q, "bgrqw"), await five(k, "bgrkw"), await five(v, "bgrkx")];
  if (mask) operands.push(await five(laidOut(mask, core.broadcast(mask, core.mask_shape(mask, q.shape.slice(0, -3))))));
  if (lengths) operands.push(call.core.labelled(lengths, "b"));
  const flops = (2 * q.size * k.rows * (q.columns + v.columns)) / q.columns;
  const piece = async (
    /** @type {DeviceArray[]} */ [q, k, v, ...more],
    /** @type {DeviceArray} */ o,
    /** @type {any} */ { at },
  ) => {
    const hidden = mask ? more[0].broadcastTo(...q.shape.slice(0, 4), k.shape[3]) : null;
    const counts = lengths ? more[mask ? 1 : 0] : null;
    const problem = core.attention_of(q, k, v, o, settings, at.get("q")?.[0] ?? 0, hidden, counts);
    const arrays = [q, k, v, o, ...[hidden, counts].filter((x) => x !== null)];
    return call.queue(sums ? core.of_row_sums(problem) : problem, arrays, sums);
  };
  const queue = async (/** @type {any} */ place, /** @type {DeviceArray[]} */ ...all) =>
    piece(all, /** @type {DeviceArray} */ (all.pop()), place);
  await inPlacedPieces(call, queue, operands, await five(result, "bgrqx", true), "bgq", "", flops);
}

/** @param {any} core @param {Data} x @param {number[]} batch @param {number} keys @returns {Data} the lengths of sequences as a vector of int32; throws ProblemError for other shapes, dtypes or values */
function checkedLengths(core, x, batch, keys) {
  core.check_lengths(x, batch);
  if (x instanceof DeviceArray) core.check_resident_counts(x, x.contiguous);
  else core.check_counts(x.dtype, Math.min(keys, ...x.data), Math.max(0, ...x.data), keys);
  return reshaped(x instanceof HostArray ? x.as("int32") : x, [x.size]);
}
