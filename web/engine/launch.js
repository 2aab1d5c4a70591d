// @ts-check
/** Prepared launches: pipelines, bind groups and grids of a kernel on given arrays, cached for repeated calls. */

import { checkSeparate } from "./array.js";
import { UnsupportedError } from "../errors.js";
import { Dict } from "../python.js";
import { TURNS } from "./pool.js";

/** @import { DeviceArray } from "./array.js" */
/** @import { Engine as Device } from "./engine.js" */
/** @import { Launch } from "./submissions.js" */
/** Translated kernels and problems, from bundle/core.js. @typedef {any} Kernel @typedef {any} Problem */

// Limits of the caches of a device:
const MAX_LAUNCHES = 512; // launches, unless a plan has more
const MOST_LAUNCHES = 8192; // launches in any case
const MAX_TOKENS = 4096; // tokens of (kernel, problem) pairs
const MAX_SCRATCH = 8; // scratch buffers and textures between the dispatches of a launch, shared by all launches

/** A cache of launches keyed by their buffers, in order, or by a token and these; a lookup builds no text. */
export class ByBuffers {
  /** @type {Map<any, any>} a map of maps: keyed by the first key, then by the second … */
  #kept = new Map();
  size = 0;

  /** @param {(number | GPUBuffer)[]} keys at least one @returns {Launch | undefined} */
  get(keys) {
    let found = this.#kept;
    for (let i = 0; i < keys.length && found; i++) found = found.get(keys[i]);
    return /** @type {any} */ (found);
  }

  /** @param {(number | GPUBuffer)[]} keys as many for all entries of the same first key @param {Launch} launch */
  set(keys, launch) {
    let at = this.#kept;
    for (const key of keys.slice(0, -1)) {
      if (!at.has(key)) at.set(key, new Map());
      at = at.get(key);
    }
    at.set(keys[keys.length - 1], launch);
    this.size += 1;
  }

  clear() {
    this.#kept.clear();
    this.size = 0;
  }
}

/** The cache of prepared launches of one device, with the uniform buffers and scratch memory that they share. */
export class Launches {
  #kept = new ByBuffers();
  /** @type {Map<string, GPUBuffer>} */
  #uniforms = new Map();
  /** @type {Map<string, GPUBuffer | GPUTextureView>} */
  #scratch = new Map();
  #tokens = new Dict();
  #next = 0;
  #limit = MAX_LAUNCHES;
  dropped = 0; // how often the cache was cleared

  /** @param {Device} device */
  constructor(device) {
    this.device = device;
  }

