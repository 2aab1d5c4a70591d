// @ts-check
/** What calls stand on: an opened adapter, with its limits, compiled pipelines, arrays and clock. */

import { Bundle } from "../bundle.js";
import { checkOptions } from "../calls/options.js";
import { Choices } from "../choose.js";
import { ConfigError, NoAdapterError } from "../errors.js";
import { Kernel } from "../kernels.js";
import { ELEMENTS, HostArray, checkedShape, elementType, sizeOf } from "../host.js";
import { Dict } from "../python.js";
import { grouped } from "../text.js";
import { MATRIX_UNITS, describe, matrixShapes, openAdapter } from "./adapters.js";
import { DeviceArray, Storage } from "./array.js";
import { Guard } from "./guard.js";
import { Launches } from "./launch.js";
import { Pipelines } from "./pipelines.js";
import { Plans } from "./plans.js";
import { Pool } from "./pool.js";
import { roofline } from "./roofline.js";
import { Submissions } from "./submissions.js";
import { time } from "./timing.js";
import { download, upload } from "./transfer.js";

/** @typedef {import("../host.js").ElementType} ElementType */
/** @typedef {import("../host.js").HostData} HostData */
/** @typedef {import("../bundle.js").Python} Python */
/** @typedef {import("../kernels.js").Config} Config */
/** @typedef {import("../problems.js").Problem} Problem */
/** @typedef {import("../problems.js").Task} Task */
/** @typedef {import("../records.js").RunRecord} RunRecord */
/** @typedef {import("./roofline.js").Roofline} Roofline */
/** @typedef {import("./submissions.js").Launch} Launch */
/** @typedef {import("./timing.js").Timing} Timing */

const SPELLINGS = ["current", "deprecated"]; // of loads and stores of fragments

/** An adapter opened for computing, beneath its calls; the modules beside do the work. */
export class Engine {
  /** @type {WeakSet<Launch>} those that the engine took once */
  #proven = new WeakSet();

  /** @param {GPU} gpu @param {GPUAdapter} adapter @param {GPUDevice} device @param {Bundle} bundle */
  constructor(gpu, adapter, device, bundle) {
    this.gpu = gpu; // held: Dawn in node crashes once the garbage collector takes what it came from
    this.adapter = adapter;
    this.wgpu = device;
    this.bundle = bundle;
    this.info = describe(adapter);
    /** What its matrix units multiply; none where the feature is missing. */
    this.matrix = device.features.has(/** @type {any} */ (MATRIX_UNITS)) ? matrixShapes(adapter) : [];
    /** How this engine's version spells loads and stores of fragments: found out by compiling; empty where it was not. */
    this.spelling = "";
    /** @type {Set<string>} the device's, and those of its shading language */
    this.features = new Set([...device.features, ...(gpu.wgslLanguageFeatures ?? [])]);
    this.limits = device.limits;
    this.guard = new Guard(device);
    this.submissions = new Submissions(this.guard);
    this.pool = new Pool(this.guard, this.info.name, () => this.flush());
    this.pipelines = new Pipelines(this.guard, bundle.core.ENTRY_POINT);
    this.launches = new Launches(this);
    this.plans = new Plans(this);
    /** Bytes of it that a call on the host's arrays takes; what needs more comes and goes in pieces. */
    this.memory = 2 ** 30;
    this.choices = new Choices(this);
    /** @type {Promise<string>} settles with the reason in words */
    this.lost = this.guard.lost;
  }

  /**
   * @template {Engine} T
   * @this {new (gpu: GPU, adapter: GPUAdapter, device: GPUDevice, bundle: Bundle) => T}
   * @param {{bundle?: Bundle | string | URL, gpu?: GPU, powerPreference?: GPUPowerPreference}} [options]
   * @returns {Promise<T>}
   */
  static async open(options = {}) {
    const gpu = options.gpu ?? globalThis.navigator?.gpu;
    if (!gpu) throw new NoAdapterError("WebGPU is not available here");
    const loading = options.bundle instanceof Bundle ? options.bundle : Bundle.load(options.bundle);
    const { adapter, device } = await openAdapter(gpu, options.powerPreference ?? "high-performance");
    const opened = new this(gpu, adapter, device, await loading);
    await opened.getReady();
    return opened;
  }

