/**
 * Matrix multiplication and other ops on the GPU, with the shaders of the Python package webmm.
 *
 *     import { Device, Matrix } from "./webmm.js";
 *     const gpu = await Device.open();
 *     const c = await gpu.matmul(Matrix.from([[1, 2], [3, 4]]), Matrix.from([[5, 6], [7, 8]]));
 *     c.data; // Float32Array [19, 22, 43, 50]
 *
 * No dependencies; runs in browsers and in node on Dawn. The shaders come from the bundle that `webmm bundle` writes next
 * to this file; no shader is written in JavaScript. This file lists the public names.
 */

export * from "./errors.js";
export * from "./half.js";
export { HostArray } from "./host.js";
export * from "./matrix.js";
export { Checker, errorBound } from "./check.js";
export * from "./bundle.js";
export * from "./kernels.js";
export * from "./problems.js";
export { BlockWeights, quantizeBlocks } from "./calls/quantized.js";
export { KVCache } from "./calls/kv_cache.js";
export { DeviceArray } from "./engine/array.js";
export { Epilogue } from "./epilogue.js";
export { Reduction } from "./reduction.js";
export { Device } from "./engine/device.js";
export { within } from "./engine/guard.js";

/** @typedef {import("./engine/timing.js").Timing} Timing */
/** @typedef {import("./engine/roofline.js").Roofline} Roofline */
/** @typedef {import("./engine/submissions.js").Launch} Launch */
/** @typedef {import("./records.js").Status} Status */
/** @typedef {import("./records.js").RunRecord} RunRecord */
