/** Adapters: the features and limits that are requested, and a description. */

import { NoAdapterError, UnsupportedError, inWords } from "../errors.js";
import { Dict } from "../python.js";

/** @import { MatrixShape } from "../kernels.js" */
export const MATRIX_UNITS = "chromium-experimental-subgroup-matrix";
export const SIZE_CONTROL = "subgroup-size-control";
const WANTED_FEATURES = ["shader-f16", "timestamp-query", "subgroups", SIZE_CONTROL, MATRIX_UNITS];
/** The limits that kernels depend on. */
export const LIMITS = /** @type {const} */ ([
  "maxComputeInvocationsPerWorkgroup",
  "maxComputeWorkgroupSizeX",
  "maxComputeWorkgroupSizeY",
  "maxComputeWorkgroupSizeZ",
  "maxComputeWorkgroupStorageSize",
  "maxComputeWorkgroupsPerDimension",
  "maxStorageBufferBindingSize",
  "maxBufferSize",
  "maxTextureDimension2D",
  "maxTextureArrayLayers",
]);
/** Open an adapter with all of its limits, and the features that kernels use. Throws NoAdapterError or UnsupportedError. @param {GPU} gpu @param {GPUPowerPreference} powerPreference */
export async function openAdapter(gpu, powerPreference) {
  const adapter = await gpu.requestAdapter({ powerPreference });
  if (!adapter) throw new NoAdapterError("WebGPU is available, but it found no adapter");
  // A device has WebGPU's default limits unless higher ones are requested.
  const requiredLimits = Object.fromEntries(LIMITS.map((name) => [name, adapter.limits[name]]));
  const features = WANTED_FEATURES.filter((feature) => adapter.features.has(feature));
  const requiredFeatures = /** @type {GPUFeatureName[]} */ (features);
  try {
    return { adapter, device: await adapter.requestDevice({ requiredFeatures, requiredLimits }) };
  } catch (error) {
    throw new UnsupportedError(`the adapter could not be opened: ${inWords(error)}`, error);
  }
}

/** @param {any} core @param {GPUAdapter} adapter @returns {MatrixShape[]} the fragment shapes that its matrix units multiply, as translated `MatrixShape`s, the largest first */
export function matrixShapes(core, adapter) {
  const info = /** @type {{subgroupMatrixConfigs?: Iterable<any>}} */ (/** @type {unknown} */ (adapter.info));
  const largest = [...(info.subgroupMatrixConfigs ?? [])].sort((x, y) => y.M * y.N * y.K - x.M * x.N * x.K);
  return largest.map((c) => new core.MatrixShape(c.componentType, c.resultComponentType, c.M, c.N, c.K));
}

/** @typedef {{name: string, kind: "cpu" | "gpu", vendor: string, architecture: string, backend: string, driver: string, engine: string, subgroup: number, subgroupMax: number}} Info an adapter, with the least and the most lanes of its subgroups */

/** What adapters say of themselves, the last three only in Dawn. */
const SAID = ["vendor", "architecture", "device", "description", "type", "backend", "driver"];

/** Describe an adapter. @param {any} core @param {GPUAdapter} adapter @returns {Info} */
export function describe(core, adapter) {
  const info = /** @type {GPUAdapterInfo & Record<string, any>} */ (adapter.info ?? {});
  const said = new Dict(SAID.map((name) => [name, info[name] ?? ""]));
  const { subgroupMinSize: subgroup = 0, subgroupMaxSize: subgroupMax = 0 } = info;
  return { ...core.adapter_of(said, globalThis.navigator?.userAgent ?? ""), subgroup, subgroupMax };
}