  /** Find out what its engine's version reads, and load what is known of its adapter. */
  async getReady() {
    [this.spelling] = await Promise.all([this.#readSpelling(), this.choices.loadModels()]);
  }

  /** @returns {Promise<string>} the first spelling in which the engine reads fragments that its matrix units multiply */
  async #readSpelling() {
    const halves = this.features.has("shader-f16");
    const shape = this.matrix.find(({ operands }) => operands.endsWith("8") || (halves && operands === "f16"));
    if (!shape) return "";
    const settings = { shape, size: shape.operands === "f16" ? 2 : 1, lanes: this.info.subgroup };
    for (const spelling of SPELLINGS) {
      const code = await this.bundle.text("probe/matrix_unit.wgsl", { ...settings, spelling });
      if (await this.pipelines.compiles(code)) return spelling;
    }
    return "";
  }

  /** Why the device is gone, or null while it works. */
  get loss() {
    return this.guard.loss;
  }

  /** Give the device back; its arrays and pipelines are gone. */
  close() {
    this.wgpu.destroy();
  }

  // Arrays

  /**
   * @param {HostData} data an array of the host's: a typed array, nested lists, a HostArray or Matrix
   * @param {{shape?: readonly number[], dtype?: ElementType}} [options] as `HostArray.from()` has them
   * @returns {Promise<DeviceArray>} a copy on the device, row-major
   */
  async array(data, options = {}) {
    checkOptions("array", options, ["shape", "dtype"]);
    const host = HostArray.from(data, options);
    const array = await this.empty(host.shape, host.dtype);
    await this.guard.using("uploading", () => upload(this, host, array));
    return array;
  }

  /** Overwrite a contiguous array. @param {DeviceArray} array @param {HostArray} host of as many elements, converted to its type */
  write(array, host) {
    upload(this, host, array);
  }

  /**
   * @param {readonly number[]} shape @param {ElementType} [dtype]
   * @returns {Promise<DeviceArray>} an array of any contents: its buffer may have served another
   */
  async empty(shape, dtype = "float32") {
    const nbytes = sizeOf(checkedShape(shape)) * ELEMENTS[elementType(dtype)].itemsize;
    const buffer = await this.buffer(nbytes, `an array of shape ${shape.map(grouped).join("×")}`);
    return new DeviceArray(new Storage(this, buffer, nbytes), shape, dtype);
  }

  /** @param {readonly number[]} shape @param {ElementType} [dtype] @returns {Promise<DeviceArray>} an array of zeros */
  async zeros(shape, dtype = "float32") {
    const array = await this.empty(shape, dtype);
    this.flush();
    const encoder = this.wgpu.createCommandEncoder();
    encoder.clearBuffer(array.buffer);
    this.wgpu.queue.submit([encoder.finish()]);
    return array;
  }

  /**
   * @param {number} bytes rounded up to whole vec4 @param {string} what needs them
   * @returns {Promise<GPUBuffer>} storage of any contents: it may have served before; `recycle` takes it back
   */
  buffer(bytes, what) {
    return this.pool.take(bytes, what);
  }

  /** Take a freed array's buffer back. @param {GPUBuffer} buffer @param {number} [nbytes] that it was taken for */
  recycle(buffer, nbytes) {
    this.pool.give(buffer, nbytes);
  }

  /** @param {DeviceArray} array @returns {Promise<HostArray>} a copy in host memory: a Matrix where it is one of floats */
  download(array) {
    return download(this, array);
  }

  /** @param {GPUBuffer} buffer @param {number} size @param {number} [offset] @returns {Promise<ArrayBuffer>} those bytes, once all is computed */
  async read(buffer, size, offset = 0) {
    const staging = await this.guard.using("allocating a staging buffer", () =>
      this.wgpu.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST }),
    );
    try {
      const bytes = await this.guard.using("downloading", async () => {
        this.flush();
        const encoder = this.wgpu.createCommandEncoder();
        encoder.copyBufferToBuffer(buffer, offset, staging, 0, size);
        this.wgpu.queue.submit([encoder.finish()]);
        await staging.mapAsync(GPUMapMode.READ);
        return staging.getMappedRange().slice(0);
      });
      this.guard.report();
      return bytes;
    } finally {
      staging.destroy();
    }
  }

  // Eligibility and choice

  /** @param {Kernel} kernel @param {Problem} p @returns {string | null} why `kernel` cannot compute `p` here, or null */
  reason(kernel, p) {
    return this.choices.reason(kernel, p);
  }

  /** @param {string} name @param {Problem} [p] @returns {Kernel} the configuration that stands for a stage on this device */
  stage(name, p) {
    return this.choices.stage(name, p);
  }

  /** Prefer what was measured on this adapter. @param {RunRecord[]} records */
  learn(records) {
    this.choices.learn(records);
  }

  /** @param {Problem} p @returns {Kernel} the kernel to use where the caller does not say */
  choose(p) {
    return this.choices.choose(p);
  }

  /** Python's modules in JavaScript. */
  get core() {
    return this.bundle.core;
  }

  /** What kernels need to know of the device, as Python's `Capabilities`. */
  get capabilities() {
    return this.choices.capabilities;
  }

  /** @param {Python} problem @returns {Python} the kernel of Python's to use where the caller does not say */
  chosen(problem) {
    return this.choices.chosen(problem);
  }

  // Kernels

  /** @param {unknown} kernel its name, or itself @param {Record<string, number | string> | undefined} config tunables that differ @param {string} op @returns {Python | undefined} of Python's */
  kernelNamed(kernel, config, op) {
    if (kernel === undefined || kernel === null) {
      if (config !== undefined) throw new ConfigError("config says how to set the tunables of a kernel: name it, too");
      return undefined;
    }
    if (typeof kernel !== "string") return kernel instanceof Kernel ? kernel.of : kernel;
    return this.core.configure(
      kernel,
      new Dict(Object.entries(config ?? {}).map(([name, value]) => [name, String(value)])),
      op,
    );
  }

  /**
   * Make a kernel ready to compute a problem with an array for each of its buffers, in that order.
   * @param {Kernel | Python} kernel @param {Problem | Python} p @param {...DeviceArray} arrays
   * @returns {Promise<Launch>}
   */
  launch(kernel, p, ...arrays) {
    this.guard.alive();
    return this.launches.get(kernel instanceof Kernel ? kernel.of : kernel, this.bundle.problem(p), arrays);
  }

  /** Queue a launch; its first time waits for the engine's verdict, later failures come with a result, or when waiting. @param {string} name @param {Launch} launch */
  async queue(name, launch) {
    if (this.#proven.has(launch)) return this.submissions.queue(launch);
    await this.guard.using(name, () => this.submit(launch, 1));
    this.#proven.add(launch);
  }

  /** @param {Uint32Array<ArrayBuffer>} words @returns {Promise<GPUBuffer>} a uniform that holds them */
  uniform(words) {
    return this.launches.uniform(words);
  }

  /** @param {GPUComputePipeline} pipeline @param {GPUBuffer[]} buffers by their bindings' numbers @returns {Promise<GPUBindGroup>} */
  bind(pipeline, buffers) {
    return this.launches.bind(
      pipeline,
      buffers.map((buffer) => ({ buffer })),
    );
  }

  /** @param {Launch} launch @param {number} count queue it this often, each in a pass of its own */
  submit(launch, count) {
    this.submissions.submit(launch, count);
  }

  /** Submit what is queued. Happens by itself at the end of the event loop's turn, and before anything that depends on it. */
  flush() {
    this.submissions.flush();
  }

  /** Wait until everything that was queued is done; throws what went wrong since. */
  async synchronize() {
    this.flush();
    await this.guard.using("waiting", () => this.wgpu.queue.onSubmittedWorkDone());
    this.guard.report();
  }

  // Measuring

  /**
   * Time a dispatch on the device: by timestamp queries where there are any, else by the wall clock.
   * @param {Launch} launch @param {number} [warmUp] seconds
   * @returns {Promise<Timing>}
   */
  time(launch, warmUp) {
    return time(this, launch, warmUp);
  }

  /** @returns {Promise<Roofline>} measured ceilings; takes about a second */
  roofline() {
    return roofline(this);
  }

  /**
   * @param {{name: string, config: Config}} kernel @param {Task} p @param {Partial<RunRecord>} values
   * @returns {RunRecord}
   */
  record(kernel, p, values) {
    const { name, engine, backend, driver } = this.info;
    return {
      op: p.op ?? "gemm",
      kernel: kernel.name,
      m: p.m,
      n: p.n,
      k: p.k,
      batch: 1,
      dtype: p.dtype,
      layout: "nn",
      variant: p.variant ?? "",
      engine,
      adapter: name,
      backend,
      driver,
      version: this.bundle.index.version,
      config: kernel.config,
      status: "ok",
      reason: null,
      median_us: null,
      best_us: null,
      spread_us: null,
      samples: null,
      gflops: null,
      clock: null,
      max_error: null,
      error_bound: null,
      peak_fraction: null,
      ...values,
    };
  }
}
