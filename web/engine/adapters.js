// @ts-check
/** Adapters: the features and limits that are requested, and a description. */

import { NoAdapterError, UnsupportedError, inWords } from "../errors.js";

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
/**
 * Open an adapter with all of its limits, and the features that kernels use.
 * @param {GPU} gpu @param {GPUPowerPreference} powerPreference
 * @returns {Promise<{adapter: GPUAdapter, device: GPUDevice}>} throws NoAdapterError or UnsupportedError
 */
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

/** @param {GPUAdapter} adapter @returns {MatrixShape[]} the fragment shapes that its matrix units multiply, the largest first */
export function matrixShapes(adapter) {
  const info = /** @type {{subgroupMatrixConfigs?: Iterable<any>}} */ (/** @type {unknown} */ (adapter.info));
  return [...(info.subgroupMatrixConfigs ?? [])]
    .map((c) => ({ operands: c.componentType, result: c.resultComponentType, m: c.M, n: c.N, k: c.K }))
    .sort((x, y) => y.m * y.n * y.k - x.m * x.n * x.k);
}

/** Describe an adapter: name, kind, vendor, architecture, backend, driver, engine, subgroup sizes. @param {GPUAdapter} adapter */
export function describe(adapter) {
  /** @type {Partial<GPUAdapterInfo> & {backend?: string, driver?: string, type?: string}} */
  const info = adapter.info ?? {};
  const { vendor = "", architecture = "", backend = "", device, description = "" } = info;
  const parts = [vendor, architecture].filter(Boolean).join(" ");
  const named = device && !/^0x/i.test(device); // in Dawn, `device` is a name, and `description` names the driver
  const software = /swiftshader|llvmpipe|lavapipe|basic render|software/i.test(`${parts} ${description}`);
  const kind = software || info.type?.toLowerCase() === "cpu" ? "cpu" : "gpu";
  return {
    name: (named && device) || description || device || parts || "unnamed adapter",
    kind: /** @type {"cpu" | "gpu"} */ (kind),
    ...{ vendor, architecture, backend },
    driver: info.driver ?? (named ? description : ""),
    engine: engineName(),
    subgroup: info.subgroupMinSize ?? 0,
    subgroupMax: info.subgroupMaxSize ?? 0,
  };
}

/** What names a browser's version in its user agent; that of most contains the words of others, which come later. */
const BROWSERS = Object.entries({ Edge: "Edg", Opera: "OPR", Firefox: "Firefox", Chrome: "Chrome", Safari: "Version" });

/** @returns {string} the WebGPU implementation: the browser and its version, or node with Dawn */
function engineName() {
  const agent = globalThis.navigator?.userAgent ?? "";
  for (const [name, word] of BROWSERS) {
    const found = agent.match(`${word}/(\\d+)`);
    if (found && (name !== "Safari" || agent.includes(name))) return `${name} ${found[1]}`;
  }
  return `${agent.split("/")[0] || "WebGPU"} with Dawn`;
}
