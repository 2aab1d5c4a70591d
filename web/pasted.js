/** A visitor's own WGSL text that multiplies matrices: run, checked with guard elements, and timed like a stage of the ladder. */

import { filled } from "./bench.js";
import { Checker, errorBound } from "./check.js";
import { ELEMENTS, HostArray } from "./host.js";
import { Matrix } from "./matrix.js";
import { Dict } from "./python.js";
import { grouped } from "./text.js";
import { within } from "./webmm.js";

/** @import { Device, DeviceArray, Launch, Problem } from "./webmm.js" */
/** What a host must know to run a text, as `webmm kernel` takes it: comma-separated words, but tunables, which spaces separate. @typedef {{bindings: string, uniform: string, grid: string, tunables: string}} Said */

const GUARD = 1024; // elements after each matrix: NaN after the operands, so that a sum has it if it reads beyond,
const UNTOUCHED = 0x42; // and after C numbers of these bytes, which no text writes by chance
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
   * @param {Problem} p @param {DeviceArray} a @param {DeviceArray} b @param {DeviceArray} c
   * @returns {Promise<Launch>} throws ShaderError for a text that does not compile or has other bindings, UnsupportedError for a grid beyond the limits
   */
  async launch({ m, n, k }, a, b, c) {
    const { device, label } = this;
    const { text, bindings, uniform, types } = this.of;
    /** @type {Record<string, number>} */
    const lengths = { m, n, k };
    const grid = this.of.workgroups(new Dict(Object.entries(lengths)), device.limits.maxComputeWorkgroupsPerDimension);
    const layout = types.map((/** @type {any} */ type, /** @type {number} */ binding) => ({ binding, name: "", type }));
    const code = `${text}\n// ${bindings}; ${uniform}`; // pipelines are kept by their text
    const pipeline = await device.pipelines.of(code, label, layout);
    const arrays = new Map(Object.entries({ a, b, c }));
    const resources = bindings.map((/** @type {string} */ name) => ({ buffer: arrays.get(name)?.buffer }));
    if (uniform.length) {
      const members = Uint32Array.from({ length: 4 }, (_, i) => lengths[uniform[i]] ?? 0);
      resources.unshift({ buffer: await device.launches.uniform(members) });
    }
    return [{ pipeline, bindGroup: await device.launches.bind(pipeline, resources), grid }];
  }

  /** Compute a product of one size with guard elements after each matrix, and compare it with the page's own. @param {Problem} p @returns {Promise<string>} what is wrong; empty if nothing is */
  async check(p) {
    const { device } = this;
    const { m, n, k, dtype } = p;
    const [a, b] = [Matrix.random(m, k, 1, dtype), Matrix.random(k, n, 2, dtype)];
    const arrays = [];
    try {
      for (const operand of [a, b]) arrays.push(await guarded(device, operand, operand.size, dtype));
      arrays.push(await guarded(device, null, m * n, dtype));
      const launch = await this.launch(p, arrays[0], arrays[1], arrays[2]);
      await device.queue(this.label, launch);
      await within(TIMEOUT, `${this.label} at ${m}×${n}×${k}`, device.synchronize());
      const { data } = await arrays[2].read();
      const rounding = device.bundle.index.dtypes[dtype];
      const got = new HostArray(/** @type {any} */ (data.slice(0, m * n)), [m, n], dtype);
      const bound = errorBound(k, dtype, rounding);
      const checker = new Checker(a, b, rounding);
      const found = (await checker.error(got)) <= bound ? "" : await checker.wrong(device.core, got, bound);
      return [found, strays(data, m * n)].filter(Boolean).join("; ");
    } finally {
      for (const array of arrays) array.free();
    }
  }
}

/** @param {Device} device @param {Matrix | null} matrix null for C, which is NaN at first @param {number} size its elements @param {import("./webmm.js").DType} dtype @returns {Promise<DeviceArray>} followed by guard elements */
function guarded(device, matrix, size, dtype) {
  const end = size + GUARD;
  const bytes = new Uint8Array(end * ELEMENTS[dtype].itemsize).fill(255);
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
  const first = written.length && `first element ${grouped(written[0])} of its buffer`;
  return first ? `${grouped(written.length)} elements beyond the end of C were written, ${first}` : "";
}
