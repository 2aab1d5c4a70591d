/** A visitor's own WGSL text that multiplies matrices: run, checked with guard elements, and timed like a stage of the ladder. */

import { Checker, errorBound } from "./check.js";
import { HostArray } from "./host.js";
import { Matrix } from "./matrix.js";
import { within } from "./webmm.js";

/** @import { Device, DeviceArray, Launch, Problem } from "./webmm.js" */
/** What a host must know to run a text, as `webmm kernel` takes it: comma-separated words, but tunables, which spaces separate. @typedef {{bindings: string, uniform: string, grid: string, tunables: string}} Said */

const TIMEOUT = 20; // seconds for one run

/** A text with what a host must know to run it; `of` is the translated `webmm.foreign.pasted.Pasted`. */
export class Pasted {
  name = "pasted.wgsl"; // in records: no stage's name has a point
  matrix = null;

  /** @param {Device} device @param {any} of */
  constructor(device, of) {
    this.device = device;
    this.of = of;
    /** @type {string} */
    this.label = of.label;
    /** @type {Record<string, number>} its tunables */
    this.config = Object.fromEntries(of.config);
  }

  /** @param {Device} device @param {string} text @param {Said} said @param {boolean} tuned refuse a text without tunables @returns {Promise<Pasted[]>} one for each combination of tunables; throws ConfigError if it makes no sense */
  static async each(device, text, { bindings, uniform, grid, tunables }, tuned) {
    const { pasted } = await device.bundle.module("foreign.js");
    const found = pasted(text, bindings, uniform, grid, tunables, tuned);
    return found.map((/** @type {any} */ of) => new Pasted(device, of));
  }

  /**
   * Prepare C = A·B, with each matrix at the start of its array.
   * @param {Problem} p @param {...DeviceArray} matrices A, B and C
   * @returns {Promise<Launch>} throws ShaderError for a text that does not compile or has other bindings, UnsupportedError for a grid beyond the limits
   */
  async launch({ m, n, k }, ...matrices) {
    const { device, label, of } = this;
    const grid = of.workgroups([m, n, k], device.limits.maxComputeWorkgroupsPerDimension);
    const pipeline = await device.pipelines.of(of.code, label, of.layout); // kept by its text
    const resources = of.bindings.map((/** @type {string} */ x) => ({ buffer: matrices["abc".indexOf(x)].buffer }));
    if (of.uniform.length) {
      const members = Uint32Array.from(of.members([m, n, k]));
      resources.unshift({ buffer: await device.launches.uniform(members) });
    }
    return [{ pipeline, bindGroup: await device.launches.bind(pipeline, resources), grid }];
  }

  /** Compute a product of one size with guard elements after each matrix, and compare it with the page's own. @param {Problem} p @returns {Promise<string>} what is wrong; empty if nothing is */
  async check(p) {
    const { device } = this;
    const { m, n, k, dtype } = p;
    const { GUARD, UNTOUCHED, strays } = await device.bundle.module("foreign.js");
    const [a, b] = [Matrix.random(m, k, 1, dtype), Matrix.random(k, n, 2, dtype)];
    const unwritten = new Float32Array(m * n).fill(NaN);
    const arrays = [];
    try {
      for (const [numbers, guard] of [[a.floats()], [b.floats()], [unwritten, UNTOUCHED]]) {
        const guarded = new Float32Array(numbers.length + GUARD).fill(guard ?? NaN);
        guarded.set(numbers);
        arrays.push(await device.array(guarded, { dtype }));
      }
      const launch = await this.launch(p, ...arrays);
      await device.queue(this.label, launch);
      await within(TIMEOUT, `${this.label} at ${m}×${n}×${k}`, device.synchronize());
      const found = await arrays[2].read();
      const rounding = device.bundle.index.dtypes[dtype];
      const got = new HostArray(/** @type {any} */ (found.data.slice(0, m * n)), [m, n], dtype);
      const wrong = await new Checker(a, b, rounding).wrong(device.core, got, errorBound(k, dtype, rounding));
      return [wrong, strays([...found.floats().subarray(m * n)], m * n, "C")].filter(Boolean).join("; ");
    } finally {
      for (const array of arrays) array.free();
    }
  }
}
