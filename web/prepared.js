// @ts-check
/**
 * Ladders of other ops, as `webmm/prepared.py` wrote them: which dispatches each stage takes, with their uniforms and
 * workgroup counts. What they compute is not known here: inputs are drawn as Python drew them, and the result's
 * fingerprint must be the one that Python's result has.
 */

import { breathe } from "./check.js";
import { toHalf } from "./half.js";

/** @typedef {import("./webmm.js").Device} Device */
/** @typedef {import("./webmm.js").Binding} Binding */
/** @typedef {import("./webmm.js").Task} Task */
/** @typedef {import("./bench.js").Verdict} Verdict */
/** @typedef {{name: string, dtype: string, count: number, start: number, low: number, high: number}} Input */
/** @typedef {{shader: string, params: number[], grid: [number, number, number]}} PreparedStep */
/**
 * @typedef {{
 *   name: string, label: string, summary: string, config: import("./webmm.js").Config, features: string[],
 *   subgroup: number, matrix: import("./webmm.js").Fragments | null, workgroup_size: [number, number, number], workgroup_bytes: number,
 *   scratch: Record<string, number>, steps: PreparedStep[],
 * }} PreparedStage
 */
/**
 * @typedef {Task & {
 *   op: string, flops: number, inputs: Input[], result: {name: string, count: number, itemsize: 1 | 2 | 4},
 *   fingerprint: number, stages: PreparedStage[],
 * }} PreparedProblem
 */
/** @typedef {{title: string, gpu: PreparedProblem[], cpu: PreparedProblem[]}} PreparedLadder */
/** @typedef {{ladders: PreparedLadder[], bindings: Record<string, Binding[]>}} Prepared `bindings` are by shader */

const CHUNK = 2 ** 20; // elements between breaths
const WORDS = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array };
const ARRAYS = { float32: Float32Array, float16: Uint16Array, uint8: Uint8Array, int8: Int8Array };

/** @param {number} x @returns {number} a hash of 32 bits (Wellons' lowbias32) */
function mix(x) {
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
  return (x ^ (x >>> 16)) >>> 0;
}

/** @param {string} dtype */
const arrayOf = (dtype) => ARRAYS[/** @type {keyof typeof ARRAYS} */ (dtype)];

/** @param {Input} input */
const bytesOf = ({ dtype, count }) => count * arrayOf(dtype).BYTES_PER_ELEMENT;

/** @param {Input} input @returns {Promise<ArrayBuffer>} its elements, padded to whole words */
export async function draw(input) {
  const { dtype, count, start, low, high } = input;
  const bytes = new ArrayBuffer(Math.ceil(bytesOf(input) / 4) * 4);
  const elements = new (arrayOf(dtype))(bytes);
  const stored = dtype === "float16" ? toHalf : (/** @type {number} */ value) => value;
  for (let i = 0; i < count; i++) {
    elements[i] = stored(low + (mix(i + start) % (high - low + 1)));
    if (i % CHUNK === CHUNK - 1) await breathe();
  }
  return bytes;
}

/** @param {Uint8Array | Uint16Array | Uint32Array} bits of each element @returns {number} 32 bits, by all of them and their places */
export function fingerprint(bits) {
  let sum = 0;
  for (let i = 0; i < bits.length; i++) sum = (sum + mix(bits[i] ^ mix(i))) >>> 0;
  return sum;
}

/** A prepared problem on a device: a `Case` of bench.js. */
export class PreparedCase {
  /** @type {Map<string, GPUBuffer>} */
  #inputs = new Map();

  /** @param {Device} device @param {Prepared} prepared @param {PreparedProblem} problem @param {PreparedProblem[]} others of its kind */
  constructor(device, prepared, problem, others) {
    this.device = device;
    this.prepared = prepared;
    this.problem = problem;
    this.others = others;
  }

  /** What a ladder shows: of stages of one label, made for different matrix units or subgroups, the first that can run. */
  get stages() {
    const all = this.problem.stages;
    return [...new Set(all.map(({ label }) => label))].map((label) => {
      const alike = all.filter((stage) => stage.label === label);
      return alike.find((stage) => !this.reason(stage)) ?? alike[0];
    });
  }

