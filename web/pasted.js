// @ts-check
/** A visitor's own WGSL text that multiplies matrices: run, checked with guard elements, and timed like a stage of the ladder. */

import { filled } from "./bench.js";
import { Checker, errorBound } from "./check.js";
import { ConfigError, ProblemError, UnsupportedError } from "./errors.js";
import { ELEMENTS, HostArray } from "./host.js";
import { Matrix } from "./matrix.js";
import { Dict } from "./python.js";
import { within } from "./webmm.js";

/** @import { Device, DeviceArray, Launch, Problem } from "./webmm.js" */
/** What a host must know to run a text, as `webmm kernel` takes it: comma-separated words, but tunables, which spaces separate. @typedef {{bindings: string, uniform: string, grid: string, tunables: string}} Said */

const MATRICES = ["a", "b", "c"];
const LENGTHS = ["m", "n", "k"];
const GUARD = 1024; // elements after each matrix: NaN after the operands, so that a sum has it if it reads beyond,
const UNTOUCHED = 0x42; // and after C numbers of these bytes, which no text writes by chance
const TIMEOUT = 20; // seconds for one run

/** A text with its bindings, the members of its uniform and its grid; `webmm.foreign.Foreign` in Python. */
export class Pasted {
  name = "pasted.wgsl"; // in records: no stage's name has a point
  label = "your text";
  matrix = null;

  /** @param {Device} device @param {string} text @param {string[]} bindings @param {string[]} uniform @param {any} grid translated `Counts` @param {[string, number][]} config its tunables */
  constructor(device, text, bindings, uniform, grid, config) {
    this.device = device;
    this.config = Object.fromEntries(config);
    if (config.length) this.label += ` with ${config.map((pair) => pair.join(" = ")).join(", ")}`;
    this.bindings = bindings;
    this.uniform = uniform;
    this.grid = grid;
    const read = bindings.map((name) => (name === "c" ? "storage" : "read-only-storage"));
    this.layout = [...(uniform.length ? ["uniform"] : []), ...read].map((type, binding) => ({
      binding,
      name: "",
      type,
    }));
    this.code = `${text}\n// ${bindings}; ${uniform}`; // pipelines are kept by their text
  }

  /** @param {Device} device @param {string} text @param {Said} said @param {boolean} tuned refuse a text without tunables @returns {Promise<Pasted[]>} one for each combination of tunables; throws ConfigError if it makes no sense */
  static async each(device, text, said, tuned) {
    const foreign = await device.bundle.module("foreign.js");
    const { Counts, check_names, check_tunables, combinations, tunables_of, with_constants } = foreign;
    const [bindings, uniform] = [words(said.bindings), words(said.uniform)];
    if (!text.trim()) throw new ConfigError("there is no text: paste a compute shader that multiplies matrices");
    if ([...bindings].sort().join() !== MATRICES.join())
      throw new ConfigError(`Bindings must name a, b and c, each once, not ${JSON.stringify(said.bindings)}`);
    check_names(uniform, LENGTHS, "Uniform");
    const tunables = tunables_of(said.tunables.split(/\s+/).filter(Boolean));
    check_tunables(text, "your text", tunables, LENGTHS);
    const grid = new Counts(said.grid, [...LENGTHS, ...tunables.keys()]);
    const tried = tuned || tunables.size ? combinations(tunables) : [new Dict()];
    return tried.map(
      (/** @type {any} */ config) =>
        new Pasted(device, with_constants(text, config), bindings, uniform, grid, [...config]),
    );
  }

