/** `Engine`, the base of `Device`: an open adapter with its limits, pipelines, arrays, queue and timer. */

import { Bundle } from "../bundle.js";
import { checkOptions } from "../calls/options.js";
import { Choices } from "../choose.js";
import { ConfigError, NoAdapterError } from "../errors.js";
import { Kernel } from "../kernels.js";
import { ELEMENTS, HostArray, checkedShape, elementType, sizeOf } from "../host.js";
import { make } from "../python.js";
import { grouped } from "../text.js";
import { MATRIX_UNITS, describe, matrixShapes, openAdapter } from "./adapters.js";
import { DeviceArray, Storage } from "./array.js";
import { Guard } from "./guard.js";
import { Launches } from "./launch.js";
import { Pipelines } from "./pipelines.js";
import { Plans } from "./plans.js";
import { Pool } from "./pool.js";
import "./roofline.js";
import { Submissions, encode } from "./submissions.js";
import { time } from "./timing.js";
import { upload } from "./transfer.js";

/** @import { ElementType, HostData } from "../host.js" */
/** @import { Python } from "../bundle.js" */
/** @import { Config, Launch, Problem, Roofline, RunRecord, Task } from "../webmm.js" */

const NODE = "node has no navigator.gpu; npm install webgpu, and pass its create([]) as Device.open({ gpu })";

/** An open adapter: everything that `Device` has besides its calls. The other modules of this folder do the work. */
export class Engine {
  /** @type {WeakSet<Launch>} launches that the engine has accepted once */
  #accepted = new WeakSet();
  /** @type {Map<string, Kernel[]> | undefined} */
  #kernels;

  /** @param {GPU} gpu @param {GPUAdapter} adapter @param {GPUDevice} device @param {Bundle} bundle */
  constructor(gpu, adapter, device, bundle) {
    this.gpu = gpu; // keep a reference: Dawn in node crashes once this object is garbage-collected
    this.adapter = adapter;
    this.wgpu = device;
    this.bundle = bundle;
    /** The package's Python modules, translated to JavaScript. */
    this.core = bundle.core;
    /** The adapter's name, vendor, backend, driver and subgroup sizes. */
    this.info = describe(this.core, adapter);
    /** The fragment shapes that the matrix units multiply; empty without matrix units. */
    this.matrix = device.features.has(/** @type {any} */ (MATRIX_UNITS)) ? matrixShapes(this.core, adapter) : [];
    /** The spelling of fragment loads and stores that this engine compiles; "" if it compiles none. */
    this.spelling = "";
    /** @type {Set<string>} features of the device and of its shading language */
    this.features = new Set([...device.features, ...(gpu.wgslLanguageFeatures ?? [])]);
    this.limits = device.limits;
    this.guard = new Guard(device);
    this.submissions = new Submissions(this.guard);
    this.pool = new Pool(this.guard, this.info.name, () => this.flush());
    this.pipelines = new Pipelines(this.guard, this.core.ENTRY_POINT);
    this.launches = new Launches(this);
    this.plans = new Plans(this);
    /** Device memory, in bytes, that a call on host arrays may use; a larger problem is split into pieces. */
    this.memory = 2 ** 30;
    this.choices = new Choices(this);
    /** @type {Promise<string>} resolves with the reason when the device is lost */
    this.lost = this.guard.lost;
  }

  /**
   * Open the GPU, and load the kernels. Throws NoAdapterError if there is no WebGPU or no adapter, UnsupportedError if the
   * adapter cannot be opened, and WebmmError if the kernels cannot be loaded.
   *
   *     const gpu = await Device.open();
   * @template {Engine} T
   * @this {new (gpu: GPU, adapter: GPUAdapter, device: GPUDevice, bundle: Bundle) => T}
   * @param {{bundle?: Bundle | string | URL, gpu?: GPU, powerPreference?: GPUPowerPreference}} [options] `gpu` is
   *   `navigator.gpu` by default, and in node that of the package `webgpu`; `bundle` is the URL of the folder with the
   *   kernels, by default the one next to this file; `powerPreference` is "high-performance" by default
   * @returns {Promise<T>}
   */
  static async open(options = {}) {
    const gpu = options.gpu ?? globalThis.navigator?.gpu;
    const missing = "process" in globalThis ? NODE : "this browser has no navigator.gpu";
    if (!gpu) throw new NoAdapterError(`WebGPU is not available: ${missing}`);
    const loading = options.bundle instanceof Bundle ? options.bundle : Bundle.load(options.bundle);
    const { adapter, device } = await openAdapter(gpu, options.powerPreference ?? "high-performance");
    const opened = new this(gpu, adapter, device, await loading);
    await opened.prepare();
    return opened;
  }

