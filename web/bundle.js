// @ts-check
/** The bundle that `webmm bundle` wrote: Python's kernels, problems, choice and templates in JavaScript, and what it measured. */

import { ConfigError, WebmmError, inWords } from "./errors.js";
import { Kernel } from "./kernels.js";
import { Dict, PyObject, call, dataclasses, provide } from "./python.js";
import { added, filledIn, render } from "./templates.js";

/** @typedef {import("./kernels.js").Config} Config */
/** @typedef {import("./problems.js").Problem} Problem */
/** What Python's modules are in JavaScript. @typedef {any} Core */
/** A problem or a kernel of Python's. @typedef {any} Python */
/** @typedef {{binding: number, name: string, type: GPUBufferBindingType | "read-only" | "write-only", wgsl_type: string}} Binding */
/** @typedef {{name: string, doc: string, default: number | string, candidates: (number | string)[]}} Tunable */
/** @typedef {{name: string, summary: string, tunables: Tunable[]}} KernelRow */
/** What naga made of a stage's default on a problem, by the names of its targets. @typedef {{problem: string, naga: string, dispatches: ({name: string} & Record<string, string>)[]}} Translated */
/**
 * @typedef {{
 *   schema: string, version: string, records: string,
 *   timing: {warm_up: number, cold: number, wake: number, sample_time: number, min_samples: number, max_samples: number, batch_time: number},
 *   dtypes: Record<string, {eps: number, tiny: number, features: string[]}>, ladders: string[],
 *   translated?: string[], roofline: {bindings: Binding[], gpu: RooflineRows, cpu: RooflineRows},
 *   tuned: Record<string, any>[], models: string[], cases: {m: number, n: number, k: number}[],
 * }} Index
 */
/**
 * @typedef {{
 *   fma: {settings: Record<string, number>, workgroups: number, results: number, flops: number}[],
 *   copy: {workgroup: number, nbytes: number},
 * }} RooflineRows
 */

const SCHEMA = "webmm.bundle/2";

provide("webmm.render._filled_in", filledIn);

/** Where a bundle's files come from: modules and others, by their paths below its folder. @typedef {{module: (path: string) => Promise<any>, read: (path: string) => Promise<ArrayBuffer>}} Source */

/** What Python knows, in JavaScript; templates are loaded when a kernel needs them. */
export class Bundle {
  /** What is loaded where no folder is named: that beside this file, unless a package says otherwise. */
  static source = served(new URL("./bundle/", import.meta.url));

  #source;
  /** @type {Map<string, Promise<unknown>>} */
  #modules = new Map();
  #kernels = new Dict();
  /** @type {Map<string, Kernel[]> | null} */
  #configurations = null;

  /** @param {Index} index @param {Core} core @param {Source} source */
  constructor(index, core, source) {
    this.index = index;
    this.core = core;
    this.#source = source;
    const shipped = index.tuned.map((row) => this.record(row));
    provide("webmm.choose.tuned.shipped", () => shipped);
    provide("webmm.dtypes._of_numpy", (spec) => {
      throw new ConfigError(`${spec} is not a dtype; use one of ${[...core.DTYPES.keys()].join(", ")}`);
    });
  }

  /**
   * @param {string | URL} [base] the folder that holds index.json; as `source` says where none is named
   * @returns {Promise<Bundle>}
   */
  static async load(base) {
    const source =
      base === undefined ? Bundle.source : served(new URL(String(base).replace(/\/?$/, "/"), import.meta.url));
    const [json, core] = await Promise.all([source.read("index.json"), source.module("core.js")]);
    const index = JSON.parse(new TextDecoder().decode(json));
    if (index.schema !== SCHEMA) throw new ConfigError(`this page cannot read a bundle of ${index.schema}`);
    return new Bundle(index, core, source);
  }

  /** @param {Record<string, any>} row @returns {Python} a Record of Python's */
  record(row) {
    const names = dataclasses
      .fields(this.core.Record)
      .map(({ name }) => name)
      .filter((name) => row[name] !== undefined);
    return call(
      this.core.Record,
      [],
      Object.fromEntries(
        names.map((name) => [name, name === "config" ? new Dict(Object.entries(row.config)) : row[name]]),
      ),
    );
  }

