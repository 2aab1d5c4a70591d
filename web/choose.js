// @ts-check
/** The choice of kernels: translated Python code decides whether a kernel can run on a device and which is likely the fastest. */

import { LIMITS, SIZE_CONTROL } from "./engine/adapters.js";
import { ProblemError, UnsupportedError } from "./errors.js";
import { Dict, dataclasses, frozenset, provide, str } from "./python.js";
import { hyphened } from "./text.js";

/** @import { Python } from "./bundle.js" */
/** @import { Kernel } from "./kernels.js" */
/** @import { Problem } from "./problems.js" */
/** @import { RunRecord } from "./records.js" */
/** @import { Engine as Device } from "./engine/engine.js" */

/** @type {Python[]} the user's records for the device whose choice is in progress */
let learned = [];
provide("webmm.choose.tuned.load", () => learned);
let models = new Dict(); // the cost models for that device
provide("webmm.choose.tables.shipped", () => models);
// The page neither probes the device nor corrects a model by tuning.
provide("webmm.engine.rates.known", () => null);
provide("webmm.choose.adapted.corrected", (/** @type {unknown} */ _device, /** @type {Python} */ model) => model);

/** Chooses kernels for one device, and caches the choices. */
export class Choices {
  /** @type {Python[]} */
  #learned = [];
  #models = new Dict();
  #chosen = new Dict();
  /** @type {Map<string, Kernel[]> | null} */
  #kernels = null;

  /** @param {Device} device */
  constructor(device) {
    const { info, limits, features, matrix, bundle } = device;
    const { core } = bundle;
    this.device = device;
    this.core = core;
    const shapes = matrix.map(({ operands, result, m, n, k }) => new core.MatrixShape(operands, result, m, n, k));
    const [lanes, ...others] = features.has("subgroups") ? sizes(info, core.SIZES) : [];
    const least = new core.Capabilities(
      info.name,
      new Dict(LIMITS.map((name) => [hyphened(name), limits[name]])),
      frozenset(features),
      0,
      lanes ?? 0,
      frozenset(shapes),
    );
    /** @type {Python} the device's limits and features, as a translated `Capabilities` */
    this.capabilities = dataclasses.replace(least, { other_sizes: others });
    /** The attributes of a Python `Device` that the translated choice reads. */
    this.described = {
      info: { name: named(info), driver: info.driver, kind: kindOf(info) },
      engine: { name: core.engine_of_record(info.engine) },
      capabilities: this.capabilities,
      rates: new Dict(),
    };
  }

  /** Load the cost models for the adapter, if there are any. */
  async loadModels() {
    if (this.device.info.kind !== "cpu") this.#models = await this.device.bundle.models(this.described.info.name);
  }

  /**
   * Leave out the sizes of subgroups that this GPU cannot be asked for; Python's self-test, which finds those out, does not
   * exist here.
   */
  async findSizes() {
    const { device, core, capabilities } = this;
    if (!device.features.has(SIZE_CONTROL) || !capabilities.other_sizes.length) return;
    const every = [capabilities.subgroup_size, ...capabilities.other_sizes];
    const able = await Promise.all(every.map((lanes) => this.#canAsk(lanes)));
    const [lanes, ...others] = every.filter((_, i) => able[i]);
    if (lanes === undefined) return;
    const unasked = every.filter((_, i) => !able[i]); // which the driver may still choose for shaders that do not ask
    const sized = { subgroup_size: lanes, other_sizes: [...others, ...unasked] };
    this.capabilities = dataclasses.replace(capabilities, sized);
    this.described.capabilities = this.capabilities;
  }

  /** @param {number} lanes @returns {Promise<boolean>} whether the engine compiles a shader that asks for this size */
  async #canAsk(lanes) {
    const settings = { dialect: "tint", invocations: 128, pinned: lanes };
    const code = await this.device.bundle.text("probe/subgroup.wgsl", settings);
    /** @type {import("./bundle.js").Binding} */
    const heard = { binding: 0, name: "heard", type: "storage", wgsl_type: "" };
    return this.device.pipelines.of(code, "probe/subgroup", [heard]).then(
      () => true,
      () => false,
    );
  }

  /** @param {Python} kernel @param {Python} problem @returns {string | null} why `kernel` cannot compute `problem` on this device, or null if it can */
  refused(kernel, problem) {
    const { info, spelling } = this.device;
    const sizes = [info.subgroup, info.subgroupMax];
    return this.core.refused(kernel, problem, this.capabilities, sizes, spelling);
  }

  /** @param {Python} kernel @returns {Python} the kernel in the spelling that the engine compiles, if it has a choice of spellings */
  #spelled(kernel) {
    const { spelling } = this.device;
    return spelling && kernel.config.has("spelling") ? dataclasses.replace(kernel, { spelling }) : kernel;
  }