  /** Find the engine's spelling of matrix fragments and its sizes of subgroups, and load the cost models for the adapter. */
  async prepare() {
    const { choices } = this;
    [this.spelling] = await Promise.all([this.#findSpelling(), choices.loadModels(), choices.findSizes()]);
  }

  /** @returns {Promise<string>} the first spelling of fragment loads and stores that the engine compiles, or "" */
  async #findSpelling() {
    for (const settings of this.core.spellings(this.capabilities)) {
      const code = await this.bundle.text("probe/matrix_unit.wgsl", Object.fromEntries(settings));
      if (await this.pipelines.compiles(code)) return settings.get("spelling");
    }
    return "";
  }

  /** Why the device was lost, or null while it works. */
  get loss() {
    return this.guard.loss;
  }

  /** Close the device, and release its arrays and pipelines. */
  close() {
    this.wgpu.destroy();
  }

  // Arrays

  /**
   * Copy an array to the device.
   *
   *     const x = await gpu.array(new Float32Array(12), { shape: [3, 4] });
   * @param {HostData} data a typed array, nested lists, a number, a HostArray or a Matrix
   * @param {{shape?: readonly number[], dtype?: ElementType}} [options] as of `HostArray.from()`
   * @returns {Promise<DeviceArray>} row-major; to be freed with `free()`
   */
  async array(data, options = {}) {
    checkOptions("array", options, ["shape", "dtype"]);
    const host = HostArray.from(data, options);
    const array = await this.empty(host.shape, host.dtype);
    await this.guard.using("uploading", () => upload(this, host, array));
    return array;
  }

  /** Overwrite a contiguous array. @param {DeviceArray} array @param {HostArray} host with as many elements; converted to the array's dtype */
  write(array, host) {
    upload(this, host, array);
  }

  /** Allocate an array without initialising it. @param {readonly number[]} shape @param {ElementType} [dtype] @returns {Promise<DeviceArray>} with arbitrary contents: its buffer may be a reused one */
  async empty(shape, dtype = "float32") {
    const nbytes = sizeOf(checkedShape(shape)) * ELEMENTS[elementType(dtype)].itemsize;
    const buffer = await this.pool.take(nbytes, `an array of shape ${shape.map(grouped).join("×")}`);
    return new DeviceArray(new Storage(this, buffer, nbytes), shape, dtype);
  }

  /** Allocate an array of zeros. @param {readonly number[]} shape @param {ElementType} [dtype] @returns {Promise<DeviceArray>} */
  async zeros(shape, dtype = "float32") {
    const array = await this.empty(shape, dtype);
    this.submissions.commands((encoder) => encoder.clearBuffer(array.buffer));
    return array;
  }

  /** Read back bytes of a buffer, after all queued work. @param {GPUBuffer} buffer @param {number} size @param {number} [offset] @returns {Promise<ArrayBuffer>} */
  async read(buffer, size, offset = 0) {
    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
    const create = () => this.wgpu.createBuffer({ size, usage });
    const staging = await this.guard.using("allocating a staging buffer", create);
    try {
      const bytes = await this.guard.using("downloading", async () => {
        this.submissions.commands((encoder) => encoder.copyBufferToBuffer(buffer, offset, staging, 0, size));
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

  /** @param {Kernel} kernel @param {Problem} p @returns {string | null} why `kernel` cannot compute `p` on this device, or null if it can */
  reason(kernel, p) {
    return this.core.refused(kernel.of, this.bundle.problem(p), this.choices.now());
  }

  /** @param {string} name of a stage @param {Problem} [p] @returns {Kernel} the stage's representative configuration for this device */
  stage(name, p) {
    return this.bundle.wrap(this.core.stage_for(name, p ? this.bundle.problem(p) : null, this.choices.now()));
  }

  /** The page's configurations of each stage for this device, the default first. @returns {Map<string, Kernel[]>} */
  get kernels() {
    const [{ core, bundle, capabilities }, described] = [this, this.choices.now()];
    const wrapped = (/** @type {Python} */ kernel) => bundle.wrap(core.spelled(kernel, described));
    const every = (/** @type {Python} */ cls) => core.configurations(cls, capabilities).map(wrapped);
    return (this.#kernels ??= new Map(core.offered().map((/** @type {Python} */ cls) => [cls.name, every(cls)])));
  }

  /** Use tuning records in the choice of kernels; records of other adapters are ignored. @param {RunRecord[]} records */
  learn(records) {
    this.choices.learn(records);
  }

  /** @param {Problem} p @returns {Kernel} the kernel that is likely the fastest for `p` on this device */
  choose(p) {
    return this.bundle.wrap(this.choices.chosen(this.bundle.problem(p)));
  }

  /** The device's limits and features, as a translated `Capabilities`. */
  get capabilities() {
    return this.choices.described.capabilities;
  }

  // Kernels

  /** Return the translated kernel that the options `kernel`, a name or a kernel, and `config` of a call name, if they do. @param {unknown} kernel @param {Config | undefined} config @param {string} op */
  kernelNamed(kernel, config, op) {
    if (kernel === undefined || kernel === null) {
      if (config !== undefined) throw new ConfigError("config sets the tunables of a kernel: pass its name as kernel");
      return undefined;
    }
    if (typeof kernel !== "string") return kernel instanceof Kernel ? kernel.of : kernel;
    return this.bundle.configure(kernel, config, op);
  }

  /** Prepare the dispatches of a kernel for a problem, with one array for each of the problem's buffers, in their order. @param {Kernel | Python} kernel @param {Problem | Python} p @param {...DeviceArray} arrays */
  launch(kernel, p, ...arrays) {
    this.guard.alive();
    return this.launches.get(kernel instanceof Kernel ? kernel.of : kernel, this.bundle.problem(p), arrays);
  }

  /** Queue a launch. Its first submission is validated at once; a later failure is reported by the next readback or `synchronize()`. @param {string} name @param {Launch} launch */
  async queue(name, launch) {
    if (this.#accepted.has(launch)) return this.submissions.queue(launch);
    await this.guard.using(name, () => this.submit(launch, 1));
    this.#accepted.add(launch);
  }

  /** Submit a launch `count` times, each in its own compute pass. @param {Launch} launch @param {number} count */
  submit(launch, count) {
    this.submissions.commands((encoder) => {
      for (let i = 0; i < count; i++) encode(encoder, launch);
    });
  }

  /** Submit the queued dispatches now. This also happens at the end of each turn of the event loop, and before every readback. */
  flush() {
    this.submissions.flush();
  }

  /** Wait until all queued work is done. Throws an error that the engine reported meanwhile. */
  async synchronize() {
    this.flush();
    await this.guard.using("waiting", () => this.wgpu.queue.onSubmittedWorkDone());
    this.guard.report();
  }

  // Measuring

  /** Time a launch on the device, with timestamp queries if it has them, otherwise with the wall clock. @param {Launch} launch @param {number} [warmUp] in seconds */
  time(launch, warmUp) {
    return time(this, launch, warmUp);
  }

  /** Measure the device's peak arithmetic and memory rates; takes about a second; the rates are in GFLOP/s and GB/s. @returns {Promise<Roofline>} */
  async roofline() {
    return { ...(await this.core.measure(this)) };
  }

  /** Make a record of one measurement on this device. @param {{name: string, config: Config}} kernel @param {Task} p @param {Partial<RunRecord>} values fields that were measured @returns {RunRecord} */
  record(kernel, p, values) {
    const { m, n, k, dtype, op = "gemm", variant = "" } = p;
    const { name: adapter, engine, backend, driver } = this.info;
    const { version } = this.bundle.index;
    const of = { op, kernel: kernel.name, m, n, k, batch: 1, dtype, variant };
    const made = make(this.core.Record, [], { ...of, engine, adapter, backend, driver, version });
    return { ...made, config: kernel.config, ...values };
  }
}
