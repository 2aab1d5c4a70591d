/** The bundle that `webmm bundle` writes: kernels, problems, the choice and templates, translated to JavaScript, and shipped measurements. */

import { once } from "./engine/guard.js";
import { ConfigError, WebmmError, inWords } from "./errors.js";
import { Kernel } from "./kernels.js";
import { Dict, PyObject, call, dataclasses, json, provide } from "./python.js";
import { spelled } from "./text.js";
import { filledIn, render } from "./templates.js";

/** @import { Config, Problem, RunRecord } from "./webmm.js" */
/** The translated Python modules: the exports of bundle/core.js. @typedef {any} Core */
/** An instance of a translated Python class, mostly a problem or a kernel. @typedef {any} Python */
/** @typedef {{binding: number, name: string, type: GPUBufferBindingType | "read-only" | "write-only", wgsl_type: string}} Binding */
/** @typedef {{name: string, doc: string, default: number | string, candidates: (number | string)[]}} Tunable */
/** @typedef {{name: string, summary: string, follows: string, tunables: Tunable[]}} KernelRow */
/** naga's translations of a stage's default configuration on a problem, by target language. @typedef {{problem: string, naga: string, dispatches: ({name: string} & Record<string, string>)[]}} Translated */
/**
 * @typedef {{
 *   schema: string, version: string, report: string, address: string,
 *   dtypes: Record<string, {eps: number, tiny: number}>,
 *   ops: string[], late: string[], subjects: Record<"ladder" | "explain", [title: string, kind: "products" | "known" | "exhibited", number: number][]>,
 *   translated?: string[],
 *   tuned: Record<string, any>[], models: string[], cases: {m: number, n: number, k: number}[],
 * }} Index
 */

const SCHEMA = "webmm.bundle/2";

provide("webmm.wgsl.render.filled_in", filledIn);
provide("webmm.arguments.options.spelled", spelled);

/** Where the files of a bundle are, by their paths below its folder: modules, and others. @typedef {{module: (path: string) => Promise<any>, url: (path: string) => URL}} Source */

/** A loaded bundle. Templates are loaded when a kernel needs them. */
export class Bundle {
  /** The source used by `load()` without a folder: the folder next to this file, unless a package sets another one. */
  static source = served(new URL("./bundle/", import.meta.url));

  #source;
  /** @type {Map<string, Promise<any>>} modules and other files that are loaded once, by their paths */
  #loaded = new Map();
  #kernels = new Dict();

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
   * Load a bundle.
   * @param {string | URL} [base] the folder that contains index.json, by default that of `Bundle.source`
   * @returns {Promise<Bundle>} throws ConfigError for a bundle of another schema, WebmmError if it cannot be loaded
   */
  static async load(base) {
    const folder = String(base).replace(/\/?$/, "/");
    const source = base === undefined ? Bundle.source : served(new URL(folder, import.meta.url));
    const [text, core] = await Promise.all([contents(source, "index.json"), imported(source, "core.js")]);
    const index = JSON.parse(new TextDecoder().decode(text));
    if (index.schema !== SCHEMA)
      throw new ConfigError(`the bundle has schema ${index.schema}; this version of webmm.js reads ${SCHEMA}`);
    return new Bundle(index, core, source);
  }

  /** @param {Partial<RunRecord>} row @returns {Python} a translated `Record` */
  record(row) {
    return call(this.core.Record, [], json.loads(JSON.stringify(row)));
  }

  /** Load the cost models of an adapter's vendor, 100 KB each, by name. @param {string} adapter @returns {Promise<Dict>} */
  async models(adapter) {
    const [vendor] = adapter.toLowerCase().split(/[\s-]/);
    const names = this.index.models.filter((name) => name.split("-")[0] === vendor);
    const read = async (/** @type {string} */ name) =>
      json.loads(new TextDecoder().decode(await this.file(`models/${name}.json`)));
    const documents = await Promise.all(names.map((name) => read(name).catch(() => null))); // offline, and not cached
    return new Dict(names.flatMap((name, i) => (documents[i] ? [[name, this.core.model_of(documents[i])]] : [])));
  }

