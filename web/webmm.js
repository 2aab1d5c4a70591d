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
 * beside this file; none is ever assembled here.
 */

import { ConfigError, DeviceLostError, MemoryLimitError, NoAdapterError, ProblemError, ShaderError } from "./errors.js";
import { TimeoutError, UnsupportedError, WebmmError, inWords } from "./errors.js";
import { ITEM_SIZE, Matrix } from "./matrix.js";

export * from "./errors.js";
export * from "./matrix.js";
export { Checker, errorBound } from "./check.js";

/** @typedef {import("./matrix.js").DType} DType */
/** @typedef {Record<string, number | string>} Config */
/** @typedef {{m: number, n: number, k: number, dtype: string, op?: string, variant?: string, flops?: number}} Task what a record is of */
/** @typedef {{m: number, n: number, k: number, dtype: DType}} Problem a product of floats */
/** @typedef {{tile_m: number, tile_n: number, elements: number, at_most: number}} Grid */
/** @typedef {{binding: number, name: string, type: GPUBufferBindingType, wgsl_type: string}} Binding */
/** @typedef {{name: string, doc: string, default: number | string, candidates: (number | string)[]}} Tunable */
/** @typedef {{median_us: number, best_us: number, spread_us: number, samples: number, clock: "timestamp" | "wall"}} Timing */
/** @typedef {{gflops: number, gbytes: number}} Roofline */
/** @typedef {{pipeline: GPUComputePipeline, bindGroup: GPUBindGroup, grid: [number, number, number]}} Step a dispatch */
/** @typedef {Step[]} Launch dispatches that run one after another, as one */
/**
 * Fragments of (m, k) times (k, n) for the matrix units of a GPU, by how many lanes, and how the shader spells it.
 * @typedef {{operands: string, result: string, m: number, n: number, k: number}} MatrixShape
 * @typedef {MatrixShape & {lanes: number, spelling: string}} Fragments
 */
/**
 * What a stage asks of a device.
 * @typedef {{
 *   features: string[], subgroup: number, workgroup_size: [number, number, number], workgroup_bytes: number,
 *   binding: number, groups: number, matrix: Fragments | null,
 * }} Needs
 */
/** @typedef {"ok" | "unsupported" | "compile" | "runtime" | "incorrect" | "timeout" | "skipped"} Status */

/**
 * One configuration of a kernel, as the index holds it.
 * @typedef {{
 *   config: (number | string)[], workgroup_size: [number, number, number], workgroup_bytes: number, inner_step: number,
 *   grid: Grid, features: string[], subgroup: number, matrix: Fragments | null,
 *   shaders: Partial<Record<DType, Record<string, string>>>,
 * }} ConfigRow
 */
/** @typedef {{kernel: string, config: Config, fitting: boolean}} Choice `fitting`: only where no tile hangs over an edge */
/** @typedef {{name: string, summary: string, changed: string, vector_axes: [string, string], vector: number, tunables: Tunable[], light: number, configs: ConfigRow[]}} KernelRow */
/**
 * @typedef {{
 *   schema: string, version: string, records: string, entry_point: string, max_workgroups: number, loop_limit: number,
 *   ladders: string[], flags: string[], params: {size: number, members: Record<string, number>}, bindings: Binding[],
 *   timing: {warm_up: number, cold: number, wake: number, sample_time: number, min_samples: number, max_samples: number, batch_time: number},
 *   dtypes: Record<DType, {eps: number, tiny: number, features: string[]}>,
 *   choices: {
 *     enough_tiles: number, tuned: (TunedRecord & {vendor: string})[], gpu: Choice[], cpu: Choice[],
 *     matrix: {kernel: string, tiles: Config[], enough_tiles: number, some_tiles: number, few: number},
 *   },
 *   roofline: {bindings: Binding[], gpu: RooflineRows, cpu: RooflineRows},
 *   fragments: (Fragments & {shader: string})[], kernels: KernelRow[], cases: {m: number, n: number, k: number, flags: Record<string, number>}[],
 * }} Index
 */
/**
 * @typedef {{
 *   fma: {shader: string, workgroups: number, results: number, flops: number}[],
 *   copy: {shader: string, workgroup: number, nbytes: number},
 * }} RooflineRows
 */
/**
 * One measurement, or the reason why there is none: schema webmm.records/1, the same as Python's.
 * @typedef {{
 *   op: string, kernel: string, m: number, n: number, k: number, batch: number, dtype: string, engine: string,
 *   adapter: string, backend: string, driver: string, version: string, config: Config, layout: string, variant: string,
 *   status: Status, reason: string | null, median_us: number | null, best_us: number | null, gflops: number | null,
 *   clock: string | null, max_error: number | null, error_bound: number | null, peak_fraction: number | null,
 * }} RunRecord
 */

export const RECORD_FIELDS = /** @type {const} */ ([
  "op", "kernel", "m", "n", "k", "batch", "dtype", "engine", "adapter", "backend", "driver", "version", "config", "layout", "variant",
  "status", "reason", "median_us", "best_us", "gflops", "clock", "max_error", "error_bound", "peak_fraction",
]);
export const STATUSES = ["ok", "unsupported", "compile", "runtime", "incorrect", "timeout", "skipped"];

const COMPILE_TIMEOUT = 60; // seconds
const COPY_WARM_UP = 0.1; // seconds, for the roofline's kernels
const MATRIX_UNITS = "chromium-experimental-subgroup-matrix";
/** @type {Record<string, string>} what to do about a feature that browsers keep to themselves */
const SWITCHES = {
  [MATRIX_UNITS]: "Chromium offers it with --enable-unsafe-webgpu, on GPUs with matrix units",
};
const WANTED_FEATURES = /** @type {GPUFeatureName[]} */ ([
  "shader-f16", "timestamp-query", "subgroups",
  /** @type {any} */ (MATRIX_UNITS),
]);
const WANTED_LIMITS = /** @type {const} */ ([
  "maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupSizeX", "maxComputeWorkgroupSizeY",
  "maxComputeWorkgroupSizeZ", "maxComputeWorkgroupStorageSize", "maxComputeWorkgroupsPerDimension",
  "maxStorageBufferBindingSize", "maxBufferSize",
]);
const MAX_ELEMENTS = 2 ** 32; // shaders index storage with u32

/** @param {number} value */
const grouped = (value) => value.toLocaleString("en");

// Problems

/** @param {Task} p @returns {number} operations */
export const flopsOf = (p) => p.flops ?? 2 * p.m * p.n * p.k;

/** @param {Problem} p @returns {number} bytes that must move at least */
export const bytesOf = (p) => (p.m * p.k + p.k * p.n + p.m * p.n) * ITEM_SIZE[p.dtype];

/** @param {Problem} p */
function checkSizes(p) {
  for (const name of /** @type {const} */ (["m", "n", "k"])) {
    if (!Number.isInteger(p[name]) || p[name] < 1) throw new ProblemError(`${name} must be a whole number of at least 1`);
  }
  for (const [name, size] of [["A", p.m * p.k], ["B", p.k * p.n], ["C", p.m * p.n]]) {
    if (Number(size) > MAX_ELEMENTS) {
      throw new ProblemError(`${name} would have ${grouped(Number(size))} elements; a shader indexes at most 2³²`);
    }
  }
}

