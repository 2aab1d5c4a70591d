// @ts-check
/** Dispatches made ready: pipeline, bind group and grid of a kernel on given arrays, kept for the next same call. */

import { UnsupportedError } from "../errors.js";
import { checkSizes } from "../problems.js";

/** @typedef {import("../kernels.js").Kernel} Kernel */
/** @typedef {import("../problems.js").Problem} Problem */
/** @typedef {import("./array.js").DeviceArray} DeviceArray */
/** @typedef {import("./device.js").Device} Device */
/** @typedef {import("./submissions.js").Launch} Launch */
/**
 * A kernel made ready for a problem; `groups` are its bind groups, by the buffers bound.
 * @typedef {{pipeline: GPUComputePipeline, uniform: GPUBuffer, grid: [number, number, number],
 *   groups: Map<string, GPUBindGroup>, proven: boolean}} Plan
 */

const MAX_PLANS = 256;
const MAX_GROUPS = 64; // per plan

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
export function nameOf(p) {
  return `${p.m} ${p.n} ${p.k} ${p.dtype}`;
}
/** The plans of one device. */
export class Launches {
  /** @type {Map<string, Plan>} by kernel and problem */
  #plans = new Map();

  /** @param {Device} device */
  constructor(device) {
    this.device = device;
  }

  /** @param {Kernel} kernel @param {Problem} p @returns {Plan | Promise<Plan>} all that does not depend on the arrays */
  plan(kernel, p) {
    this.device.guard.alive();
    return this.#plans.get(`${kernel.label} ${nameOf(p)}`) ?? this.#prepare(kernel, p);
  }

  /** @param {Kernel} kernel @param {Problem} p @returns {Promise<Plan>} */
  async #prepare(kernel, p) {
    checkSizes(p);
    const reason = this.device.reason(kernel, p);
    if (reason) throw new UnsupportedError(`${kernel.name}: ${reason}`);
    const { index } = this.device.bundle;
    const file = kernel.shader(p, index.loop_limit);
    if (!file) throw new UnsupportedError(`${kernel.name}: the page carries no shader for this problem`);
    const pipeline = await this.device.pipeline(file, kernel.label, index.bindings);
    const uniform = await this.#uniform(p);
    const grid = kernel.dispatch(p, index.max_workgroups);
    /** @type {Plan} */
    const plan = { pipeline, uniform, grid, groups: new Map(), proven: false };
    if (this.#plans.size >= MAX_PLANS) this.#plans.delete(/** @type {string} */ (this.#plans.keys().next().value));
    this.#plans.set(`${kernel.label} ${nameOf(p)}`, plan);
    return plan;
  }

  /** @param {Plan} plan @param {...DeviceArray} arrays @returns {GPUBindGroup | Promise<GPUBindGroup>} kept by buffers */
  group(plan, ...arrays) {
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
    const { size, members } = this.device.bundle.index.params;
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
    return this.device.guard.using("allocating", () => {
      const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
      const buffer = this.device.wgpu.createBuffer({ size: words.byteLength, usage });
      this.device.wgpu.queue.writeBuffer(buffer, 0, words);
      return buffer;
    });
  }

  /** @param {GPUComputePipeline} pipeline @param {GPUBuffer[]} buffers by their bindings' numbers @returns {Promise<GPUBindGroup>} */
  bind(pipeline, buffers) {
    const entries = buffers.map((buffer, binding) => ({ binding, resource: { buffer } }));
    return this.device.guard.using("binding", () =>
      this.device.wgpu.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }),
    );
  }
}
