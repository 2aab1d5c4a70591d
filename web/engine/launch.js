/** Prepared launches: pipelines, bind groups and grids of a kernel on given arrays, cached for repeated calls. */

import { UnsupportedError } from "../errors.js";
import { Dict } from "../python.js";
import { once } from "./guard.js";
import { TURNS, sized } from "./pool.js";

/** @import { DeviceArray, Launch } from "../webmm.js" */
/** @import { Engine as Device } from "./engine.js" */
/** Translated kernels and problems, from bundle/core.js. @typedef {any} Kernel @typedef {any} Problem */

// Limits of the caches of a device:
const MAX_LAUNCHES = 1024; // launches, of steps and of whole plans, unless a plan has more
const MOST_LAUNCHES = 8192; // launches in any case
const MAX_UNIFORMS = 512; // uniform buffers
const MAX_TOKENS = 4096; // tokens of (kernel, problem) pairs
const MAX_SCRATCH = 8; // scratch buffers and textures between the dispatches of a launch, shared by all launches

/** The cache of prepared launches of one device, with the uniform buffers and scratch memory that they share. */
export class Launches {
  /** @type {Map<any, any>} launches in a map of maps, so that a lookup builds no text: by what they do, by the first buffer, by the second … */
  #kept = new Map();
  #size = 0;
  /** @type {Map<string, Promise<GPUBuffer>>} */
  #uniforms = new Map();
  /** @type {Map<string, Promise<GPUBindingResource>>} */
  #scratch = new Map();
  #tokens = new Dict();
  next = 0; // the next token
  #limit = MAX_LAUNCHES;

  /** @param {Device} device */
  constructor(device) {
    this.device = device;
  }

  /** A number that identifies a kernel and a problem: comparing them takes longer than all else that a repeated call does. @param {Kernel} kernel @param {Problem} problem @returns {number} */
  token(kernel, problem) {
    const key = [kernel, problem];
    const known = this.#tokens.get(key);
    if (known !== undefined) return known;
    if (this.#tokens.size >= MAX_TOKENS) this.#tokens.clear(); // launches and plans with older tokens stay valid
    this.#tokens.set(key, this.next);
    return this.next++;
  }

  /** @param {number} token @param {GPUBuffer[]} buffers @returns {Launch | undefined} the cached launch */
  kept(token, buffers) {
    let found = this.#kept.get(token);
    for (let i = 0; i < buffers.length && found; i++) found = found.get(buffers[i]);
    return found;
  }

  /** Cache a launch. @param {number} token @param {GPUBuffer[]} buffers at least one, and as many for all launches of the token @param {Launch} launch */
  keep(token, buffers, launch) {
    if (this.#size >= this.#limit) this.#clear();
    let at = this.#kept;
    for (const key of [token, ...buffers.slice(0, -1)]) {
      if (!at.has(key)) at.set(key, new Map());
      at = at.get(key);
    }
    at.set(buffers[buffers.length - 1], launch);
    this.#size += 1;
  }

  /**
   * Return the launch of `kernel` for `problem`, with an array for each of `problem.buffers()`; prepare it if it is not cached.
   * @param {Kernel} kernel @param {Problem} problem @param {DeviceArray[]} arrays
   * @returns {Promise<Launch>} throws ProblemError if the arrays do not fit, UnsupportedError if the kernel cannot run
   */
  async get(kernel, problem, arrays) {
    const { core, choices } = this.device;
    core.check_arrays(problem, arrays, this.device);
    const buffers = arrays.map((array) => array.buffer);
    const token = this.token(kernel, problem);
    const known = this.kept(token, buffers);
    if (known) return known;
    const reason = core.refused(kernel, problem, choices.now());
    if (reason) throw new UnsupportedError(`${kernel.name}: ${reason}`);
    return this.prepare(token, kernel, problem, buffers);
  }

  /** Make room for a plan and its `count` launches in each buffer through which its results rotate: with less, each replay would clear what the next one needs. @param {number} count */
  reserve(count) {
    this.#limit = Math.max(this.#limit, Math.min((count + 1) * (TURNS + 1), MOST_LAUNCHES));
  }

  #clear() {
    this.#kept.clear();
    this.#size = 0;
  }

  /** Prepare a launch, and cache it. @param {number} token @param {Kernel} kernel @param {Problem} problem @param {GPUBuffer[]} buffers of arrays that were checked @returns {Promise<Launch>} */
  async prepare(token, kernel, problem, buffers) {
    const { core, bundle, capabilities, limits, pipelines } = this.device;
    const most = Math.min(limits.maxStorageBufferBindingSize, core.INDEX_LIMIT);
    /** @type {Map<string, GPUBindingResource>} */
    const resources = new Map();
    const firsts = problem.buffers().map((/** @type {any} */ extent, /** @type {number} */ i) => {
      const [offset, size, first] = extent.binding(buffers[i].size, most);
      resources.set(extent.name, { buffer: buffers[i], offset, size });
      return first;
    });
    const placed = problem.within(firsts);
    for (const scratch of kernel.scratch(placed)) resources.set(scratch.name, await this.#scratchFor(scratch));
    const launch = [];
    for (const each of kernel.dispatches) {
      const shader = await bundle.shader(each, placed, core.pinned(each, capabilities));
      const pipeline = await pipelines.of(shader.wgsl, each.name, shader.bindings);
      const uniform = { buffer: await this.uniform(core.params_bytes(each, placed)) };
      const bound = shader.bindings.slice(1).map((/** @type {any} */ binding) => resources.get(binding.name));
      launch.push({ pipeline, bindGroup: await this.bind(pipeline, [uniform, ...bound]), grid: each.dispatch(placed) });
    }
    this.keep(token, buffers, launch);
    return launch;
  }

  /** @param {any} scratch @returns {Promise<GPUBindingResource>} a buffer or texture of this description; launches can share it, as each writes it before reading it */
  #scratchFor(scratch) {
    const { guard, wgpu } = this.device;
    const create = () => {
      const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC;
      if ("nbytes" in scratch) return { buffer: wgpu.createBuffer({ size: sized(scratch.nbytes), usage }) };
      const size = [scratch.width, scratch.height, scratch.layers];
      const texture = wgpu.createTexture({ size, format: "rgba32float", usage: GPUTextureUsage.STORAGE_BINDING });
      return texture.createView({ dimension: "2d-array" });
    };
    const allocating = () => guard.using(`allocating ${scratch.name}`, create);
    const forgotten = () => this.#clear(); // launches hold a reference to the memory
    return once(this.#scratch, JSON.stringify(scratch), allocating, MAX_SCRATCH, forgotten);
  }

  /** @param {ArrayBufferView<ArrayBuffer>} data @returns {Promise<GPUBuffer>} a uniform buffer with these contents; equal contents share a buffer */
  uniform(data) {
    const { guard, wgpu } = this.device;
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    const create = () => {
      const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
      const buffer = wgpu.createBuffer({ size: bytes.byteLength, usage });
      wgpu.queue.writeBuffer(buffer, 0, bytes);
      return buffer;
    };
    return once(this.#uniforms, bytes.join(), () => guard.using("allocating", create), MAX_UNIFORMS);
  }

  /** @param {GPUComputePipeline} pipeline @param {GPUBindingResource[]} resources in the order of their binding numbers @returns {Promise<GPUBindGroup>} */
  bind(pipeline, resources) {
    const { guard, wgpu } = this.device;
    const entries = resources.map((resource, binding) => ({ binding, resource }));
    return guard.using("binding", () => wgpu.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
  }
}