  /** @param {Python} problem @returns {Dict} the kernels that are worth trying, best first, with the reasons */
  #candidates(problem) {
    [learned, models] = [this.#learned, this.#models];
    return this.core.candidates(problem, this.described, "cached");
  }

  /**
   * @param {string} name
   * @param {Problem | Python} [p]
   * @returns {Kernel} the stage's representative configuration for this device: for matrix units, with the largest fragments
   *   and with tiles that suit `p`
   */
  stage(name, p) {
    const { bundle, info } = this.device;
    const cls = this.core.kernel_class(name, "gemm");
    if (info.kind === "cpu") return bundle.wrap(this.core.light(cls));
    return bundle.wrap(this.#made(cls, p ? bundle.problem(p) : null));
  }

  /** @param {Python} cls @param {Python | null} problem @returns {Python} the stage as the choice makes it for `problem`, or else for this device */
  #made(cls, problem) {
    const made = problem ? [...this.#candidates(problem).keys()] : [];
    const fitting = made.find((/** @type {Python} */ kernel) => kernel.constructor === cls);
    return this.#spelled(fitting ?? cls.on(this.capabilities));
  }

  /** @param {Kernel} kernel @param {Python} problem @returns {Kernel} the kernel; if it is for matrix units, and the device has any, the one that the choice makes for these */
  fitted(kernel, problem) {
    const { bundle, matrix } = this.device;
    return kernel.matrix && matrix.length ? bundle.wrap(this.#made(kernel.of.constructor, problem)) : kernel;
  }

  /** The page's configurations of each stage for this device, the default first. @returns {Map<string, Kernel[]>} */
  get kernels() {
    const { bundle } = this.device;
    const every = (/** @type {Python} */ cls) =>
      this.core
        .configurations(cls, this.capabilities)
        .map((/** @type {Python} */ kernel) => bundle.wrap(this.#spelled(kernel)));
    this.#kernels ??= new Map(this.core.offered().map((/** @type {Python} */ cls) => [cls.name, every(cls)]));
    return this.#kernels;
  }

  /**
   * Use tuning records: `choose` then prefers the kernel of the nearest record. Records of other adapters are ignored.
   * @param {RunRecord[]} records throws ProblemError if one of them has a tunable with a value that is never tried
   */
  learn(records) {
    const { name, engine } = this.device.info;
    const own = records
      .filter((r) => r.status === "ok" && r.adapter === name && r.engine === engine)
      .map((record) => this.device.bundle.record({ ...record, adapter: this.described.info.name }));
    const reason = own.map(this.core.refusal).find(Boolean);
    if (reason) throw new ProblemError(`a record ${reason}`);
    this.#learned = own;
    this.#chosen.clear();
    this.described.rates.clear(); // of records
  }

  /** @param {Python} problem @returns {Python} the first candidate that can run; throws UnsupportedError with the reasons if none can */
  chosen(problem) {
    const known = this.#chosen.get(problem);
    if (known) return known;
    const reasons = new Set();
    for (const candidate of this.#candidates(problem).keys()) {
      const kernel = this.#spelled(candidate);
      const reason = this.refused(kernel, problem);
      if (reason === null) {
        this.#chosen.set(problem, kernel);
        return kernel;
      }
      reasons.add(`${kernel.name} ${reason}`);
    }
    throw new UnsupportedError(
      `no kernel can compute ${str(problem)} on ${this.capabilities.name}: ${[...reasons].join("; ")}`,
    );
  }
}

/** @param {Device["info"]} info @param {number[]} all that WebGPU allows @returns {number[]} the sizes of subgroups that shaders may have, the least first; on a CPU they are constant */
const sizes = (info, all) => [
  info.subgroup,
  ...all.filter((lanes) => info.kind !== "cpu" && lanes > info.subgroup && lanes <= info.subgroupMax),
];

/** @param {Device["info"]} info @returns {string} the adapter's name with its vendor first, so that records and models of the same vendor are found */
const named = ({ name, vendor }) => (name.toLowerCase().startsWith(vendor.toLowerCase()) ? name : `${vendor} ${name}`);

/** @param {Device["info"]} info @returns {string} the kind by which the rates of an unknown GPU are assumed: browsers do not say it, but NVIDIA's are cards */
const kindOf = ({ kind, vendor }) => (kind === "cpu" ? "cpu" : /^nvidia$/i.test(vendor) ? "discrete" : "other");
