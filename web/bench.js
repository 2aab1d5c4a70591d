/** Measurements for the ladders and the tuner: a kernel is checked before it is timed, and every outcome becomes a record. */

import { Checker, errorBound } from "./check.js";
import { orFree } from "./engine/guard.js";
import { wall } from "./engine/timing.js";
import { DeviceLostError, ShaderError, TimeoutError, UnsupportedError, inWords } from "./errors.js";
import { ELEMENTS, HostArray } from "./host.js";
import { Matrix } from "./matrix.js";
import { flopsOf, within } from "./webmm.js";

/** @import { Device, DeviceArray, Kernel, Problem, RunRecord, Roofline, Launch, Task } from "./webmm.js" */
/** @import { Pasted } from "./pasted.js" */
/** @import { Rung } from "./prepared.js" */
/** @typedef {{name: string, label: string, config: import("./webmm.js").Config, matrix: import("./webmm.js").Fragments | null}} Stage what a bench uses of a kernel */
/** @typedef {{wrong: string | null, max_error: number | null, error_bound: number}} Verdict `wrong` describes the error of a wrong result, and is null otherwise */
/** @typedef {{launch: Launch, free: () => void}} Ready */
/**
 * A problem with its operands, as `webmm.cases.base.Case` in Python. `probes` are smaller problems of the same kind, the
 * smallest first, on which the speed of a kernel is estimated; `open` prepares a launch whose output is poisoned, and
 * `verdict` checks the output after the launch has run.
 * @template {Stage} K
 * @typedef {{
 *   problem: Task, reason: (kernel: K) => string | null, free: () => void,
 *   probes: () => Iterable<{problem: Task, open: (kernel: K) => Promise<Ready>}>,
 *   open: (kernel: K) => Promise<Ready & {verdict: () => Promise<Verdict>}>,
 * }} Case
 */

const RUN_TIMEOUT = 20; // seconds for one checked run
const CALLS = 5; // calls whose wall-clock time is measured
const PROBE_TIME = 0.02; // seconds; a probe that takes this long gives a reliable rate
const DEFAULT_LIMIT = 0.75; // seconds; a kernel whose run is predicted to take longer is skipped

/** @param {any} problem translated @returns {any} the extent of its result */
export const written = (problem) => problem.buffers().find((/** @type {any} */ { written }) => written);

/** @param {Device} device @param {ArrayBuffer} bytes @param {any} extent of a problem's buffer @returns {Promise<DeviceArray>} an array of these bytes as that buffer */
export const filled = (device, bytes, { dtype, end }) =>
  device.array(
    new HostArray(ELEMENTS[/** @type {keyof typeof ELEMENTS} */ (dtype.name)].over(bytes, end), [end], dtype.name),
  );

/** @param {Device} device @param {any} problem translated @returns {Promise<DeviceArray>} an array for its result, full of NaN or, for integers, of ones in all bits */
export function blank(device, problem) {
  const extent = written(problem);
  return filled(device, new Uint8Array(extent.end * extent.dtype.itemsize).fill(255).buffer, extent);
}

/**
 * Prepare a launch whose result is poisoned.
 * @param {Device} device @param {any} problem translated @param {(result: DeviceArray) => Promise<Launch>} prepare
 * @param {(result: DeviceArray) => Promise<Verdict>} check its contents after the launch has run
 */
export async function opened(device, problem, prepare, check) {
  const result = await blank(device, problem);
  const free = () => result.free();
  return orFree(free, async () => ({ launch: await prepare(result), verdict: () => check(result), free }));
}

/** A problem with its inputs on the device, whose result is checked on the CPU. @implements {Case<Kernel | Rung | Pasted>} */
export class Inputs {
  /** @param {Device} device @param {any} of the translated problem @param {Task} problem in records @param {DeviceArray[]} arrays @param {(result: HostArray) => Promise<Verdict>} check */
  constructor(device, of, problem, arrays, check) {
    this.device = device;
    this.of = of;
    this.problem = problem;
    this.arrays = arrays;
    this.check = check;
  }

  free() {
    for (const array of this.arrays) array.free();
  }

  /** @param {Kernel | Rung | Pasted} kernel @returns {string | null} why it cannot run here, or null */
  reason(kernel) {
    return "launch" in kernel ? null : this.device.reason("kernel" in kernel ? kernel.kernel : kernel, this.of);
  }

  /** @returns {Iterable<{problem: Task, open: (kernel: Kernel | Rung | Pasted) => Promise<Ready>}>} none, for problems that take little time */
  probes() {
    return [];
  }

