/** The choice of kernels: translated Python code decides whether a kernel can run on a device and which is likely the fastest. */

import { LIMITS, SIZE_CONTROL } from "./engine/adapters.js";
import { Dict, frozenset, provide } from "./python.js";
import { hyphened } from "./text.js";

/** @import { Python } from "./bundle.js" */
/** @import { RunRecord } from "./webmm.js" */
/** @import { Engine as Device } from "./engine/engine.js" */

/** @type {Python} the translated `Browser` whose choice is in progress */
let current = { records: [], models: new Dict() };
provide("webmm.choose.tuned.load", () => current.records);
provide("webmm.choose.tables.shipped", () => current.models);
// The page neither probes the device nor corrects a model by tuning.
provide("webmm.engine.rates.known", () => null);
provide("webmm.choose.adapted.corrected", (/** @type {unknown} */ _device, /** @type {Python} */ model) => model);

/** Chooses kernels for one device, and caches the choices. */
export class Choices {
  #chosen = new Dict();

  /** @param {Device} device */
  constructor(device) {
    const { info, limits, features, matrix, bundle } = device;
    this.device = device;
    this.core = bundle.core;
    const lanes = [info.subgroup, info.subgroupMax];
    const known = new Dict(LIMITS.map((name) => [hyphened(name), limits[name]]));
    /** @type {Python} the translated `Browser`: what the translated choice reads of the device */
    this.described = this.core.browser_of(info, lanes, known, frozenset(features), matrix);
  }

  /** Load the cost models for the adapter, if there are any. */
  async loadModels() {
    const { device, described } = this;
    if (device.info.kind !== "cpu") described.models = await device.bundle.models(described.info.name);
  }

  /** Leave out the sizes of subgroups that this GPU cannot be asked for, which in Python the self-test finds out. */
  async findSizes() {
    const { device, core, described } = this;
    const { capabilities } = described;
    if (!device.features.has(SIZE_CONTROL) || !capabilities.other_sizes.length) return;
    /** @type {number[]} */
    const every = capabilities.subgroup_sizes;
    const asked = await Promise.allSettled(every.map((lanes) => this.#ask(lanes)));
    const able = every.filter((_, i) => asked[i].status === "fulfilled");
    described.capabilities = core.asking(capabilities, able);
  }

  /** Compile a shader that asks for this size of subgroups. @param {number} lanes */
  async #ask(lanes) {
    const settings = { dialect: "tint", invocations: 128, pinned: lanes };
    const code = await this.device.bundle.text("probe/subgroup.wgsl", settings);
    const bindings = [{ binding: 0, name: "heard", type: /** @type {const} */ ("storage"), wgsl_type: "" }];
    await this.device.pipelines.of(code, "probe/subgroup", bindings);
  }

  /** Return `described`, for a choice that begins now. */
  now() {
    current = this.described;
    current.spelling = this.device.spelling;
    return current;
  }

  /** Use tuning records: `choose` prefers the kernel of the nearest one of this adapter. @param {RunRecord[]} records throws ProblemError if one has a tunable with a value that is never tried */
  learn(records) {
    const { device, core, described } = this;
    const all = records.map(({ call_us, ...r }) => device.bundle.record(r));
    described.records = core.own_records(described, device.info, all);
    described.rates.clear(); // of records
    this.#chosen.clear();
  }

  /** @param {Python} problem @returns {Python} the first candidate that can run; throws UnsupportedError with the reasons if none can */
  chosen(problem) {
    const known = this.#chosen.get(problem);
    if (known) return known;
    const kernel = this.core.first_able(problem, this.now());
    this.#chosen.set(problem, kernel);
    return kernel;
  }
}