  /**
   * Prepare C = A·B, with each matrix at the start of its array.
   * @param {Problem} p @param {DeviceArray} a @param {DeviceArray} b @param {DeviceArray} c
   * @returns {Promise<Launch>} throws ShaderError for a text that does not compile or has other bindings, UnsupportedError for a grid beyond the limits
   */
  async launch({ m, n, k }, a, b, c) {
    const { device } = this;
    const lengths = new Map(Object.entries({ m, n, k }));
    const grid = this.grid.of(new Dict([...lengths, ...Object.entries(this.config)]));
    const most = device.limits.maxComputeWorkgroupsPerDimension;
    const what = `the grid ${this.grid.text} has`;
    if (Math.min(...grid) < 1) throw new ProblemError(`${what} no workgroups for m=${m}, n=${n}, k=${k}: ${grid}`);
    if (Math.max(...grid) > most)
      throw new UnsupportedError(`${what} ${Math.max(...grid)} workgroups along an axis; the limit is ${most}`);
    const pipeline = await device.pipelines.of(this.code, this.label, /** @type {any} */ (this.layout));
    const arrays = new Map(Object.entries({ a, b, c }));
    /** @type {GPUBindingResource[]} */
    const resources = this.bindings.map((name) => ({ buffer: /** @type {DeviceArray} */ (arrays.get(name)).buffer }));
    if (this.uniform.length) {
      const members = Uint32Array.from({ length: 4 }, (_, i) => lengths.get(this.uniform[i]) ?? 0);
      resources.unshift({ buffer: await device.launches.uniform(members) });
    }
    return [{ pipeline, bindGroup: await device.launches.bind(pipeline, resources), grid }];
  }

  /**
   * Compute a product of one size with guard elements after each matrix, and compare it with the page's own.
   * @param {Problem} p @returns {Promise<string>} what is wrong; empty if nothing is
   */
  async check(p) {
    const { device } = this;
    const { m, n, k, dtype } = p;
    const [a, b] = [Matrix.random(m, k, 1, dtype), Matrix.random(k, n, 2, dtype)];
    /** @type {DeviceArray[]} */
    const arrays = [];
    try {
      for (const [matrix, size] of /** @type {[Matrix | null, number][]} */ ([
        [a, m * k],
        [b, k * n],
        [null, m * n],
      ]))
        arrays.push(await guarded(device, matrix, size, dtype));
      const launch = await this.launch(p, arrays[0], arrays[1], arrays[2]);
      await device.queue(this.label, launch);
      await within(TIMEOUT, `${this.label} at ${m}×${n}×${k}`, device.synchronize());
      const { data } = await arrays[2].read();
      const rounding = device.bundle.index.dtypes[dtype];
      const got = new HostArray(/** @type {any} */ (data.slice(0, m * n)), [m, n], dtype);
      const bound = errorBound(k, dtype, rounding);
      const checker = new Checker(a, b, rounding);
      const found = (await checker.error(got)) <= bound ? "" : await checker.wrong(got, bound);
      return [found, strays(data, m * n)].filter(Boolean).join("; ");
    } finally {
      for (const array of arrays) array.free();
    }
  }
}

/** @param {string} text @returns {string[]} its comma-separated words */
function words(text) {
  return text.split(",").flatMap((word) => word.trim() || []);
}

/** @param {Device} device @param {Matrix | null} matrix null for C, which is NaN at first @param {number} size its elements @param {import("./webmm.js").DType} dtype @returns {Promise<DeviceArray>} followed by guard elements */
function guarded(device, matrix, size, dtype) {
  const end = size + GUARD;
  const bytes = new Uint8Array(end * ELEMENTS[dtype].of(0).BYTES_PER_ELEMENT).fill(255);
  if (matrix) bytes.set(new Uint8Array(matrix.data.buffer, matrix.data.byteOffset, matrix.data.byteLength));
  else bytes.fill(UNTOUCHED, (bytes.length / end) * size);
  return filled(device, bytes.buffer, { dtype: { name: dtype }, end });
}

/** @param {ArrayBufferView & {length: number}} data @param {number} size elements of C @returns {string} a description of guard elements that were written */
function strays(data, size) {
  const each = data.byteLength / data.length;
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  const written = [];
  for (let at = size; at < data.length; at++)
    if (bytes.subarray(at * each, (at + 1) * each).some((byte) => byte !== UNTOUCHED)) written.push(at);
  return written.length
    ? `${written.length.toLocaleString("en")} elements beyond the end of C were written, first element ${written[0].toLocaleString("en")} of its buffer`
    : "";
}