  /** @param {Kernel | Rung | Pasted} kernel */
  open(kernel) {
    const launch = (/** @type {DeviceArray} */ result) => this.#launch(kernel, [...this.arrays, result]);
    return opened(this.device, this.of, launch, async (result) => this.check(await result.read()));
  }

  /** Prepare a launch on arrays that are not filled, for a probe. @param {Kernel | Rung | Pasted} kernel @returns {Promise<Ready>} */
  openEmpty(kernel) {
    const free = () => this.free();
    return orFree(free, async () => {
      for (const { end, dtype } of this.of.buffers()) this.arrays.push(await this.device.empty([end], dtype.name));
      return { launch: await this.#launch(kernel, this.arrays), free };
    });
  }

  /** @param {Kernel | Rung | Pasted} kernel @param {DeviceArray[]} arrays of all buffers @returns {Promise<Launch>} */
  #launch(kernel, arrays) {
    if ("launch" in kernel) return kernel.launch(this.of, arrays[0], arrays[1], arrays[2]);
    return this.device.launch("kernel" in kernel ? kernel.kernel : kernel, this.of, ...arrays);
  }
}

/** The operands of a matrix product. */
export class Operands extends Inputs {
  /** @param {Device} device @param {Problem} p */
  static async random(device, p) {
    const [a, b] = [Matrix.random(p.m, p.k, 1, p.dtype), Matrix.random(p.k, p.n, 2, p.dtype)];
    const rounding = device.bundle.index.dtypes[p.dtype];
    const checker = new Checker(a, b, rounding);
    const check = (/** @type {HostArray} */ got) => judged(checker, got, errorBound(p.k, p.dtype, rounding));
    const on = new Operands(device, device.bundle.problem(p), p, [], check);
    return orFree(
      () => on.free(),
      async () => {
        for (const host of [a, b]) on.arrays.push(await device.array(host));
        return on;
      },
    );
  }

  /** Cubes, up to half the side of a cube with the problem's volume. */
  *probes() {
    const { m, n, k, dtype } = /** @type {Problem} */ (this.problem);
    for (let side = 64; side <= Math.cbrt(m * n * k) / 2; side *= 2) {
      const problem = { m: side, n: side, k: side, dtype };
      const on = new Inputs(this.device, this.device.bundle.problem(problem), problem, [], this.check);
      yield { problem, open: (/** @type {Kernel | Rung | Pasted} */ kernel) => on.openEmpty(kernel) };
    }
  }
}

/** @param {Checker} checker @param {HostArray} got @param {number} error_bound @returns {Promise<Verdict>} */
async function judged(checker, got, error_bound) {
  const max_error = await checker.error(got);
  if (max_error <= error_bound) return { wrong: null, max_error, error_bound };
  const elements = await checker.wrong(got, error_bound);
  const words = `the largest error is ${max_error.toExponential(2)}·|A||B|, rounding explains at most ${error_bound.toExponential(2)}`;
  return { wrong: elements ? `${elements}; ${words}` : words, max_error, error_bound };
}

/** Runs kernels, and remembers their rates in order to skip runs that would take too long. */
export class Bench {
  /** @type {Map<string, number>} operations per second, by kernel */
  #rates = new Map();
  /** @type {Roofline | null} */
  roofline = null;

  /** @param {Device} device @param {{limit?: number, signal?: AbortSignal}} [options] */
  constructor(device, { limit = DEFAULT_LIMIT, signal } = {}) {
    this.device = device;
    this.limit = limit;
    this.signal = signal;
  }

  /**
   * Check and time a kernel on a case; return its record, or one with the reason why there is no measurement. Throws
   * DeviceLostError only.
   * @template {Stage} K @param {K} kernel @param {Case<K>} on
   * @param {{slowerThan?: number}} [options] do not time a kernel whose first run takes longer than this, in seconds
   * @returns {Promise<RunRecord>}
   */
  async run(kernel, on, options = {}) {
    const without = (/** @type {RunRecord["status"]} */ status, /** @type {string} */ reason) =>
      this.device.record(kernel, on.problem, { status, reason });
    const reason = on.reason(kernel);
    if (reason) return without("unsupported", reason);
    try {
      const slow = await this.#tooSlow(kernel, on);
      if (slow) return without("skipped", slow);
      return await this.#measure(kernel, on, options.slowerThan ?? Infinity);
    } catch (error) {
      if (error instanceof DeviceLostError) throw error;
      if (error instanceof UnsupportedError) return without("unsupported", error.message);
      if (error instanceof ShaderError) return without("compile", error.message);
      if (error instanceof TimeoutError) return without("timeout", error.message);
      return without("runtime", inWords(error));
    }
  }

