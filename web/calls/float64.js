// @ts-check
/** float64 sums as matrix products with ones, as in webmm/calls/doubles.py. */

import { HostArray } from "../host.js";
import { make } from "../python.js";
import { multiply } from "./gemm.js";

/** @import { DeviceArray } from "../engine/array.js" */
/** @import { Call } from "../engine/plans.js" */

/** Set y[i, j] to the sum of x[i, k, j] over k, or to the mean if `mean`. @param {Call} call @param {DeviceArray} x @param {DeviceArray} y @param {boolean} mean */
export async function sumOverK(call, x, y, mean) {
  const [outer, length, inner] = x.shape;
  const ones = await call.array(new HostArray(new Float64Array(length).fill(1), [1, length], "float64"));
  const terms = make(call.core.Terms, [], { alpha: mean ? 1 / length : 1 });
  const settings = { precision: "highest", kernel: undefined };
  if (inner === 1) await multiply(call, x.slice(null, null, 0), ones.mT, y, null, terms, settings);
  else await multiply(call, ones, x, y.reshape(outer, 1, inner), null, terms, settings);
}
