// @ts-check
/** Measurements for the ladders and the tuner: a kernel is checked before it is timed, and every outcome becomes a record. */

import { Checker, errorBound } from "./check.js";
import { orFree } from "./engine/guard.js";
import { DeviceLostError, ShaderError, TimeoutError, UnsupportedError, inWords } from "./errors.js";
import { ELEMENTS, HostArray } from "./host.js";
import { Matrix } from "./matrix.js";
import { shape, speedOf, unitOf } from "./ops.js";
import { flopsOf, within } from "./webmm.js";

/** @import { Device, DeviceArray, Kernel, Problem, RunRecord, Roofline, Launch, Task } from "./webmm.js" */
/** A text from elsewhere. @typedef {import("./pasted.js").Pasted} Pasted */
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

/** A kernel whose run is predicted to take more seconds than this is skipped. */
export const DEFAULT_LIMIT = 0.75;

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

/** The operands of a matrix product, whose result is checked against one computed on the CPU. @implements {Case<Kernel | Pasted>} */
export class Operands {
  /** @param {Device} device @param {Problem} problem @param {DeviceArray} a @param {DeviceArray} b @param {Checker} checker */
  constructor(device, problem, a, b, checker) {
    this.device = device;
    this.problem = problem;
    this.a = a;
    this.b = b;
    this.checker = checker;
  }

  /** @param {Device} device @param {Problem} p */
  static async random(device, p) {
    const hostA = Matrix.random(p.m, p.k, 1, p.dtype);
    const hostB = Matrix.random(p.k, p.n, 2, p.dtype);
    const checker = new Checker(hostA, hostB, device.bundle.index.dtypes[p.dtype]);
    const a = await device.array(hostA);
    const made = async () => new Operands(device, p, a, await device.array(hostB), checker);
    return orFree(() => a.free(), made);
  }

  free() {
    this.a.free();
    this.b.free();
  }

  /** @param {Kernel | Pasted} kernel @returns {string | null} why it cannot run here, or null */
  reason(kernel) {
    return "launch" in kernel ? null : this.device.reason(kernel, this.problem);
  }