  /** Check and time a kernel on a case of its own, which is freed at the end. @template {Stage} K @param {K} kernel @param {Promise<Case<K>>} loading */
  async measure(kernel, loading) {
    const on = await loading;
    try {
      return await this.run(kernel, on);
    } finally {
      on.free();
    }
  }

  /** @template {Stage} K @param {K} kernel @param {Case<K>} on @returns {Promise<string | null>} why the kernel is skipped, or null */
  async #tooSlow(kernel, on) {
    if (this.limit === Infinity) return null;
    const rate = this.#rates.get(kernel.label) ?? (await this.#probe(kernel, on));
    const predicted = flopsOf(on.problem) / rate;
    if (predicted <= this.limit) return null;
    const { speed_of, unit_of } = this.device.core;
    const speed = speed_of({ ...on.problem, gflops: rate / 1e9 }).toPrecision(2);
    return `one run would take about ${predicted.toFixed(1)} s at the ${speed} ${unit_of(on.problem)} of a smaller run; the limit is ${this.limit} s`;
  }

  /** Estimate the rate on probes of growing size, until a run takes 20 ms. @template {Stage} K @param {K} kernel @param {Case<K>} on @returns {Promise<number>} in FLOP/s */
  async #probe(kernel, on) {
    let rate = Infinity;
    for (const { problem, open } of on.probes()) {
      const { launch, free } = await open(kernel);
      const run = this.#firstRun(launch, kernel.label, problem).then(() => wall(this.device, launch, 1));
      const seconds = await run.finally(free);
      rate = flopsOf(problem) / seconds;
      this.#rates.set(kernel.label, rate);
      if (seconds > PROBE_TIME) break;
    }
    return rate;
  }

  /** Run a launch for the first time, when drivers compile. @param {Launch} launch @param {string} label @param {Task} problem */
  async #firstRun(launch, label, problem) {
    this.device.submit(launch, 1);
    await within(RUN_TIMEOUT, `${label} at ${this.device.core.size_of(problem)}`, this.device.synchronize());
  }

  /** @template {Stage} K @param {K} kernel @param {Case<K>} on @param {number} slowerThan */
  async #measure(kernel, on, slowerThan) {
    const { device } = this;
    const p = on.problem;
    const { launch, verdict, free } = await on.open(kernel);
    try {
      await this.#firstRun(launch, kernel.label, p);
      const { wrong, ...errors } = await verdict();
      if (wrong) return device.record(kernel, p, { status: "incorrect", reason: wrong, ...errors });
      const seconds = await wall(device, launch, 1);
      if (seconds > slowerThan) {
        const reason = `one run took ${(seconds * 1e3).toPrecision(3)} ms, much longer than the best so far`;
        return device.record(kernel, p, { status: "skipped", reason, ...errors });
      }
      const timing = await device.time(launch);
      const calls = [];
      for (let i = 0; i < CALLS; i++) calls.push(await wall(device, launch, 1));
      const call_us = calls.sort((x, y) => x - y)[Math.floor(CALLS / 2)] * 1e6;
      this.#rates.set(kernel.label, (flopsOf(p) / timing.median_us) * 1e6);
      const gflops = flopsOf(p) / timing.median_us / 1e3;
      const peak_fraction = this.roofline && !kernel.matrix ? gflops / this.roofline.gflops : null; // of the FMA peak
      return device.record(kernel, p, { ...timing, call_us, gflops, peak_fraction, ...errors });
    } finally {
      free();
    }
  }
}

/**
 * Measure the stages on one case, which is prepared first and freed at the end. Stops early when the bench's signal is aborted.
 * @template {Stage} K
 * @param {Bench} bench @param {K[]} kernels @param {Task} problem @param {() => Promise<Case<K>>} prepare
 * @param {(index: number) => void} [onStart] @returns {AsyncGenerator<RunRecord>}
 */
export async function* ladder(bench, kernels, problem, prepare, onStart = () => {}) {
  let on;
  try {
    on = await prepare();
  } catch (error) {
    if (!(error instanceof UnsupportedError)) throw error;
    for (const kernel of kernels)
      yield bench.device.record(kernel, problem, { status: "unsupported", reason: error.message });
    return;
  }
  try {
    for (const [i, kernel] of kernels.entries()) {
      if (bench.signal?.aborted) return;
      onStart(i);
      yield await bench.run(kernel, on);
    }
  } finally {
    on.free();
  }
}