// Kernels

/** A stage at given tile sizes: what `webmm.kernels.base.Kernel` is in Python. */
export class Kernel {
  /** @param {KernelRow} stage @param {ConfigRow} row @param {string[]} flags */
  constructor(stage, row, flags) {
    this.stage = stage;
    this.row = row;
    this.flags = flags;
    this.name = stage.name;
    /** @type {Config} */
    this.config = Object.fromEntries(stage.tunables.map((tunable, i) => [tunable.name, row.config[i]]));
  }

  /** The kernel and what differs from its defaults. */
  get label() {
    const changed = this.stage.tunables.filter((t) => this.config[t.name] !== t.default);
    return [this.name, ...changed.map((t) => `${t.name}=${this.config[t.name]}`)].join(" ");
  }

  /** What matrix units must multiply, or null for a kernel that uses none. */
  get matrix() {
    return this.row.matrix;
  }

  get invocations() {
    return this.row.workgroup_size.reduce((product, size) => product * size, 1);
  }

  /** @param {Problem} p @returns {number} */
  tiles(p) {
    const { tile_m, tile_n, elements } = this.row.grid;
    return elements ? Math.ceil((p.m * p.n) / elements) : Math.ceil(p.m / tile_m) * Math.ceil(p.n / tile_n);
  }

  /** @param {Problem} p @param {number} most workgroups in a dimension @returns {[number, number, number]} */
  dispatch(p, most) {
    const { at_most } = this.row.grid;
    const count = at_most ? Math.min(this.tiles(p), at_most) : this.tiles(p);
    const y = Math.ceil(count / most);
    return [Math.ceil(count / y), y, 1];
  }

  /**
   * @param {Problem} p @param {number} loopLimit
   * @returns {number} the specialisation that fits, a bit per flag; as `Kernel.specialise` in Python
   */
  specialise(p, loopLimit) {
    const { grid, inner_step } = this.row;
    const [axisA, axisB] = this.stage.vector_axes;
    const whole = (/** @type {number} */ size) => size % this.stage.vector === 0;
    const ragged = grid.elements > 0 && (p.m * p.n) % grid.elements !== 0;
    /** @type {Record<string, boolean>} */
    const set = {
      vec_a: (axisA === "k" || axisA === "any") && whole(p.k) && whole(p.m * p.k),
      vec_b: (axisB === "n" || axisB === "any") && whole(p.n),
      vec_c: axisB !== "" && p.n % 4 === 0,
      edge_m: ragged || p.m % grid.tile_m !== 0,
      edge_n: ragged || p.n % grid.tile_n !== 0,
      edge_k: p.k % inner_step !== 0,
      long_k: inner_step === 1 && p.k > loopLimit,
    };
    return this.flags.reduce((bits, name, i) => bits | (set[name] ? 1 << i : 0), 0);
  }

  /** @param {Problem} p @returns {boolean} whether no tile hangs over an edge */
  fits(p) {
    const { grid, inner_step } = this.row;
    return p.m % grid.tile_m === 0 && p.n % grid.tile_n === 0 && p.k % inner_step === 0;
  }

  /**
   * The most special shader of the bundle that covers `p`: one with checks is right where none are needed, one for
   * single elements where vectors would do, but not the other way round.
   * @param {Problem} p @param {number} loopLimit
   * @returns {string | null} its file, or null if the bundle has none for this element type
   */
  shader(p, loopLimit) {
    const files = this.row.shaders[p.dtype];
    if (!files) return null;
    const needed = this.specialise(p, loopLimit);
    const vectors = this.flags.reduce((bits, name, i) => bits | (name.startsWith("vec") ? 1 << i : 0), 0);
    const covering = Object.keys(files).map(Number).filter((has) => {
      const more = has & ~needed;
      const less = needed & ~has;
      return (more & vectors) === 0 && (less & ~vectors) === 0;
    });
    if (covering.length === 0) return null;
    const distance = (/** @type {number} */ has) => bitCount(has ^ needed);
    return files[covering.reduce((best, has) => (distance(has) < distance(best) ? has : best))];
  }
}

/** @param {number} bits */
function bitCount(bits) {
  let count = 0;
  for (; bits; bits &= bits - 1) count++;
  return count;
}

// The bundle

/** Reads a file of the bundle as text. @typedef {(path: string) => Promise<string>} Loader */

/** The rendered shaders, and what is known about each. */
export class Bundle {
  /** @type {Map<string, Promise<string>>} */
  #texts = new Map();
  #read;

  /** @param {Index} index @param {(path: string) => Promise<ArrayBuffer>} read */
  constructor(index, read) {
    this.index = index;
    this.#read = read;
    /** @type {Map<string, Kernel[]>} every configuration of each stage, the default first */
    this.kernels = new Map(
      index.kernels.map((stage) => [stage.name, stage.configs.map((row) => new Kernel(stage, row, index.flags))]),
    );
  }

  /**
   * @param {string | URL} [base] the folder that holds index.json
   * @returns {Promise<Bundle>}
   */
  static async load(base = new URL("./bundle/", import.meta.url)) {
    const read = reader(base);
    const index = JSON.parse(new TextDecoder().decode(await read("index.json")));
    if (index.schema !== "webmm.bundle/1") throw new ConfigError(`this page cannot read a bundle of ${index.schema}`);
    return new Bundle(index, read);
  }

  /** @param {string} path below the bundle's folder @returns {Promise<ArrayBuffer>} */
  file(path) {
    return this.#read(path);
  }