  /** The models of time of an adapter's vendor, by their names: 60 KB each. @param {string} adapter @returns {Promise<Dict>} */
  async models(adapter) {
    const [vendor] = adapter.toLowerCase().split(/[\s-]/);
    const names = this.index.models.filter((name) => name.split("-")[0] === vendor);
    const documents = await Promise.all(names.map((name) => this.#json(`models/${name}.json`).catch(() => null))); // offline, and not used before
    return new Dict(
      /** @type {any} */ (names.flatMap((name, i) => (documents[i] ? [[name, this.#model(documents[i])]] : []))),
    );
  }

  /** @param {Record<string, any>} document @returns {Python} a Model of Python's */
  #model({ machine, coefficients, means, spreads, weights }) {
    const kinds = Object.entries(coefficients).map(([kind, each]) => [kind, new Dict(Object.entries(each))]);
    return new this.core.Model(
      call(this.core.Machine, [], machine),
      new Dict(/** @type {any} */ (kinds)),
      means,
      spreads,
      new Dict(Object.entries(weights)),
    );
  }

  /** @param {string} path below the bundle's folder @returns {Promise<ArrayBuffer>} */
  file(path) {
    return this.#source.read(path);
  }

  /** @param {string} path below the bundle's folder @returns {Promise<any>} */
  async #json(path) {
    return JSON.parse(new TextDecoder().decode(await this.#source.read(path)));
  }

  /** @param {string} op @param {string} name of a stage @returns {Promise<Translated | null>} what naga makes of its default; null where the bundle has none */
  async translated(op, name) {
    if (!this.index.translated?.includes(`${op}-${name}`)) return null;
    const packed = new Blob([await this.file(`translated/${op}-${name}.deflate`)]);
    return new Response(packed.stream().pipeThrough(new DecompressionStream("deflate-raw"))).json();
  }

  /** @param {string} path of a module below the bundle's folder @returns {Promise<any>} loaded once */
  module(path) {
    let module = this.#modules.get(path);
    if (!module) {
      module = this.#source.module(path);
      module.catch(() => this.#modules.delete(path)); // so that it can be asked for again
      this.#modules.set(path, module);
    }
    return module;
  }

  /** The templates that were loaded, as paths below the bundle's folder. */
  get loaded() {
    return added();
  }

  /** Load the templates of a kernel of Python's, with all its dispatches: it can be rendered from then on. @param {Python} kernel */
  async ready(kernel) {
    await Promise.all(kernel.dispatches.map((/** @type {Python} */ each) => this.module(moduleOf(each.template))));
  }

  /** @param {Python} kernel @param {Python} problem @returns {Promise<any>} Python's `Shader`, in the dialect of browsers */
  async shader(kernel, problem) {
    await this.module(moduleOf(kernel.template));
    return this.core.render(kernel, problem, "tint");
  }

  /** @param {string} template @param {Record<string, any>} settings @returns {Promise<string>} WGSL of no kernel */
  async text(template, settings) {
    await this.module(moduleOf(template));
    return this.core.tidy(render(template, settings));
  }

  /** @param {Problem | Python} p @returns {Python} a product of floats as Python has it */
  problem(p) {
    return p instanceof PyObject ? p : call(this.core.gemm, [p.m, p.n, p.k], { dtype: p.dtype });
  }

  // The stages of products of floats

  /** The names of the stages that the page shows, in the order of the ladder. @returns {string[]} */
  get stages() {
    return this.core.offered().map((/** @type {any} */ cls) => cls.name);
  }

  /** Every configuration of each stage that the page offers, the default first. @returns {Map<string, Kernel[]>} */
  get kernels() {
    const every = (/** @type {any} */ cls) =>
      this.core.configurations(cls).map((/** @type {Python} */ kernel) => this.wrap(kernel));
    this.#configurations ??= new Map(this.core.offered().map((/** @type {any} */ cls) => [cls.name, every(cls)]));
    return this.#configurations;
  }

  /** @param {Python} kernel @returns {Kernel} the same for equal ones */
  wrap(kernel) {
    if (!this.#kernels.has(kernel)) this.#kernels.set(kernel, new Kernel(this, kernel));
    return this.#kernels.get(kernel);
  }

  /** @param {string} name @param {string} [op] @returns {KernelRow} */
  stage(name, op = "gemm") {
    const cls = this.core.kernel_class(name, op);
    const tunables = dataclasses.fields(cls).map(({ name, default: value, metadata }) => ({
      name,
      default: value,
      doc: metadata.get("doc"),
      candidates: metadata.get("candidates"),
    }));
    return { name, summary: cls.summary, tunables };
  }

  /**
   * @param {string} name
   * @param {Config} [config] tunables that differ from the defaults
   * @param {string} [op]
   * @returns {Kernel}
   */
  kernel(name, config = {}, op = "gemm") {
    const kernel = this.#made(name, config, op);
    const reason = kernel.invalid();
    if (reason) throw new ConfigError(`${name}: ${reason}`);
    return this.wrap(kernel);
  }

  /** @param {string} name @param {Config} config @param {string} [op] @returns {Kernel | null} likewise; null for tiles that cannot work anywhere */
  configured(name, config, op = "gemm") {
    const kernel = this.#made(name, config, op);
    return kernel.invalid() === null ? this.wrap(kernel) : null;
  }

  /** @param {string} name @param {Config} config @param {string} op @returns {Python} */
  #made(name, config, op) {
    const texts = Object.entries(config).map(([key, value]) => [key, String(value)]);
    return this.core.configure(name, new Dict(/** @type {any} */ (texts)), op);
  }
}

/** @param {string} template */
const moduleOf = (template) => `templates/${template.replace(/\.wgsl$/, ".js")}`;

/** @param {URL} folder @returns {Source} its files, from wherever this file came from */
function served(folder) {
  const module = (/** @type {string} */ path) =>
    import(/* @vite-ignore */ /* webpackIgnore: true */ String(new URL(path, folder)));
  return {
    module: (path) => imported(path, () => module(path)),
    read: (path) => contents(path, new URL(path, folder)),
  };
}

/**
 * The source of a package: bundlers see what each function imports and each URL names, and move it to where they like.
 * @param {Record<string, () => Promise<any>>} modules @param {Record<string, URL>} files @returns {Source}
 */
export const packed = (modules, files) => ({
  module: (path) => imported(path, modules[path]),
  read: (path) => contents(path, files[path]),
});

/** @param {string} path @param {() => Promise<any>} load @returns {Promise<any>} a module of the bundle */
async function imported(path, load) {
  try {
    return await load();
  } catch (error) {
    throw new WebmmError(
      `${path} could not be loaded (${inWords(error)}): you are offline, and it was not used before`,
      error,
    );
  }
}

/** @param {string} path @param {URL} url @returns {Promise<ArrayBuffer>} */
async function contents(path, url) {
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
}
