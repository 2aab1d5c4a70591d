// @ts-check
/** The bundle: rendered shaders, and what Python knows of each, as `webmm bundle` wrote it. */

import { ConfigError, WebmmError } from "./errors.js";
import { Kernel } from "./kernels.js";

/** @typedef {import("./matrix.js").DType} DType */
/** @typedef {import("./kernels.js").Config} Config */
/** @typedef {import("./kernels.js").Fragments} Fragments */
/** @typedef {{tile_m: number, tile_n: number, elements: number, at_most: number}} Grid */
/** @typedef {{binding: number, name: string, type: GPUBufferBindingType, wgsl_type: string}} Binding */
/** @typedef {{name: string, doc: string, default: number | string, candidates: (number | string)[]}} Tunable */
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
/** @typedef {{dtype: string, m: number, n: number, k: number, kernel: string, config: Config, gflops: number | null}} TunedRecord */

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
