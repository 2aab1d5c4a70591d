// @ts-check
/** Compiled pipelines, one of each shader of the bundle. */

import { ShaderError, inWords } from "../errors.js";
import { settled, within } from "./guard.js";

/** @typedef {import("../bundle.js").Binding} Binding */
const COMPILE_TIMEOUT = 60; // seconds
/** The pipelines of one device. */
export class Pipelines {
  /** @type {Map<string, Promise<GPUComputePipeline>>} */
  #kept = new Map();

  /** @param {import("./guard.js").Guard} guard @param {import("../bundle.js").Bundle} bundle */
  constructor(guard, bundle) {
    this.guard = guard;
    this.wgpu = guard.wgpu;
    this.bundle = bundle;
  }

  /**
   * @param {string} file of the bundle @param {string} label @param {Binding[]} bindings
   * @returns {Promise<GPUComputePipeline>} compiled once
   */
  async get(file, label, bindings) {
    return this.of(await this.bundle.wgsl(file), label, bindings);
  }

  /** @param {string} code WGSL @param {string} label @param {Binding[]} bindings @returns {Promise<GPUComputePipeline>} compiled once */
  of(code, label, bindings) {
    this.guard.alive();
    let found = this.#kept.get(code);
    if (!found) {
      found = within(COMPILE_TIMEOUT, `compiling ${label}`, this.#compile(code, label, bindings));
      found.catch(() => this.#kept.delete(code));
      this.#kept.set(code, found);
    }
    return found;
  }

  /** @param {string} code @param {string} label @param {Binding[]} bindings */
  async #compile(code, label, bindings) {
    this.guard.alive();
    this.wgpu.pushErrorScope("validation"); // else the engine reports the module's error to the console, too
    const module = this.wgpu.createShaderModule({ label, code });
    const scope = this.wgpu.popErrorScope();
    try {
      const entries = bindings.map((b) => ({ binding: b.binding, visibility: GPUShaderStage.COMPUTE, ...layoutOf(b) }));
      const layout = this.wgpu.createPipelineLayout({ bindGroupLayouts: [this.wgpu.createBindGroupLayout({ entries })] });
      const compute = { module, entryPoint: this.bundle.index.entry_point };
      return await this.wgpu.createComputePipelineAsync({ label, layout, compute });
    } catch (error) {
      await settled();
      this.guard.alive();
      const refusal = (await scope)?.message ?? inWords(error);
      throw new ShaderError(`${label} was refused by the engine: ${refusal}`, error);
    }
  }

  /** @param {string} file of the bundle @returns {Promise<boolean>} whether the engine reads it */
  async compiles(file) {
    const code = await this.bundle.wgsl(file).catch(() => ""); // offline, and not used before
    if (!code) return false;
    this.wgpu.pushErrorScope("validation");
    this.wgpu.createShaderModule({ code });
    return (await this.wgpu.popErrorScope()) === null;
  }
}

/** @param {Binding} binding @returns {{buffer: GPUBufferBindingLayout} | {storageTexture: GPUStorageTextureBindingLayout}} */
function layoutOf({ type, wgsl_type }) {
  if (!wgsl_type.startsWith("texture")) return { buffer: { type } };
  return { storageTexture: { access: /** @type {any} */ (type), format: "rgba32float", viewDimension: "2d-array" } };
}
