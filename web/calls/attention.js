/** The call for attention: what JavaScript has of its own of webmm/calls/attention.py. */

import { provide } from "../python.js";
import { asIntegers, ifGiven, number } from "./options.js";

/** @import { Call } from "../engine/plans.js" */
/** @import { HostArray } from "../host.js" */

/** `Device.attention()`. @param {Call} call @param {any} q @param {any} k @param {any} v @param {any} options */
export async function attention(call, q, k, v, options) {
  const core = await call.device.bundle.op("attention");
  const { mask = null, lengths, scale, softcap, outDtype } = options;
  const counts = ifGiven(lengths, (x) => call.data(asIntegers(x)));
  const factors = [number("softcap", softcap, 0), ifGiven(scale, (x) => number("scale", x, 1))];
  const seen = [options.causal ?? false, options.window ?? [-1, -1]];
  const [operands, settings] = await core.checked(call, q, k, v, mask, counts, ...seen, ...factors);
  return core.attended(call, operands, settings, call.element(outDtype));
}

provide("webmm.calls.attention.combine", (result, top, weight, piece, sums) => {
  for (let row = 0; row < top.size; row++) {
    const [score, sum] = sums.data.subarray(2 * row, 2 * row + 2);
    const larger = Math.max(top.data[row], score);
    const [before, added] = [weight.data[row] * 2 ** (top.data[row] - larger), sum * 2 ** (score - larger)];
    [top.data[row], weight.data[row]] = [larger, before + added];
    for (let i = row * piece.columns; i < (row + 1) * piece.columns; i++)
      result.data[i] = (result.data[i] * before + piece.data[i] * added) / (weight.data[row] || 1);
  }
});

provide("webmm.calls.attention.described", (/** @type {HostArray} */ { dtype, data }) =>
  data.length ? [dtype, Math.min(...data), Math.max(...data)] : [dtype, 0, 0],
);
