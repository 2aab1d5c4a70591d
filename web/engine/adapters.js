// @ts-check
/** Adapters: the features and limits that are requested, and a description. */

import { NoAdapterError, UnsupportedError, inWords } from "../errors.js";

/** @import { MatrixShape } from "../kernels.js" */
export const MATRIX_UNITS = "chromium-experimental-subgroup-matrix";
export const SIZE_CONTROL = "subgroup-size-control";
const WANTED_FEATURES = /** @type {GPUFeatureName[]} */ ([
  "shader-f16",
  "timestamp-query",
  "subgroups",
  /** @type {any} */ (SIZE_CONTROL),
  /** @type {any} */ (MATRIX_UNITS),
]);
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
/**
 * Open an adapter with all of its limits, and the features that kernels use.
 * @param {GPU} gpu @param {GPUPowerPreference} powerPreference
 * @returns {Promise<{adapter: GPUAdapter, device: GPUDevice}>} throws NoAdapterError or UnsupportedError
 */
export async function openAdapter(gpu, powerPreference) {
  const adapter = await gpu.requestAdapter({ powerPreference });
  if (!adapter) throw new NoAdapterError("WebGPU is available, but it found no adapter");
  /** @type {Record<string, number>} */
  const requiredLimits = {}; // a device has WebGPU's default limits unless higher ones are requested
  for (const name of LIMITS) requiredLimits[name] = adapter.limits[name];
  const requiredFeatures = WANTED_FEATURES.filter((feature) => adapter.features.has(feature));
  try {
    return { adapter, device: await adapter.requestDevice({ requiredFeatures, requiredLimits }) };
  } catch (error) {
    throw new UnsupportedError(`the adapter could not be opened: ${inWords(error)}`, error);
  }
}

/** @param {GPUAdapter} adapter @returns {MatrixShape[]} the fragment shapes that its matrix units multiply, the largest first */
export function matrixShapes(adapter) {
  const info = /** @type {{subgroupMatrixConfigs?: Iterable<any>}} */ (/** @type {unknown} */ (adapter.info));
  return [...(info.subgroupMatrixConfigs ?? [])]
    .map((c) => ({ operands: c.componentType, result: c.resultComponentType, m: c.M, n: c.N, k: c.K }))
    .sort((x, y) => y.m * y.n * y.k - x.m * x.n * x.k);
}

/** Describe an adapter: name, kind, vendor, architecture, backend, driver, engine, subgroup sizes. @param {GPUAdapter} adapter */
export function describe(adapter) {
  const info = /** @type {GPUAdapterInfo & {backend?: string, driver?: string, type?: string}} */ (adapter.info ?? {});
  const parts = [info.vendor, info.architecture].filter(Boolean).join(" ");
  const named = info.device && !/^0x/i.test(info.device); // in Dawn, `device` is a name, and `description` names the driver
  const name = (named && info.device) || info.description || info.device || parts || "unnamed adapter";
  const software = /swiftshader|llvmpipe|lavapipe|basic render|software/i.test(`${parts} ${info.description}`);
  const kind = software || info.type?.toLowerCase() === "cpu" ? "cpu" : "gpu";
  return {
    name,
    kind: /** @type {"cpu" | "gpu"} */ (kind),
    vendor: info.vendor ?? "",
    architecture: info.architecture ?? "",
    backend: info.backend ?? "",
    driver: info.driver ?? (named ? info.description : ""),
    engine: engineName(),
    subgroup: info.subgroupMinSize ?? 0,
    subgroupMax: info.subgroupMaxSize ?? 0,
  };
}

/** @returns {string} the WebGPU implementation: the browser and its version, or node with Dawn */
function engineName() {
  const agent = globalThis.navigator?.userAgent ?? "";
  const found = /(Edg|OPR|Firefox|Chrome|Version)\/(\d+)/g;
  const versions = Object.fromEntries([...agent.matchAll(found)].map((match) => [match[1], match[2]]));
  if (versions.Edg) return `Edge ${versions.Edg}`;
  if (versions.OPR) return `Opera ${versions.OPR}`;
  if (versions.Firefox) return `Firefox ${versions.Firefox}`;
  if (versions.Chrome) return `Chrome ${versions.Chrome}`;
  if (versions.Version && agent.includes("Safari")) return `Safari ${versions.Version}`;
  return `${agent.split("/")[0] || "WebGPU"} with Dawn`;
}