  /** @param {Kernel | Pasted} kernel @param {Problem} p @param {[DeviceArray, DeviceArray, DeviceArray]} arrays @returns {Promise<Launch>} */
  #launch(kernel, p, arrays) {
    return "launch" in kernel ? kernel.launch(p, ...arrays) : this.device.launch(kernel, p, ...arrays);
  }

  /** Cubes, up to half the side of a cube with the problem's volume. */
  *probes() {
    const { m, n, k, dtype } = this.problem;
    for (let side = 64; side <= Math.cbrt(m * n * k) / 2; side *= 2) {
      const cube = { m: side, n: side, k: side, dtype };
      yield { problem: cube, open: (/** @type {Kernel | Pasted} */ kernel) => this.#openCube(kernel, cube) };
    }
  }

  /** @param {Kernel | Pasted} kernel @param {Problem} cube @returns {Promise<Ready>} */
  async #openCube(kernel, cube) {
    /** @type {DeviceArray[]} */
    const arrays = [];
    const free = () => arrays.forEach((array) => array.free());
    return orFree(free, async () => {
      for (let i = 0; i < 3; i++) arrays.push(await this.device.empty([cube.m, cube.n], cube.dtype));
      return { launch: await this.#launch(kernel, cube, /** @type {any} */ (arrays)), free };
    });
  }

  /** @param {Kernel | Pasted} kernel */
  open(kernel) {
    const launch = (/** @type {DeviceArray} */ c) => this.#launch(kernel, this.problem, [this.a, this.b, c]);
    return opened(this.device, this.device.bundle.problem(this.problem), launch, (c) => this.#verdict(c));
  }

  /** @param {DeviceArray} c @returns {Promise<Verdict>} */
  async #verdict(c) {
    const { k, dtype } = this.problem;
    const error_bound = errorBound(k, dtype, this.device.bundle.index.dtypes[dtype]);
    const got = await c.read();
    const max_error = await this.checker.error(got);
    if (max_error <= error_bound) return { wrong: null, max_error, error_bound };
    const elements = await this.checker.wrong(got, error_bound);
    const words = `the largest error is ${max_error.toExponential(2)}·|A||B|, rounding explains at most ${error_bound.toExponential(2)}`;
    return { wrong: elements ? `${elements}; ${words}` : words, max_error, error_bound };
  }
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
   * @template {Stage} K
   * @param {K} kernel @param {Case<K>} on
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

  /** @template {Stage} K @param {K} kernel @param {Case<K>} on @returns {Promise<string | null>} why the kernel is skipped, or null */
  async #tooSlow(kernel, on) {
    if (this.limit === Infinity) return null;
    const rate = this.#rates.get(kernel.label) ?? (await this.#probe(kernel, on));
    const predicted = flopsOf(on.problem) / rate;
    if (predicted <= this.limit) return null;
    const speed = speedOf({ ...on.problem, gflops: rate / 1e9 }).toPrecision(2);
    return `one run would take about ${predicted.toFixed(1)} s at the ${speed} ${unitOf(on.problem)} of a smaller run; the limit is ${this.limit} s`;
  }

  /** Estimate the rate on probes of growing size, until a run takes 20 ms. @template {Stage} K @param {K} kernel @param {Case<K>} on @returns {Promise<number>} in FLOP/s */
  async #probe(kernel, on) {
    let rate = Infinity;
    for (const { problem, open } of on.probes()) {
      const seconds = await this.#oneRun(kernel.label, problem, await open(kernel));
      rate = flopsOf(problem) / seconds;
      this.#rates.set(kernel.label, rate);
      if (seconds > PROBE_TIME) break;
    }
    return rate;
  }

  /** @param {string} label @param {Task} problem @param {Ready} ready @returns {Promise<number>} seconds of the second run */
  async #oneRun(label, problem, { launch, free }) {
    const { device } = this;
    try {
      device.submit(launch, 1); // drivers compile at the first dispatch
      await within(RUN_TIMEOUT, `${label} at ${shape(problem)}`, device.synchronize());
      const start = performance.now();
      device.submit(launch, 1);
      await device.synchronize();
      return Math.max(performance.now() - start, 0.01) / 1e3;
    } finally {
      free();
    }
  }

  /** @template {Stage} K @param {K} kernel @param {Case<K>} on @param {number} slowerThan */
  async #measure(kernel, on, slowerThan) {
    const { device } = this;
    const p = on.problem;
    const { launch, verdict, free } = await on.open(kernel);
    try {
      device.submit(launch, 1);
      await within(RUN_TIMEOUT, `${kernel.label} at ${shape(p)}`, device.synchronize());
      const { wrong, ...errors } = await verdict();
      if (wrong) return device.record(kernel, p, { status: "incorrect", reason: wrong, ...errors });
      const start = performance.now();
      device.submit(launch, 1);
      await device.synchronize();
      const seconds = (performance.now() - start) / 1e3;
      if (seconds > slowerThan) {
        const reason = `one run took ${(seconds * 1e3).toPrecision(3)} ms, much longer than the best so far`;
        return device.record(kernel, p, { status: "skipped", reason, ...errors });
      }
      const timing = await device.time(launch);
      const call_us = await this.#call(launch);
      this.#rates.set(kernel.label, (flopsOf(p) / timing.median_us) * 1e6);
      const gflops = flopsOf(p) / timing.median_us / 1e3;
      const peak_fraction = this.roofline && !kernel.matrix ? gflops / this.roofline.gflops : null; // of the FMA peak
      return device.record(kernel, p, { ...timing, call_us, gflops, peak_fraction, ...errors });
    } finally {
      free();
    }
  }

  /** @param {import("./webmm.js").Launch} launch @returns {Promise<number>} median wall-clock time in µs from the submission to the end of the launch */
  async #call(launch) {
    const walls = [];
    for (let i = 0; i < CALLS; i++) {
      const start = performance.now();
      this.device.submit(launch, 1);
      await this.device.synchronize();
      walls.push(performance.now() - start);
    }
    return Math.max(walls.sort((x, y) => x - y)[Math.floor(CALLS / 2)], 0.001) * 1e3;
  }
}

/**
 * Measure the stages on one case, which is prepared first and freed at the end. Stops early when the bench's signal is aborted.
 * @template {Stage} K
 * @param {Bench} bench @param {K[]} kernels @param {Task} problem @param {() => Promise<Case<K>>} prepare
 * @param {(index: number) => void} [onStart]
 * @returns {AsyncGenerator<RunRecord>}
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