  /** @param {string} path below the bundle's folder @returns {Promise<any>} */
  async json(path) {
    return JSON.parse(new TextDecoder().decode(await this.#read(path)));
  }

  /** @returns {string[]} the shaders that were asked for, as paths below the bundle's folder */
  get loaded() {
    return [...this.#texts.keys()].map((name) => `shaders/${name}.wgsl`);
  }

  /** @param {string} name @returns {Promise<string>} the WGSL text of a shader */
  wgsl(name) {
    let text = this.#texts.get(name);
    if (!text) {
      text = this.#read(`shaders/${name}.wgsl`).then((bytes) => new TextDecoder().decode(bytes));
      text.catch(() => this.#texts.delete(name)); // so that it can be asked for again
      this.#texts.set(name, text);
    }
    return text;
  }

  /** @param {string} name @returns {KernelRow} */
  stage(name) {
    const found = this.index.kernels.find((stage) => stage.name === name);
    if (!found) throw new ConfigError(`unknown kernel “${name}”; choose from ${[...this.kernels.keys()].join(", ")}`);
    return found;
  }

  /**
   * @param {string} name
   * @param {Config} [config] tunables that differ from the defaults
   * @returns {Kernel}
   */
  kernel(name, config = {}) {
    const stage = this.stage(name);
    const unknown = Object.keys(config).find((key) => !stage.tunables.some((t) => t.name === key));
    if (unknown) throw new ConfigError(`${name} has no tunable ${unknown}`);
    const found = this.carried(name, config);
    if (!found) {
      const settings = stage.tunables.map((t) => `${t.name}=${config[t.name] ?? t.default}`).join(", ");
      throw new ConfigError(`the bundle does not carry ${name} with ${settings}`);
    }
    return found;
  }

  /** @param {string} name @param {Config} config @returns {Kernel | undefined} as `kernel`, undefined where there is none such */
  carried(name, config) {
    const { tunables } = this.stage(name);
    return this.kernels.get(name)?.find((kernel) => tunables.every((t) => kernel.config[t.name] === (config[t.name] ?? t.default)));
  }
}

/** @param {string | URL} base @returns {(path: string) => Promise<ArrayBuffer>} */
function reader(base) {
  const folder = new URL(String(base).replace(/\/?$/, "/"), import.meta.url);
  return async (path) => {
    const url = new URL(path, folder);
    if (url.protocol === "file:") {
      // @ts-ignore: node, which does not fetch files
      const { readFile } = await import("node:fs/promises");
      const bytes = await readFile(url);
      return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
    }
    let response;
    try {
      response = await fetch(url);
    } catch (error) {
      throw new WebmmError(`${path} could not be loaded: you are offline, and it was not used before`, error);
    }
    if (!response.ok) throw new WebmmError(`${path} could not be loaded: the server says ${response.status}`);
    return response.arrayBuffer();
  };
}

// The device

/** A matrix that lives on a device. */
export class DeviceArray {
  /** @type {GPUBuffer | null} */
  #buffer;

  /** @param {Device} device @param {GPUBuffer} buffer @param {[number, number]} shape @param {DType} dtype */
  constructor(device, buffer, shape, dtype) {
    this.device = device;
    this.#buffer = buffer;
    this.shape = shape;
    this.dtype = dtype;
  }

  get rows() {
    return this.shape[0];
  }

  get columns() {
    return this.shape[1];
  }

  get buffer() {
    if (!this.#buffer) throw new ProblemError("this array was freed");
    return this.#buffer;
  }

  /** @returns {Promise<Matrix>} a copy in host memory */
  read() {
    return this.device.download(this);
  }

  /** Give the memory back; freeing twice is harmless. */
  free() {
    if (this.#buffer) this.device.recycle(this.#buffer);
    this.#buffer = null;
  }
}

const POOL_BYTES = 2 ** 30; // of freed buffers that are kept for the next arrays
const TOGETHER = 8; // dispatches per submission at most
const MAX_PLANS = 256;
const MAX_GROUPS = 64; // per plan

/**
 * A kernel made ready for a problem; `groups` are its bind groups, by the buffers bound.
 * @typedef {{pipeline: GPUComputePipeline, uniform: GPUBuffer, grid: [number, number, number],
 *   groups: Map<string, GPUBindGroup>, proven: boolean}} Plan
 * @typedef {{dtype: string, m: number, n: number, k: number, kernel: string, config: Config,
 *   gflops: number | null}} TunedRecord
 */

/** @type {WeakMap<GPUBuffer, number>} */
const numbers = new WeakMap();
let buffersSeen = 0;

/** @param {GPUBuffer} buffer @returns {number} the same for the same buffer */
function numberOf(buffer) {
  const known = numbers.get(buffer);
  if (known) return known;
  numbers.set(buffer, ++buffersSeen);
  return buffersSeen;
}

/** @param {Problem} p */
function nameOf(p) {
  return `${p.m} ${p.n} ${p.k} ${p.dtype}`;
}

/** An adapter opened for computing, with its limits, compiled pipelines and arrays. */
export class Device {
  /** @type {Map<string, Promise<GPUComputePipeline>>} */
  #pipelines = new Map();
  /** @type {string | null} */
  #loss = null;
  /** @type {string | null} */
  #failure = null;
  /** @type {RunRecord[]} */
  #learned = [];
  /** @type {Map<string, Kernel>} what was chosen, by problem */
  #choices = new Map();
  /** @type {Map<string, Plan>} what was prepared, by kernel and problem */
  #plans = new Map();
  /** @type {Map<number, GPUBuffer[]>} freed buffers, by size */
  #pool = new Map();
  #pooled = 0; // bytes in the pool
  #timed = -Infinity; // when anything was last timed, in ms
  /** @type {GPUCommandEncoder | null} dispatches that wait to be submitted together */
  #open = null;
  /** @type {GPUComputePassEncoder | null} */
  #pass = null;
  #waiting = 0;

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
    /** @type {Promise<string>} settles with the reason in words */
    this.lost = device.lost.then((info) => (this.#loss = lossInWords(info)));
    device.addEventListener?.("uncapturederror", (event) => {
      event.preventDefault();
      this.#failure = inWords(/** @type {GPUUncapturedErrorEvent} */ (event).error);
    });
  }

  /**
   * @param {{bundle?: Bundle | string | URL, gpu?: GPU, powerPreference?: GPUPowerPreference}} [options]
   * @returns {Promise<Device>}
   */
  static async open(options = {}) {
    const gpu = options.gpu ?? globalThis.navigator?.gpu;
    if (!gpu) throw new NoAdapterError("WebGPU is not available here");
    const loading = options.bundle instanceof Bundle ? options.bundle : Bundle.load(options.bundle);
    const adapter = await gpu.requestAdapter({ powerPreference: options.powerPreference ?? "high-performance" });
    if (!adapter) throw new NoAdapterError("WebGPU is available, but it found no adapter");
    /** @type {Record<string, number>} */
    const requiredLimits = {}; // unasked, a device has the specification's minimum
    for (const name of WANTED_LIMITS) requiredLimits[name] = adapter.limits[name];
    const requiredFeatures = WANTED_FEATURES.filter((feature) => adapter.features.has(feature));
    let device;
    try {
      device = await adapter.requestDevice({ requiredFeatures, requiredLimits });
    } catch (error) {
      throw new UnsupportedError(`the adapter gave no device: ${inWords(error)}`, error);
    }
    const opened = new Device(gpu, adapter, device, await loading);
    opened.spelling = await opened.#readSpelling();
    return opened;
  }

  /** @returns {Promise<string>} the first spelling in which the engine reads fragments that its matrix units multiply */
  async #readSpelling() {
    const halves = this.features.has("shader-f16");
    const fitting = this.bundle.index.fragments.filter((matrix) => !this.#lacksUnits(matrix) && (halves || matrix.operands !== "f16"));
    /** @type {Map<string, string>} one shader of each */
    const probes = new Map(fitting.map(({ spelling, shader }) => [spelling, shader]));
    for (const [spelling, shader] of probes) if (await this.#compiles(shader)) return spelling;
    return "";
  }

  /** @param {string} file of the bundle @returns {Promise<boolean>} whether the engine reads it */
  async #compiles(file) {
    const code = await this.bundle.wgsl(file).catch(() => ""); // offline, and not used before
    if (!code) return false;
    this.wgpu.pushErrorScope("validation");
    this.wgpu.createShaderModule({ code });
    return (await this.wgpu.popErrorScope()) === null;
  }

  /** Why the device is gone, or null while it works. */
  get loss() {
    return this.#loss;
  }

  /** Give the device back; its arrays and pipelines are gone. */
  close() {
    this.wgpu.destroy();
  }

  #alive() {
    if (this.#loss) throw new DeviceLostError(this.#loss);
  }

  /**
   * Run `work` and turn what the engine says meanwhile into webmm's errors.
   * @template T
   * @param {string} doing @param {() => T | Promise<T>} work @returns {Promise<T>}
   */
  async #guarded(doing, work) {
    this.#alive();
    this.wgpu.pushErrorScope("out-of-memory");
    this.wgpu.pushErrorScope("validation");
    let result, thrown;
    try {
      result = work();
    } catch (error) {
      thrown = error;
    }
    const scopes = [this.wgpu.popErrorScope(), this.wgpu.popErrorScope()];
    try {
      if (thrown) throw thrown;
      const value = await /** @type {T} */ (result);
      const [invalid, noMemory] = await Promise.all(scopes);
      if (noMemory) throw new MemoryLimitError(`${doing}: the device is out of memory; use smaller matrices`);
      if (invalid) throw new WebmmError(`${doing}: ${invalid.message}`);
      return value;
    } catch (error) {
      await settled();
      this.#alive();
      throw error instanceof WebmmError ? error : new WebmmError(`${doing}: ${inWords(error)}`, error);
    }
  }

  // Arrays

  /** @param {Matrix} matrix @returns {Promise<DeviceArray>} a copy on the device */
  async array(matrix) {
    const array = await this.empty(matrix.shape, matrix.dtype);
    await this.#guarded("uploading", () => this.write(array, matrix));
    return array;
  }

  /** @param {DeviceArray} array @param {Matrix} matrix */
  write(array, matrix) {
    this.flush(); // what was queued before reads what was there before
    let data = matrix.data;
    if (data.byteLength % 4) data = Uint16Array.from([...data, 0]); // copies are whole words
    this.wgpu.queue.writeBuffer(array.buffer, 0, data.buffer, data.byteOffset, data.byteLength);
  }

  /**
   * @param {[number, number]} shape @param {DType} [dtype]
   * @returns {Promise<DeviceArray>} an array of any contents: its buffer may have served another
   */
  async empty(shape, dtype = "float32") {
    const what = `a ${grouped(shape[0])}×${grouped(shape[1])} matrix`;
    return new DeviceArray(this, await this.buffer(shape[0] * shape[1] * ITEM_SIZE[dtype], what), shape, dtype);
  }

  /**
   * @param {number} bytes rounded up to whole vec4 @param {string} what needs them
   * @returns {Promise<GPUBuffer>} storage of any contents: it may have served before; `recycle` takes it back
   */
  async buffer(bytes, what) {
    const size = roundUp(bytes, 16);
    for (const limit of /** @type {const} */ (["maxBufferSize", "maxStorageBufferBindingSize"])) {
      if (size > this.limits[limit]) {
        throw new UnsupportedError(
          `${what} needs ${grouped(size)} bytes, ${this.info.name} allows ${grouped(this.limits[limit])} (${limit})`,
        );
      }
    }
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const pooled = this.#pool.get(size)?.pop();
    if (pooled) {
      this.#pooled -= size;
      return pooled;
    }
    const create = () => this.#guarded(`allocating ${grouped(size)} bytes`, () => this.wgpu.createBuffer({ size, usage }));
    try {
      return await create();
    } catch (error) {
      if (!(error instanceof MemoryLimitError) || !this.#pooled) throw error;
      this.#drain(); // what is kept for reuse may be what is missing
      return create();
    }
  }

  /** Give the pooled buffers back to the engine. */
  #drain() {
    this.flush(); // they may still be in use there
    for (const buffers of this.#pool.values()) for (const buffer of buffers) buffer.destroy();
    this.#pool.clear();
    this.#pooled = 0;
  }

  /**
   * Take a freed array's buffer back. A new one costs the engine a pass that clears it, a millisecond for 64 MiB.
   * @param {GPUBuffer} buffer
   */
  recycle(buffer) {
    if (this.#pooled + buffer.size > POOL_BYTES) {
      this.flush(); // it may still be in use there
      buffer.destroy();
      return;
    }
    const same = this.#pool.get(buffer.size) ?? [];
    same.push(buffer);
    this.#pool.set(buffer.size, same);
    this.#pooled += buffer.size;
  }

  /** @param {DeviceArray} array @returns {Promise<Matrix>} */
  async download(array) {
    const count = array.rows * array.columns;
    const bytes = await this.read(array.buffer, roundUp(count * ITEM_SIZE[array.dtype], 4));
    const data = array.dtype === "float16" ? new Uint16Array(bytes, 0, count) : new Float32Array(bytes, 0, count);
    return new Matrix(data, array.shape, array.dtype);
  }

  /** @param {GPUBuffer} buffer @param {number} size @returns {Promise<ArrayBuffer>} its first bytes, once all is computed */
  async read(buffer, size) {
    const bytes = await this.#read(buffer, size);
    this.#report();
    return bytes;
  }

  /** @param {GPUBuffer} buffer @param {number} size @returns {Promise<ArrayBuffer>} */
  async #read(buffer, size) {
    const staging = await this.#guarded("allocating a staging buffer", () =>
      this.wgpu.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST }),
    );
    try {
      return await this.#guarded("downloading", async () => {
        this.flush();
        const encoder = this.wgpu.createCommandEncoder();
        encoder.copyBufferToBuffer(buffer, 0, staging, 0, size);
        this.wgpu.queue.submit([encoder.finish()]);
        await staging.mapAsync(GPUMapMode.READ);
        return staging.getMappedRange().slice(0);
      });
    } finally {
      staging.destroy();
    }
  }

  // Eligibility and choice

  /**
   * @param {Kernel} kernel @param {Problem} p
   * @returns {string | null} why `kernel` cannot compute `p` here, or null
   */
  reason(kernel, p) {
    const reason = this.lacks({
      ...kernel.row,
      features: [...this.bundle.index.dtypes[p.dtype].features, ...kernel.row.features],
      binding: Math.max(p.m * p.k, p.k * p.n, p.m * p.n) * ITEM_SIZE[p.dtype],
      groups: Math.max(...kernel.dispatch(p, this.bundle.index.max_workgroups)),
    });
    if (reason || kernel.row.shaders[p.dtype]) return reason;
    const carried = Object.keys(kernel.row.shaders).join(", ");
    return carried === "float32" ? "the page carries this configuration for float32 only" : `multiplies ${carried}, not ${p.dtype}`;
  }

  /** @param {Needs} asked @returns {string | null} what of it this device does not have, or null */
  lacks({ features, subgroup, workgroup_size, workgroup_bytes, binding, groups, matrix }) {
    const name = this.info.name;
    const missing = features.filter((feature) => !this.features.has(feature));
    if (missing.length) {
      const advice = missing.flatMap((feature) => SWITCHES[feature] ?? []).join("; ");
      return `needs the feature ${missing.join(", ")}${advice ? `: ${advice}` : `, which ${name} does not have`}`;
    }
    const units = matrix && (this.#lacksUnits(matrix) ?? this.#misspells(matrix));
    if (units) return units;
    if (subgroup > this.info.subgroup) {
      return `needs subgroups of ${subgroup} lanes, ${name} has ${this.info.subgroup || "none"}`;
    }
    const [x, y, z] = workgroup_size;
    /** @type {[number, keyof GPUSupportedLimits, string][]} */
    const needs = [
      [x * y * z, "maxComputeInvocationsPerWorkgroup", "invocations per workgroup"],
      [x, "maxComputeWorkgroupSizeX", "invocations along x"],
      [y, "maxComputeWorkgroupSizeY", "invocations along y"],
      [z, "maxComputeWorkgroupSizeZ", "invocations along z"],
      [workgroup_bytes, "maxComputeWorkgroupStorageSize", "bytes of workgroup memory"],
      [binding, "maxStorageBufferBindingSize", "bytes in one binding"],
      [groups, "maxComputeWorkgroupsPerDimension", "workgroups in one dimension"],
    ];
    for (const [need, limit, what] of needs) {
      const has = Number(this.limits[limit]);
      if (need > has) return `needs ${grouped(need)} ${what}, ${name} has ${grouped(has)}`;
    }
    return null;
  }

  /** @param {Fragments} matrix @returns {string | null} why the matrix units here cannot multiply them, or null */
  #lacksUnits(matrix) {
    const { name, subgroup, subgroupMax } = this.info;
    if (!this.matrix.some((shape) => shapeInWords(shape) === shapeInWords(matrix))) {
      const offered = this.matrix.map(shapeInWords).join(", ") || "nothing";
      return `needs matrix units that multiply ${shapeInWords(matrix)}, those of ${name} multiply ${offered}`;
    }
    if (subgroup === matrix.lanes && subgroupMax === matrix.lanes) return null;
    return `needs subgroups of exactly ${matrix.lanes} lanes, ${name} has ${subgroup} to ${subgroupMax}`;
  }

  /** @param {Fragments} matrix @returns {string | null} why this engine does not read such a shader, or null */
  #misspells({ spelling }) {
    if (spelling === this.spelling) return null;
    return `is in the ${spelling} spelling of fragments, of which this engine reads ${this.spelling ? `the ${this.spelling} one` : "none"}`;
  }

