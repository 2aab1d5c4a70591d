/** Compiled pipelines, cached by their WGSL. */

import { ShaderError, inWords } from "../errors.js";
import { once, settled, within } from "./guard.js";

/** @import { Binding } from "../bundle.js" */
const COMPILE_TIMEOUT = 60; // seconds
/** The pipeline cache of one device. */
export class Pipelines {
  /** @type {Map<string, Promise<GPUComputePipeline>>} */
  #kept = new Map();

  /** @param {import("./guard.js").Guard} guard @param {string} entryPoint */
  constructor(guard, entryPoint) {
    this.guard = guard;
    this.wgpu = guard.wgpu;
    this.entryPoint = entryPoint;
  }

  /** How many were compiled. */
  get count() {
    return this.#kept.size;
  }

  /** Compile a shader, unless it was compiled before. Throws ShaderError, or TimeoutError after 60 s. @param {string} code @param {string} label for messages @param {Binding[]} bindings */
  of(code, label, bindings) {
    this.guard.alive();
    const compiling = () => within(COMPILE_TIMEOUT, `compiling ${label}`, this.#compile(code, label, bindings));
    return once(this.#kept, code, compiling);
  }

  /** @param {string} code @param {string} label @param {Binding[]} bindings */
  async #compile(code, label, bindings) {
    this.wgpu.pushErrorScope("validation"); // keeps the engine from reporting the module's error on the console as well
    const module = this.wgpu.createShaderModule({ label, code });
    const scope = this.wgpu.popErrorScope();
    try {
      const group = this.wgpu.createBindGroupLayout({ entries: bindings.map(entryOf) });
      const layout = this.wgpu.createPipelineLayout({ bindGroupLayouts: [group] });
      const compute = { module, entryPoint: this.entryPoint };
      return await this.wgpu.createComputePipelineAsync({ label, layout, compute });
    } catch (error) {
      await settled();
      this.guard.alive();
      const refusal = (await complaint(module, code)) ?? (await scope)?.message ?? inWords(error);
      throw new ShaderError(`${label} was refused by the engine: ${refusal}`, error);
    }
  }

  /** @param {string} code @returns {Promise<boolean>} whether the engine accepts this WGSL */
  async compiles(code) {
    this.wgpu.pushErrorScope("validation");
    this.wgpu.createShaderModule({ code });
    return (await this.wgpu.popErrorScope()) === null;
  }
}

/** @param {GPUShaderModule} module @param {string} code @returns {Promise<string | null>} the compiler's first error with the line that it means, as in Python; null if the text is valid */
async function complaint(module, code) {
  const { messages } = await module.getCompilationInfo();
  const found = messages.find(({ type }) => type === "error");
  if (!found) return null;
  const { lineNum, message } = found;
  if (!lineNum) return message;
  const [first, ...more] = message.split("\n");
  const quoted = `  line ${lineNum}: ${(code.split("\n")[lineNum - 1] ?? "").trim()}`;
  return [`line ${lineNum}: ${first}`, quoted, ...more.map((line) => `    ${line}`)].join("\n").trimEnd();
}

/** @param {Binding} binding @returns {GPUBindGroupLayoutEntry} */
function entryOf({ binding, type }) {
  const visibility = GPUShaderStage.COMPUTE;
  if (type !== "write-only" && type !== "read-only") return { binding, visibility, buffer: { type } };
  return { binding, visibility, storageTexture: { access: type, format: "rgba32float", viewDimension: "2d-array" } };
}