  /**
   * A number that identifies a kernel and a problem: comparing the two by value would take longer than everything else
   * that a repeated call does.
   * @param {Kernel} kernel @param {Problem} problem @returns {number}
   */
  token(kernel, problem) {
    const key = [kernel, problem];
    if (!this.#tokens.has(key)) {
      if (this.#tokens.size >= MAX_TOKENS) this.#tokens.clear(); // launches and plans with older tokens stay valid
      this.#tokens.set(key, this.#next++);
    }
    return this.#tokens.get(key);
  }

  /** @param {number} token @param {GPUBuffer[]} buffers @returns {Launch | undefined} the cached launch */
  kept(token, buffers) {
    return this.#kept.get([token, ...buffers]);
  }

  /**
   * Return the launch of `kernel` for `problem`, with an array for each of `problem.buffers()`; prepare it if it is not cached.
   * @param {Kernel} kernel @param {Problem} problem @param {DeviceArray[]} arrays
   * @returns {Promise<Launch>} throws ProblemError if the arrays do not fit, UnsupportedError if the kernel cannot run
   */
  async get(kernel, problem, arrays) {
    this.#checkArrays(problem, arrays);
    const buffers = arrays.map((array) => array.buffer);
    const token = this.token(kernel, problem);
    const known = this.kept(token, buffers);
    if (known) return known;
    const reason = this.device.choices.refused(kernel, problem);
    if (reason) throw new UnsupportedError(`${kernel.name}: ${reason}`);
    return this.prepare(token, kernel, problem, buffers);
  }

  /** Prepare a launch, and cache it. @param {number} token @param {Kernel} kernel @param {Problem} problem @param {GPUBuffer[]} buffers of arrays that were checked @returns {Promise<Launch>} */
  async prepare(token, kernel, problem, buffers) {
    const launch = await this.#prepare(kernel, problem, buffers);
    if (this.#kept.size >= this.#limit) this.#clear();
    this.#kept.set([token, ...buffers], launch);
    return launch;
  }

  /** Make room for a plan of `count` launches in each buffer through which its results rotate: with less, each replay would clear what the next one needs. @param {number} count */
  reserve(count) {
    this.#limit = Math.max(this.#limit, Math.min(count * (TURNS + 1), MOST_LAUNCHES));
  }

  #clear() {
    this.#kept.clear();
    this.dropped += 1;
  }

  /** @param {Kernel} kernel @param {Problem} problem @param {GPUBuffer[]} buffers @returns {Promise<Launch>} */
  async #prepare(kernel, problem, buffers) {
    const { core } = this.device;
    const most = Math.min(this.device.limits.maxStorageBufferBindingSize, core.INDEX_LIMIT);
    /** @type {Map<string, GPUBindingResource>} */
    const resources = new Map();
    const firsts = problem.buffers().map((/** @type {any} */ extent, /** @type {number} */ i) => {
      const [offset, size, first] = extent.binding(buffers[i].size, most);
      resources.set(extent.name, { buffer: buffers[i], offset, size });
      return first;
    });
    const placed = problem.within(firsts);
    for (const scratch of kernel.scratch(placed)) resources.set(scratch.name, await this.#scratchFor(scratch));
    /** @type {Launch} */
    const launch = [];
    for (const each of kernel.dispatches) {
      const pinned = core.pinned(each, this.device.capabilities);
      const shader = await this.device.bundle.shader(each, placed, pinned);
      const pipeline = await this.device.pipelines.of(shader.wgsl, each.name, shader.bindings);
      const uniform = { buffer: await this.uniform(core.params_bytes(each, placed)) };
      const bound = shader.bindings.slice(1).map((/** @type {any} */ binding) => resources.get(binding.name));
      launch.push({ pipeline, bindGroup: await this.bind(pipeline, [uniform, ...bound]), grid: each.dispatch(placed) });
    }
    return launch;
  }

  /** @param {any} scratch @returns {Promise<GPUBindingResource>} a buffer or texture of this description; launches can share it, as each writes it before reading it */
  async #scratchFor(scratch) {
    const key = JSON.stringify(scratch);
    let made = this.#scratch.get(key);
    if (!made) {
      made = await this.device.guard.using(`allocating ${scratch.name}`, () =>
        "nbytes" in scratch ? this.#buffer(scratch.nbytes) : this.#texture(scratch),
      );
      this.#scratch.set(key, made);
      if (this.#scratch.size > MAX_SCRATCH) {
        this.#scratch.delete(/** @type {string} */ (this.#scratch.keys().next().value));
        this.#clear(); // launches hold a reference to the memory
      }
    }
    return made instanceof GPUBuffer ? { buffer: made } : made;
  }

  /** @param {number} nbytes */
  #buffer(nbytes) {
    return this.device.wgpu.createBuffer({
      size: Math.max(16, Math.ceil(nbytes / 16) * 16),
      usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC,
    });
  }

  /** @param {{width: number, height: number, layers: number}} scratch */
  #texture({ width, height, layers }) {
    const size = [width, height, layers];
    return this.device.wgpu
      .createTexture({ size, format: "rgba32float", usage: GPUTextureUsage.STORAGE_BINDING })
      .createView({ dimension: "2d-array" });
  }

  /** @param {ArrayBufferView<ArrayBuffer>} data @returns {Promise<GPUBuffer>} a uniform buffer with these contents; equal contents share a buffer */
  async uniform(data) {
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    const key = bytes.join();
    const known = this.#uniforms.get(key);
    if (known) return known;
    const made = await this.device.guard.using("allocating", () => {
      const buffer = this.device.wgpu.createBuffer({
        size: bytes.byteLength,
        usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
      });
      this.device.wgpu.queue.writeBuffer(buffer, 0, bytes);
      return buffer;
    });
    if (this.#uniforms.size >= MAX_LAUNCHES)
      this.#uniforms.delete(/** @type {string} */ (this.#uniforms.keys().next().value));
    this.#uniforms.set(key, made);
    return made;
  }

  /** @param {GPUComputePipeline} pipeline @param {GPUBindingResource[]} resources in the order of their binding numbers @returns {Promise<GPUBindGroup>} */
  bind(pipeline, resources) {
    const entries = resources.map((resource, binding) => ({ binding, resource }));
    return this.device.guard.using("binding", () =>
      this.device.wgpu.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }),
    );
  }

  /** Throw ProblemError if the arrays do not fit the problem. @param {Problem} problem @param {DeviceArray[]} arrays */
  #checkArrays(problem, arrays) {
    const extents = problem.buffers();
    this.device.core.check_buffers(problem, extents, arrays, this.device);
    arrays.forEach((array, i) => {
      const { name, written } = extents[i];
      const others = arrays.map((other, at) => [extents[at].name, other]).filter((_, at) => at !== i);
      if (written) checkSeparate(name, array, Object.fromEntries(others));
    });
  }
}