  /**
   * @param {string} name
   * @param {Problem} [p]
   * @returns {Kernel} the configuration that stands for a stage on this device: for matrix units, with the largest fragments,
   *   and with the tiles that suit `p`
   */
  stage(name, p) {
    const configs = /** @type {Kernel[]} */ (this.bundle.kernels.get(name));
    const usual = configs[this.info.kind === "cpu" ? this.bundle.stage(name).light : 0];
    if (!usual.matrix) return usual;
    const size = (/** @type {Kernel} */ { matrix }) => (matrix ? matrix.m * matrix.n * matrix.k : 0);
    const able = configs.filter(({ matrix }) => matrix && !this.#lacksUnits(matrix) && !this.#misspells(matrix));
    const largest = able.reduce((best, kernel) => (size(kernel) > size(best) ? kernel : best), able[0] ?? usual);
    return (p && this.#onMatrixUnits(p).find((kernel) => kernel.name === name && !this.reason(kernel, p))) ?? largest;
  }

  /**
   * Prefer what was measured on this adapter: `choose` then takes the fastest record of the size nearest to a problem.
   * @param {RunRecord[]} records
   */
  learn(records) {
    this.#learned = records.filter((r) => r.status === "ok" && r.adapter === this.info.name && r.engine === this.info.engine);
    this.#choices.clear();
  }

  /** @param {Problem} p @returns {Kernel} the kernel to use where the caller does not say */
  choose(p) {
    const known = this.#choices.get(nameOf(p));
    if (known) return known;
    const reasons = [];
    for (const kernel of this.#candidates(p)) {
      const reason = this.reason(kernel, p);
      if (!reason) {
        this.#choices.set(nameOf(p), kernel);
        return kernel;
      }
      reasons.push(`${kernel.name} ${reason}`);
    }
    throw new UnsupportedError(`no kernel can compute ${p.m}×${p.n}×${p.k}: ${[...new Set(reasons)].join("; ")}`);
  }

  /** @param {Problem} p @returns {Kernel[]} */
  #candidates(p) {
    const { choices } = this.bundle.index;
    const rows = this.info.kind === "cpu" ? choices.cpu : choices.gpu;
    const listed = rows
      .filter((row) => !row.fitting || this.bundle.kernel(row.kernel, row.config).fits(p))
      .map((row) => this.bundle.kernel(row.kernel, row.config));
    const simple = [this.bundle.kernel("tile_2d"), this.bundle.kernel("naive")];
    const vendor = (this.info.vendor || this.info.name.split(" ")[0]).toLowerCase();
    const learned = this.#nearest(p, this.#learned);
    const shipped = this.#nearest(p, choices.tuned.filter((r) => r.vendor === vendor));
    if (this.info.kind === "cpu") return [...learned, ...shipped, ...listed, ...simple];
    const filling = listed.filter((kernel) => kernel.tiles(p) >= choices.enough_tiles);
    if (filling.length === 0) filling.push(listed[listed.length - 1]);
    const others = listed.filter((kernel) => !filling.includes(kernel));
    return [...learned, ...this.#onMatrixUnits(p), ...shipped, ...filling, ...others, ...simple];
  }

  /** @param {Problem} p @returns {Kernel[]} the kernels for matrix units, if they should win: `made_for_matrix_units` in Python */
  #onMatrixUnits(p) {
    const { matrix } = this.bundle.index.choices;
    const usual = this.stage(matrix.kernel);
    if (this.reason(usual, p) || Math.min(p.m, p.n) <= matrix.few) return [];
    const sizes = matrix.tiles.flatMap((tiles) => this.bundle.carried(usual.name, { ...usual.config, ...tiles }) ?? []);
    const last = sizes[sizes.length - 1];
    const enough = (/** @type {Kernel} */ kernel) => (kernel === last ? matrix.some_tiles : matrix.enough_tiles);
    const first = sizes.findIndex((kernel) => kernel.tiles(p) >= enough(kernel));
    return first < 0 ? [] : sizes.slice(first);
  }

  /** @param {Problem} p @param {TunedRecord[]} records @returns {Kernel[]} that of the nearest record, if any is near */
  #nearest(p, records) {
    const distance = (/** @type {TunedRecord} */ r) =>
      Math.abs(Math.log2(r.m / p.m)) + Math.abs(Math.log2(r.n / p.n)) + Math.abs(Math.log2(r.k / p.k));
    const [nearest] = records
      .filter((r) => r.dtype === p.dtype && distance(r) <= 3)
      .sort((r, s) => distance(r) - distance(s) || Number(s.gflops) - Number(r.gflops));
    try {
      return nearest ? [this.bundle.kernel(nearest.kernel, nearest.config)] : [];
    } catch {
      return []; // measured elsewhere, with tiles that this bundle does not carry
    }
  }