  /** @param {string} path below the bundle's folder @returns {Promise<ArrayBuffer>} */
  file(path) {
    return contents(this.#source, path);
  }

  /** @param {string} op @param {string} name of a stage @returns {Promise<Translated | null>} naga's translations of its default, or null if the bundle has none */
  async translated(op, name) {
    return this.index.translated?.includes(`${op}-${name}`) ? this.packed(`translated/${op}-${name}`) : null;
  }

  /** @param {string} path of a compressed JSON document below the bundle's folder, without .deflate @returns {Promise<any>} */
  async packed(path) {
    const packed = new Blob([await this.file(`${path}.deflate`)]);
    return new Response(packed.stream().pipeThrough(new DecompressionStream("deflate-raw"))).json();
  }

  /** @returns {Promise<Map<string, string>>} where the course tells each chapter and each stage, as OP/STAGE: NAME or NAME~ANCHOR; loaded once */
  lessons() {
    return once(this.#loaded, "learn/index", async () => new Map(await this.packed("learn/index")));
  }

  /** @param {string} path of a module below the bundle's folder @returns {Promise<any>} loaded once */
  module(path) {
    return once(this.#loaded, path, () => imported(this.#source, path));
  }

  /** @param {string} op @returns {Promise<Core>} the exports of core.js, and those of the op's own module if it has one, which is loaded once */
  async op(op) {
    return this.index.late.includes(op) ? { ...this.core, ...(await this.module(`${op}.js`)) } : this.core;
  }

  /** @param {string} op @param {string} [variant] by default the first @returns {Promise<Python>} the op's translated row: what the page knows of it */
  async row(op, variant = "") {
    const cls = (await this.module("ops.js")).ROWS.get(op);
    return Object.assign(new cls(), { variant: variant || (cls.variants[0] ?? "") });
  }

  /** @param {Python} kernel @param {Python} problem @param {boolean} [pinned] whether it asks for its size of subgroups @returns {Promise<any>} the translated `Shader`, in the dialect of browsers */
  async shader(kernel, problem, pinned = false) {
    await this.module(moduleOf(kernel.template));
    return this.core.render(kernel, problem, "tint", false, false, null, pinned);
  }

  /**
   * Python's `export.stage()` in the dialect of browsers: a stage as data, with texts whose headers state their contract.
   * @param {Python} kernel @param {Python} problem @param {boolean} [general] whether the texts are right at any sizes
   * @returns {Promise<any>} as a plain object
   */
  async stageAsData(kernel, problem, general = false) {
    const templates = kernel.dispatches.map((/** @type {Python} */ each) => this.module(moduleOf(each.template)));
    const [{ stage }] = await Promise.all([this.module("export.js"), ...templates]);
    return plain(stage(kernel, problem, "tint", general));
  }

  /** Render a template that belongs to no kernel. @param {string} template @param {Record<string, any>} settings @returns {Promise<string>} WGSL */
  async text(template, settings) {
    await this.module(moduleOf(template));
    return this.core.tidy(render(template, settings));
  }

  /** @param {Problem | Python} p @returns {Python} the translated problem of a floating-point matrix product */
  problem(p) {
    return p instanceof PyObject ? p : call(this.core.gemm, [p.m, p.n, p.k], { dtype: p.dtype });
  }

  // The stages of floating-point matrix products

  /** The names of the page's stages, in the order of the ladder. @returns {string[]} */
  get stages() {
    return this.core.offered().map((/** @type {any} */ cls) => cls.name);
  }

  /** @param {Python} kernel @returns {Kernel} one object for all equal kernels */
  wrap(kernel) {
    if (!this.#kernels.has(kernel)) this.#kernels.set(kernel, new Kernel(this, kernel));
    return this.#kernels.get(kernel);
  }

  /** @param {string} name of a stage @param {string} [op] @returns {KernelRow} its summary, the stage that it follows, and its tunables */
  stage(name, op = "gemm") {
    const cls = this.core.kernel_class(name, op);
    /** @type {any[]} */
    const tunables = dataclasses.fields(cls).map(({ name, default: value, metadata }) => ({
      ...{ name, default: value },
      ...Object.fromEntries(metadata),
    }));
    return { name, summary: cls.summary, follows: cls.follows, tunables };
  }

  /** @param {string} name of a stage @param {Config} [config] tunables that differ from the defaults @param {string} [op] @returns {Kernel} throws ConfigError if no device could run this configuration */
  kernel(name, config = {}, op = "gemm") {
    const kernel = this.configure(name, config, op);
    const reason = kernel.invalid();
    if (reason) throw new ConfigError(`${name}: ${reason}`);
    return this.wrap(kernel);
  }

  /** @param {string} name of a stage @param {Config | undefined} config tunables that differ from the defaults @param {string} op @returns {Python} the translated kernel, which may be invalid */
  configure(name, config, op) {
    const settings = new Dict(Object.entries(config ?? {}).map(([tunable, value]) => [tunable, String(value)]));
    return this.core.configure(name, settings, op);
  }
}

/** @param {any} x @returns {any} with plain objects in place of a Dict */
function plain(x) {
  if (x instanceof Dict) return Object.fromEntries([...x].map(([key, value]) => [key, plain(value)]));
  return Array.isArray(x) ? x.map(plain) : x;
}

/** @param {string} template */
const moduleOf = (template) => `templates/${template.replace(/\.wgsl$/, ".js")}`;

/** @param {URL} folder @returns {Source} the files below a folder, by import and fetch */
function served(folder) {
  const url = (/** @type {string} */ path) => new URL(path, folder);
  return { url, module: (path) => import(/* @vite-ignore */ /* webpackIgnore: true */ String(url(path))) };
}

/** @param {Source} source @param {string} path @returns {Promise<any>} a module of the bundle */
async function imported(source, path) {
  try {
    return await source.module(path);
  } catch (error) {
    const words = `${path} could not be loaded (${inWords(error)}): you may be offline, and the file is not cached`;
    throw new WebmmError(words, error);
  }
}

/** @param {Source} source @param {string} path @returns {Promise<ArrayBuffer>} a file of the bundle */
async function contents(source, path) {
  const url = source.url(path);
  if (url.protocol === "file:") {
    // @ts-ignore: node, which does not fetch files
    const { readFile } = await import("node:fs/promises");
    return new Uint8Array(await readFile(url)).buffer;
  }
  const response = await fetch(url).catch((error) => {
    throw new WebmmError(`${path} could not be loaded: you may be offline, and the file is not cached`, error);
  });
  if (!response.ok) throw new WebmmError(`${path} could not be loaded: the server responded with ${response.status}`);
  return response.arrayBuffer();
}
