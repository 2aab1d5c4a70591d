// @ts-check
/**
 * Matrix multiplication on the visitor's GPU, with the shaders that Python's webmm runs.
 *
 *     import { Device, Matrix } from "./webmm.js";
 *     const gpu = await Device.open();
 *     const c = await gpu.matmul(Matrix.from([[1, 2], [3, 4]]), Matrix.from([[5, 6], [7, 8]]));
 *     c.data; // Float32Array [19, 22, 43, 50]
 *
 * No dependencies; runs in browsers and in node on Dawn. Shaders are picked from the bundle that `webmm bundle` wrote
 * beside this file; none is ever assembled here. This file only says what is public.
 */

export * from "./errors.js";
export * from "./half.js";
export { HostArray } from "./host.js";
export * from "./matrix.js";
export { Checker, errorBound } from "./check.js";
export { Bundle } from "./bundle.js";
export { Kernel } from "./kernels.js";
export { bytesOf, flopsOf, problemOf } from "./problems.js";
export { RECORD_FIELDS, STATUSES } from "./records.js";
export { BlockWeights, quantizeBlocks } from "./calls/quantized.js";
export { DeviceArray } from "./engine/array.js";
export { Device } from "./engine/device.js";
export { within } from "./engine/guard.js";

/** @typedef {import("./matrix.js").DType} DType */
/** @typedef {import("./kernels.js").Config} Config */
/** @typedef {import("./kernels.js").Fragments} Fragments */
/** @typedef {import("./problems.js").Task} Task */
/** @typedef {import("./problems.js").Problem} Problem */
/** @typedef {import("./bundle.js").Binding} Binding */
/** @typedef {import("./bundle.js").Tunable} Tunable */
/** @typedef {import("./engine/timing.js").Timing} Timing */
/** @typedef {import("./engine/roofline.js").Roofline} Roofline */
/** @typedef {import("./engine/submissions.js").Launch} Launch */
/** @typedef {import("./records.js").Status} Status */
/** @typedef {import("./records.js").RunRecord} RunRecord */
