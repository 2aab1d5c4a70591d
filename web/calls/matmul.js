// @ts-check
/** Products of matrices of floats: the call. */

import { ProblemError } from "../errors.js";
import { Kernel } from "../kernels.js";
import { Matrix } from "../matrix.js";
import { problemOf } from "../problems.js";
import { checkOptions } from "./options.js";

/** @typedef {import("../engine/array.js").DeviceArray} DeviceArray */
/** @typedef {import("../engine/device.js").Device} Device */
/** @typedef {import("../kernels.js").Config} Config */

/**
 * A·B. Matrices give a matrix, resident arrays a resident array that the caller frees.
 * @template {Matrix | DeviceArray} T
 * @param {Device} device @param {T} a @param {T} b
 * @param {{kernel?: Kernel | string, config?: Config}} [options]
 * @returns {Promise<T>}
 */
export async function matmul(device, a, b, options = {}) {
  checkOptions("matmul", options, ["kernel", "config"]);
  const p = problemOf(/** @type {Matrix} */ (a), /** @type {Matrix} */ (b));
  const kernel = options.kernel instanceof Kernel
    ? options.kernel
    : options.kernel ? device.bundle.kernel(options.kernel, options.config) : device.choose(p);
  const host = a instanceof Matrix && b instanceof Matrix;
  if (!host && (a instanceof Matrix || b instanceof Matrix)) {
    throw new ProblemError("one operand is on the device, the other is not; copy it with device.array(x)");
  }

  /** @type {DeviceArray[]} */
  const mine = [];
  try {
    const [x, y] = host
      ? [mine[0] = await device.array(/** @type {Matrix} */ (a)), mine[1] = await device.array(/** @type {Matrix} */ (b))]
      : [/** @type {DeviceArray} */ (a), /** @type {DeviceArray} */ (b)];
    const c = await device.empty([p.m, p.n], p.dtype);
    if (host) mine[2] = c;
    const launch = await device.launch(kernel, p, /** @type {any} */ (x), /** @type {any} */ (y), c);
    await device.guard.using(kernel.name, () => device.submit(launch, 1));
    return /** @type {T} */ (host ? await c.read() : c);
  } finally {
    for (const array of mine) array?.free();
  }
}