  // Running

  /**
   * A·B. Matrices give a matrix, resident arrays a resident array that the caller frees.
   * @template {Matrix | DeviceArray} T
   * @param {T} a @param {T} b
   * @param {{kernel?: Kernel | string, config?: Config}} [options]
   * @returns {Promise<T>}
   */
  async matmul(a, b, options = {}) {
    const p = problemOf(a, b);
    const kernel = options.kernel instanceof Kernel
      ? options.kernel
      : options.kernel ? this.bundle.kernel(options.kernel, options.config) : this.choose(p);
    const host = a instanceof Matrix && b instanceof Matrix;
    if (!host && (a instanceof Matrix || b instanceof Matrix)) {
      throw new ProblemError("one operand is on the device, the other is not; copy it with device.array(x)");
    }
    /** @type {DeviceArray[]} */
    const mine = [];
    try {
      const [x, y] = host
        ? [mine[0] = await this.array(/** @type {Matrix} */ (a)), mine[1] = await this.array(/** @type {Matrix} */ (b))]
        : [/** @type {DeviceArray} */ (a), /** @type {DeviceArray} */ (b)];
      const c = await this.empty([p.m, p.n], p.dtype);
      if (host) mine[2] = c;
      const plan = await this.#plan(kernel, p);
      const launch = [{ pipeline: plan.pipeline, bindGroup: await this.#group(plan, x, y, c), grid: plan.grid }];
      // The first time waits for the engine's verdict; later failures come with the result, or when waiting for it.
      if (plan.proven) this.#queue(launch);
      else await this.#guarded(kernel.name, () => this.submit(launch, 1));
      plan.proven = true;
      return /** @type {T} */ (host ? await c.read() : c);
    } finally {
      for (const array of mine) array?.free();
    }
  }

  /**
   * Make a kernel ready to compute `p` from `a` and `b` into `c`.
   * @param {Kernel} kernel @param {Problem} p @param {DeviceArray} a @param {DeviceArray} b @param {DeviceArray} c
   * @returns {Promise<Launch>}
   */
  async launch(kernel, p, a, b, c) {
    const plan = await this.#plan(kernel, p);
    return [{ pipeline: plan.pipeline, bindGroup: await this.#group(plan, a, b, c), grid: plan.grid }];
  }

  /** @param {Kernel} kernel @param {Problem} p @returns {Plan | Promise<Plan>} all that does not depend on the arrays */
  #plan(kernel, p) {
    this.#alive();
    return this.#plans.get(`${kernel.label} ${nameOf(p)}`) ?? this.#prepare(kernel, p);
  }

  /** @param {Kernel} kernel @param {Problem} p @returns {Promise<Plan>} */
  async #prepare(kernel, p) {
    checkSizes(p);
    const reason = this.reason(kernel, p);
    if (reason) throw new UnsupportedError(`${kernel.name}: ${reason}`);
    const { index } = this.bundle;
    const file = kernel.shader(p, index.loop_limit);
    if (!file) throw new UnsupportedError(`${kernel.name}: the page carries no shader for this problem`);
    const pipeline = await this.pipeline(file, kernel.label, index.bindings);
    const uniform = await this.#uniform(p);
    const grid = kernel.dispatch(p, index.max_workgroups);
    /** @type {Plan} */
    const plan = { pipeline, uniform, grid, groups: new Map(), proven: false };
    if (this.#plans.size >= MAX_PLANS) this.#plans.delete(/** @type {string} */ (this.#plans.keys().next().value));
    this.#plans.set(`${kernel.label} ${nameOf(p)}`, plan);
    return plan;
  }

  /** @param {Plan} plan @param {...DeviceArray} arrays @returns {GPUBindGroup | Promise<GPUBindGroup>} kept by buffers */
  #group(plan, ...arrays) {
    const buffers = arrays.map((array) => array.buffer);
    const key = buffers.map(numberOf).join(" ");
    const known = plan.groups.get(key);
    if (known) return known;
    const made = this.bind(plan.pipeline, [plan.uniform, ...buffers]);
    return made.then((group) => {
      if (plan.groups.size >= MAX_GROUPS) plan.groups.clear(); // they hold on to freed buffers
      plan.groups.set(key, group);
      return group;
    });
  }

  /** @param {Problem} p @returns {Promise<GPUBuffer>} the uniform of a dense row-major product */
  #uniform(p) {
    const { size, members } = this.bundle.index.params;
    const words = new Uint32Array(size / 4);
    /** @type {Record<string, number>} */
    const values = {
      m: p.m, n: p.n, k: p.k, lda: p.k, ldb: p.n, ldc: p.n,
      a_batch_stride: p.m * p.k, b_batch_stride: p.k * p.n, c_batch_stride: p.m * p.n,
    };
    for (const [name, offset] of Object.entries(members)) words[offset / 4] = values[name] ?? 0;
    return this.uniform(words);
  }

  /** @param {Uint32Array<ArrayBuffer>} words @returns {Promise<GPUBuffer>} a uniform that holds them */
  uniform(words) {
    return this.#guarded("allocating", () => {
      const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
      const buffer = this.wgpu.createBuffer({ size: words.byteLength, usage });
      this.wgpu.queue.writeBuffer(buffer, 0, words);
      return buffer;
    });
  }

  /** @param {GPUComputePipeline} pipeline @param {GPUBuffer[]} buffers by their bindings' numbers @returns {Promise<GPUBindGroup>} */
  bind(pipeline, buffers) {
    const entries = buffers.map((buffer, binding) => ({ binding, resource: { buffer } }));
    return this.#guarded("binding", () =>
      this.wgpu.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }),
    );
  }

  /**
   * @param {string} file of the bundle @param {string} label @param {Binding[]} bindings
   * @returns {Promise<GPUComputePipeline>} compiled once
   */
  pipeline(file, label, bindings) {
    this.#alive();
    let found = this.#pipelines.get(file);
    if (!found) {
      found = within(COMPILE_TIMEOUT, `compiling ${label}`, this.#compile(file, label, bindings));
      found.catch(() => this.#pipelines.delete(file));
      this.#pipelines.set(file, found);
    }
    return found;
  }

  /** @param {string} file @param {string} label @param {Binding[]} bindings */
  async #compile(file, label, bindings) {
    const code = await this.bundle.wgsl(file);
    this.#alive();
    this.wgpu.pushErrorScope("validation"); // else the engine reports the module's error to the console, too
    const module = this.wgpu.createShaderModule({ label, code });
    const scope = this.wgpu.popErrorScope();
    try {
      const entries = bindings.map((b) => ({ binding: b.binding, visibility: GPUShaderStage.COMPUTE, buffer: { type: b.type } }));
      const layout = this.wgpu.createPipelineLayout({ bindGroupLayouts: [this.wgpu.createBindGroupLayout({ entries })] });
      const compute = { module, entryPoint: this.bundle.index.entry_point };
      return await this.wgpu.createComputePipelineAsync({ label, layout, compute });
    } catch (error) {
      await settled();
      this.#alive();
      const refusal = (await scope)?.message ?? inWords(error);
      throw new ShaderError(`${label} was refused by the engine: ${refusal}`, error);
    }
  }

  /** @param {Launch} launch @param {number} count queue it this often, each in a pass of its own */
  submit(launch, count) {
    this.flush();
    const encoder = this.wgpu.createCommandEncoder();
    for (let i = 0; i < count; i++) encode(encoder, launch);
    this.wgpu.queue.submit([encoder.finish()]);
  }

  /**
   * Queue a dispatch. A submission of its own would cost the device some 12 µs (H200): those of one turn of the event loop,
   * or eight of them, go together.
   * @param {Launch} launch
   */
  #queue(launch) {
    if (!this.#pass) {
      this.#open = this.wgpu.createCommandEncoder();
      this.#pass = this.#open.beginComputePass();
      setTimeout(() => this.flush());
    }
    dispatch(this.#pass, launch);
    this.#waiting += 1;
    if (this.#waiting === TOGETHER) this.flush();
  }

  /** Submit what is queued. Happens by itself at the end of the event loop's turn, and before anything that depends on it. */
  flush() {
    if (!this.#open || !this.#pass) return;
    const encoder = this.#open;
    this.#pass.end();
    this.#open = this.#pass = null;
    this.#waiting = 0;
    if (!this.#loss) this.wgpu.queue.submit([encoder.finish()]);
  }

  /** Wait until everything that was queued is done; throws what went wrong since. */
  async synchronize() {
    this.flush();
    await this.#guarded("waiting", () => this.wgpu.queue.onSubmittedWorkDone());
    this.#report();
  }

  /** Throw what the engine reported since the last time, if anything. */
  #report() {
    const failure = this.#failure;
    this.#failure = null;
    if (failure) throw new WebmmError(failure);
  }

  // Timing: the rule of webmm/timing.py

  /**
   * Time a dispatch on the device: by timestamp queries where there are any, else by the wall clock.
   * @param {Launch} launch @param {number} [warmUp] seconds
   * @returns {Promise<Timing>}
   */
  async time(launch, warmUp = this.bundle.index.timing.warm_up) {
    const rule = this.bundle.index.timing;
    await this.synchronize();
    const cold = this.info.kind !== "cpu" && performance.now() - this.#timed > 1e3 * rule.cold;
    if (cold) warmUp += rule.wake;
    await this.#wall(launch, 1); // drivers compile at the first dispatch
    let estimate = await this.#wall(launch, 1);
    for (let spent = estimate; spent < warmUp; ) {
      const batch = clamp(Math.floor(rule.batch_time / estimate), 1, 1000);
      const elapsed = await this.#wall(launch, batch);
      estimate = elapsed / batch;
      spent += elapsed;
    }
    const samples = clamp(Math.floor(rule.sample_time / Math.max(estimate, 1e-9)), rule.min_samples, rule.max_samples);
    const batch = Math.max(1, Math.floor(rule.batch_time / estimate));
    const timing = await this.#sampled(launch, samples, batch);
    this.#timed = performance.now();
    return timing;
  }

  /** @param {Launch} launch @param {number} samples @param {number} batch @returns {Promise<Timing>} */
  async #sampled(launch, samples, batch) {
    const rule = this.bundle.index.timing;
    if (this.features.has("timestamp-query")) {
      const ticks = await this.#timestamps(launch, samples, 1);
      // Browsers may round timestamps to 0.1 ms: then a sample is as long as one by the wall clock.
      if (!isCoarse(ticks)) return summary(ticks, "timestamp");
      const longer = await this.#timestamps(launch, rule.min_samples + 4, batch);
      if (longer.every((seconds) => seconds > 0)) return summary(longer, "timestamp");
    }
    const walls = [];
    for (let i = 0; i < samples; i++) walls.push((await this.#wall(launch, batch)) / batch);
    return summary(walls, "wall");
  }

  /** @param {Launch} launch @param {number} count @returns {Promise<number>} seconds */
  async #wall(launch, count) {
    const start = performance.now();
    this.submit(launch, count);
    await this.synchronize();
    return Math.max((performance.now() - start) / 1e3, 1e-6);
  }

  /**
   * @param {Launch} launch @param {number} samples @param {number} batch dispatches per sample, each in its own pass
   * @returns {Promise<number[]>} seconds per dispatch
   */
  async #timestamps(launch, samples, batch) {
    const [queries, resolved] = await this.#guarded("timing", () => [
      this.wgpu.createQuerySet({ type: "timestamp", count: 2 * samples }),
      this.wgpu.createBuffer({ size: 16 * samples, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC }),
    ]);
    try {
      for (let i = 0; i < samples; i++) {
        const encoder = this.wgpu.createCommandEncoder();
        for (let j = 0; j < batch; j++) {
          /** @type {GPUComputePassTimestampWrites} */
          const writes = { querySet: queries };
          if (j === 0) writes.beginningOfPassWriteIndex = 2 * i;
          if (j === batch - 1) writes.endOfPassWriteIndex = 2 * i + 1;
          encode(encoder, launch, j === 0 || j === batch - 1 ? writes : undefined);
        }
        this.wgpu.queue.submit([encoder.finish()]);
      }
      const encoder = this.wgpu.createCommandEncoder();
      encoder.resolveQuerySet(queries, 0, 2 * samples, resolved, 0);
      this.wgpu.queue.submit([encoder.finish()]);
      const ticks = new BigInt64Array(await this.#read(resolved, 16 * samples));
      return Array.from({ length: samples }, (_, i) => Number(ticks[2 * i + 1] - ticks[2 * i]) / 1e9 / batch);
    } finally {
      queries.destroy();
      resolved.destroy();
    }
  }

  // Roofline: webmm/roofline.py

  /** @returns {Promise<Roofline>} measured ceilings; takes about a second */
  async roofline() {
    const { roofline } = this.bundle.index;
    const rows = this.info.kind === "cpu" ? roofline.cpu : roofline.gpu;
    let gflops = 0;
    const seed = new Matrix(new Float32Array(8).fill(0.5), [2, 4]);
    for (const row of rows.fma) {
      const launch = { file: row.shader, label: "fma", workgroups: row.workgroups, results: row.results };
      gflops = Math.max(gflops, row.flops / (await this.#microkernel(launch, seed)) / 1e3);
    }
    return { gflops, gbytes: await this.#copyRate(rows.copy) };
  }

  /** @param {RooflineRows["copy"]} row @returns {Promise<number>} 10⁹ bytes per second, read and written ones counted */
  async #copyRate(row) {
    let nbytes = Math.min(row.nbytes, this.limits.maxStorageBufferBindingSize, this.limits.maxBufferSize);
    for (; ; nbytes /= 2) {
      const vectors = Math.floor(nbytes / 16);
      const workgroups = Math.ceil(vectors / row.workgroup);
      try {
        const best = await this.#microkernel({ file: row.shader, label: "copy", workgroups, results: vectors }, null);
        return (2 * 16 * vectors) / best / 1e3;
      } catch (error) {
        if (!(error instanceof MemoryLimitError) || nbytes < 2 ** 24) throw error; // a phone has less to spare
      }
    }
  }

  /**
   * @param {{file: string, label: string, workgroups: number, results: number}} run
   * @param {Matrix | null} seed the input, or null for one as large as the output
   * @returns {Promise<number>} best time in µs
   */
  async #microkernel(run, seed) {
    const { roofline, max_workgroups } = this.bundle.index;
    const pipeline = await this.pipeline(run.file, run.label, roofline.bindings);
    const result = await this.empty([run.results, 4]);
    let source = null;
    try {
      source = seed ? await this.array(seed) : await this.empty([run.results, 4]);
      const bindGroup = await this.bind(pipeline, [source.buffer, result.buffer]);
      const y = Math.ceil(run.workgroups / max_workgroups);
      return (await this.time([{ pipeline, bindGroup, grid: [Math.ceil(run.workgroups / y), y, 1] }], COPY_WARM_UP)).best_us;
    } finally {
      source?.free();
      result.free();
    }
  }

  // Records

  /**
   * @param {{name: string, config: Config}} kernel @param {Task} p @param {Partial<RunRecord>} values
   * @returns {RunRecord}
   */
  record(kernel, p, values) {
    const { name, engine, backend, driver } = this.info;
    return {
      op: p.op ?? "gemm", kernel: kernel.name, m: p.m, n: p.n, k: p.k, batch: 1, dtype: p.dtype, layout: "nn", variant: p.variant ?? "", engine,
      adapter: name, backend, driver, version: this.bundle.index.version, config: kernel.config, status: "ok",
      reason: null, median_us: null, best_us: null, gflops: null, clock: null, max_error: null, error_bound: null,
      peak_fraction: null, ...values,
    };
  }
}

/** @param {GPUCommandEncoder} encoder @param {Launch} launch @param {GPUComputePassTimestampWrites} [timestampWrites] */
function encode(encoder, launch, timestampWrites) {
  const pass = encoder.beginComputePass(timestampWrites ? { timestampWrites } : {});
  dispatch(pass, launch);
  pass.end();
}

/** @param {GPUComputePassEncoder} pass @param {Launch} launch */
function dispatch(pass, launch) {
  for (const step of launch) {
    pass.setPipeline(step.pipeline);
    pass.setBindGroup(0, step.bindGroup);
    pass.dispatchWorkgroups(...step.grid);
  }
}

/**
 * @param {{rows: number, columns: number, dtype: DType}} a @param {{rows: number, columns: number, dtype: DType}} b
 * @returns {Problem}
 */
export function problemOf(a, b) {
  if (a.columns !== b.rows) {
    throw new ProblemError(
      `A is ${a.rows}×${a.columns} and B is ${b.rows}×${b.columns}: A needs as many columns as B has rows`,
    );
  }
  if (a.dtype !== b.dtype) throw new ProblemError(`A is ${a.dtype} and B is ${b.dtype}; convert one with .as("float32")`);
  const p = { m: a.rows, n: b.columns, k: a.columns, dtype: a.dtype };
  checkSizes(p);
  return p;
}

/** @param {number[]} seconds @param {"timestamp" | "wall"} clock @returns {Timing} */
function summary(seconds, clock) {
  const us = seconds.map((s) => s * 1e6).sort((x, y) => x - y);
  const at = (/** @type {number} */ q) => {
    const position = clamp(q * (us.length + 1) - 1, 0, us.length - 1); // as statistics.quantiles in Python
    const low = Math.floor(position);
    return us[low] + (position - low) * (us[Math.min(low + 1, us.length - 1)] - us[low]);
  };
  return { median_us: at(0.5), best_us: us[0], spread_us: at(0.75) - at(0.25), samples: us.length, clock };
}

/** @param {number[]} seconds @returns {boolean} whether the clock is too coarse for such samples */
function isCoarse(seconds) {
  // Chromium rounds to 0.1 ms, Dawn drops the last 16 bits of a nanosecond count.
  const rounded = [1e-4, 2 ** 16 * 1e-9].some((tick) =>
    Math.min(...seconds) < 50 * tick && seconds.every((s) => Math.abs(s / tick - Math.round(s / tick)) < 1e-6));
  return seconds.some((s) => s <= 0) || rounded;
}

/** @param {GPUDeviceLostInfo} info */
function lossInWords(info) {
  const message = info.message ? `: ${info.message}` : "";
  return info.reason === "destroyed" ? "the device was closed" : `the browser or driver gave the device up${message}`;
}

/** @param {GPUAdapter} adapter @returns {MatrixShape[]} what its matrix units multiply, the largest fragments first */
function matrixShapes(adapter) {
  const info = /** @type {{subgroupMatrixConfigs?: Iterable<any>}} */ (/** @type {unknown} */ (adapter.info));
  return [...(info.subgroupMatrixConfigs ?? [])]
    .map((c) => ({ operands: c.componentType, result: c.resultComponentType, m: c.M, n: c.N, k: c.K }))
    .sort((x, y) => y.m * y.n * y.k - x.m * x.n * x.k);
}

/** @param {MatrixShape} shape */
const shapeInWords = ({ m, n, k, operands, result }) => `${m}×${n}×${k} ${operands} into ${result}`;

/** @param {GPUAdapter} adapter */
function describe(adapter) {
  const info = /** @type {GPUAdapterInfo & {backend?: string, driver?: string, type?: string}} */ (adapter.info ?? {});
  const parts = [info.vendor, info.architecture].filter(Boolean).join(" ");
  const named = info.device && !/^0x/i.test(info.device); // in Dawn the device's name, and the driver's in its description
  const name = (named && info.device) || info.description || info.device || parts || "unnamed adapter";
  const software = /swiftshader|llvmpipe|lavapipe|basic render|software/i.test(`${parts} ${info.description}`);
  const kind = software || info.type?.toLowerCase() === "cpu" ? "cpu" : "gpu";
  return {
    name, kind: /** @type {"cpu" | "gpu"} */ (kind), vendor: info.vendor ?? "", architecture: info.architecture ?? "", backend: info.backend ?? "",
    driver: info.driver ?? (named ? info.description : ""), engine: engineName(), subgroup: info.subgroupMinSize ?? 0,
    subgroupMax: info.subgroupMaxSize ?? 0,
  };
}

/** @returns {string} what runs the shaders: browser and version, or node */
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

/**
 * @template T
 * @param {number} seconds @param {string} doing @param {Promise<T>} work
 * @returns {Promise<T>}
 */
export async function within(seconds, doing, work) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new TimeoutError(`${doing} took longer than ${seconds} s`)), seconds * 1e3);
  });
  try {
    return /** @type {T} */ (await Promise.race([work, late]));
  } finally {
    clearTimeout(timer);
  }
}

/** @returns {Promise<void>} after the engine has had its say, so that a loss is known by then */
const settled = () => new Promise((resolve) => setTimeout(resolve, 0));

/** @param {number} value @param {number} low @param {number} high */
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

/** @param {number} value @param {number} multiple */
const roundUp = (value, multiple) => Math.ceil(value / multiple) * multiple;