  /** Draw the inputs and copy them to the device. */
  async load() {
    try {
      for (const input of this.problem.inputs) {
        const data = await draw(input);
        const buffer = await this.device.buffer(data.byteLength, input.name);
        this.#inputs.set(input.name, buffer);
        this.device.flush();
        this.device.wgpu.queue.writeBuffer(buffer, 0, data);
      }
    } catch (error) {
      this.free();
      throw error;
    }
    return this;
  }

  free() {
    for (const buffer of this.#inputs.values()) this.device.recycle(buffer);
    this.#inputs.clear();
  }

  /** @param {PreparedStage} stage @returns {string | null} why it cannot run here, or null */
  reason(stage) {
    const { result, inputs } = this.problem;
    const binding = Math.max(...inputs.map(bytesOf), result.count * result.itemsize, ...Object.values(stage.scratch));
    return this.device.lacks({ ...stage, binding, groups: Math.max(...stage.steps.flatMap((step) => step.grid)) });
  }

  /** Smaller ones, whatever their inputs hold. */
  *probes() {
    const smaller = this.others.filter((other) => other.flops < this.problem.flops && other.dtype === this.problem.dtype);
    for (const problem of smaller.sort((p, q) => p.flops - q.flops)) {
      const on = new PreparedCase(this.device, this.prepared, problem, []);
      const same = (/** @type {PreparedStage} */ stage) => on.stages.find(({ label }) => label === stage.label) ?? stage;
      yield { problem, open: (/** @type {PreparedStage} */ stage) => on.open(same(stage)) };
    }
  }

  /** @param {PreparedStage} stage */
  async open(stage) {
    const { device } = this;
    const { name, count, itemsize } = this.problem.result;
    /** @type {GPUBuffer[]} */
    const mine = [];
    const free = () => mine.splice(0).forEach((buffer) => device.recycle(buffer));
    try {
      const there = new Map(this.#inputs);
      const sizes = { ...stage.scratch, ...(there.size ? {} : this.#unloaded()), [name]: count * itemsize };
      for (const [buffer, bytes] of Object.entries(sizes)) {
        mine.push(await device.buffer(bytes, buffer));
        there.set(buffer, mine[mine.length - 1]);
      }
      const result = /** @type {GPUBuffer} */ (there.get(name));
      device.flush();
      device.wgpu.queue.writeBuffer(result, 0, new Uint8Array(result.size).fill(255)); // NaN, or an integer that is rare
      const launch = [];
      for (const step of stage.steps) launch.push(await this.#step(step, stage.label, there));
      return { launch, verdict: () => this.#verdict(result), free };
    } catch (error) {
      free();
      throw error;
    }
  }

  #unloaded() {
    return Object.fromEntries(this.problem.inputs.map((input) => [input.name, bytesOf(input)]));
  }

  /** @param {PreparedStep} step @param {string} label @param {Map<string, GPUBuffer>} there the buffers by their names */
  async #step({ shader, params, grid }, label, there) {
    const bindings = this.prepared.bindings[shader];
    const pipeline = await this.device.pipeline(shader, label, bindings);
    there.set("params", await this.device.uniform(Uint32Array.from(params)));
    const buffers = bindings.map((binding) => /** @type {GPUBuffer} */ (there.get(binding.name)));
    return { pipeline, bindGroup: await this.device.bind(pipeline, buffers), grid };
  }

  /** @param {GPUBuffer} result @returns {Promise<Verdict>} */
  async #verdict(result) {
    const { count, itemsize } = this.problem.result;
    const bytes = await this.device.read(result, Math.ceil((count * itemsize) / 4) * 4);
    const found = fingerprint(new WORDS[itemsize](bytes, 0, count));
    if (found === this.problem.fingerprint) return { wrong: null, max_error: 0, error_bound: 0 };
    const hex = (/** @type {number} */ value) => value.toString(16).padStart(8, "0");
    const wrong = `the result is not what Python computes: its fingerprint is ${hex(found)}, not ${hex(this.problem.fingerprint)}`;
    return { wrong, max_error: null, error_bound: 0 };
  }
}
