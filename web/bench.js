/** Measurements for the ladders and the tuner: a kernel is checked before it is timed, and every outcome becomes a record. */

import { Checker, errorBound } from "./check.js";
import { orFree } from "./engine/guard.js";
import { wall } from "./engine/timing.js";
import { DeviceLostError, ShaderError, TimeoutError, UnsupportedError, inWords } from "./errors.js";
import { ELEMENTS } from "./host.js";
import { Matrix } from "./matrix.js";
import { within } from "./webmm.js";

/** @import { Device, DeviceArray, Kernel, Problem, RunRecord, Roofline, Launch, Python, Task } from "./webmm.js" */
/** @import { ElementType, HostArray } from "./host.js" */
/** @import { Pasted } from "./pasted.js" */
/** @typedef {Kernel | Pasted} Runnable */
/** @typedef {{wrong: string | null, max_error: number | null, error_bound: number}} Verdict `wrong` describes the error of a wrong result, and is null otherwise */

const RUN_TIMEOUT = 20; // seconds for one checked run
const CALLS = 5; // calls whose wall-clock time is measured
const PROBE_TIME = 0.02; // seconds; a probe that takes this long gives a reliable rate
const DEFAULT_LIMIT = 0.75; // seconds; a kernel whose run is predicted to take longer is skipped

/** @param {Python} problem @returns {Python} the extent of its result */
export const written = (problem) => problem.buffers().find((/** @type {Python} */ { written }) => written);

/** @param {Device} device @param {ArrayBuffer} bytes @param {any} extent of a problem's buffer @returns {Promise<DeviceArray>} an array of these bytes as that buffer */
export const filled = (device, bytes, { dtype: { name }, end }) =>
  device.array(ELEMENTS[/** @type {ElementType} */ (name)].over(bytes, end), { dtype: name });

/** @param {Python} problem @returns {Task & {op: string, flops: number}} its fields in a record */
export function taskOf(problem) {
  const [m, n, k] = problem.sizes;
  return { op: problem.op, variant: problem.variant, m, n, k, dtype: problem.dtype.name, flops: problem.flops };
}

/** A problem with its inputs on the device, whose result is checked on the CPU: as `webmm.cases.base.Case` in Python. */
export class Inputs {
  /** @type {DeviceArray[]} in the order of the problem's buffers */
  arrays = [];

  /** @param {Device} device @param {Python} of the problem @param {(result: HostArray) => Promise<Verdict>} check */
  constructor(device, of, check) {
    this.device = device;
    this.of = of;
    this.problem = taskOf(of);
    this.check = check;
  }

  /** Make the inputs, one after another. @template T @param {Iterable<T>} each @param {(one: T) => Promise<DeviceArray>} make */
  fill(each, make) {
    const fill = async () => {
      for (const one of each) this.arrays.push(await make(one));
      return this;
    };
    return orFree(() => this.free(), fill);
  }

  free() {
    for (const array of this.arrays.splice(0)) array.free();
  }

  /** @param {Runnable} kernel @returns {string | null} why it cannot run here, or null */
  reason(kernel) {
    return "launch" in kernel ? null : this.device.reason(kernel, this.of);
  }

  /** Smaller problems of the same kind, without inputs, on which the speed of a kernel is estimated: the smallest first. @returns {Iterable<Inputs>} none, for problems that take little time */
  probes() {
    return [];
  }

  /** Prepare a launch whose output is full of NaN or, for integers, of ones in all bits; `verdict` checks it after the launch has run. @param {Runnable} kernel */
  async open(kernel) {
    const extent = written(this.of);
    const poison = new Uint8Array(extent.end * extent.dtype.itemsize).fill(255);
    const result = await filled(this.device, poison.buffer, extent);
    const free = () => result.free();
    return orFree(free, async () => {
      const launch = await this.#launch(kernel, [...this.arrays, result]);
      return { launch, result, verdict: async () => this.check(await result.read()), free };
    });
  }

  /** Prepare a launch on arrays that are not filled, for a probe. @param {Runnable} kernel */
  async openEmpty(kernel) {
    await this.fill(this.of.buffers(), (/** @type {Python} */ { end, dtype }) => this.device.empty([end], dtype.name));
    const free = () => this.free();
    return orFree(free, async () => ({ launch: await this.#launch(kernel, this.arrays), free }));
  }

  /** Compute the problem once, and free the inputs. @param {Runnable} kernel */
  async compute(kernel) {
    try {
      const { launch, result } = await this.open(kernel);
      this.arrays.push(result); // to be freed as well
      this.device.submit(launch, 1);
      return await result.read();
    } finally {
      this.free();
    }
  }

  /** @param {Runnable} kernel @param {DeviceArray[]} arrays of all buffers @returns {Promise<Launch>} */
  #launch(kernel, arrays) {
    if ("launch" in kernel) return kernel.launch(this.of, arrays[0], arrays[1], arrays[2]);
    return this.device.launch(kernel, this.of, ...arrays);
  }
}

/** The operands of a matrix product. */
export class Operands extends Inputs {
  /** @param {Device} device @param {Problem} p */
  static random(device, p) {
    const [a, b] = [Matrix.random(p.m, p.k, 1, p.dtype), Matrix.random(p.k, p.n, 2, p.dtype)];
    const rounding = device.bundle.index.dtypes[p.dtype];
    const [checker, bound] = [new Checker(a, b, rounding), errorBound(p.k, p.dtype, rounding)];
    const on = new Operands(device, device.bundle.problem(p), (got) => judged(checker, got, bound));
    return on.fill([a, b], (host) => device.array(host));
  }

  /** Cubes, up to half the side of a cube with the problem's volume. */
  *probes() {
    const { m, n, k, dtype } = /** @type {Problem} */ (this.problem);
    for (let side = 64; side <= Math.cbrt(m * n * k) / 2; side *= 2) {
      const cube = this.device.bundle.problem({ m: side, n: side, k: side, dtype });
      yield new Inputs(this.device, cube, this.check);
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
   * @param {Runnable} kernel @param {Inputs} on @param {number} [longest] seconds of a first run after which a kernel is not timed
   * @returns {Promise<RunRecord>}
   */
  async run(kernel, on, longest = Infinity) {
    const without = (/** @type {RunRecord["status"]} */ status, /** @type {string} */ reason) =>
      this.device.record(kernel, on.problem, { status, reason });
    const reason = on.reason(kernel);
    if (reason) return without("unsupported", reason);
    try {
      const slow = await this.#tooSlow(kernel, on);
      if (slow) return without("skipped", slow);
      return await this.#measure(kernel, on, longest);
    } catch (error) {
      if (error instanceof DeviceLostError) throw error;
      if (error instanceof UnsupportedError) return without("unsupported", error.message);
      if (error instanceof ShaderError) return without("compile", error.message);
      if (error instanceof TimeoutError) return without("timeout", error.message);
      return without("runtime", inWords(error));
    }
  }

  /** Check and time a kernel on a case of its own, which is freed at the end. @param {Runnable} kernel @param {Promise<Inputs>} loading */
  async measure(kernel, loading) {
    const on = await loading;
    return this.run(kernel, on).finally(() => on.free());
  }

  /** @param {Runnable} kernel @param {Inputs} on @returns {Promise<string | null>} why the kernel is skipped, or null */
  async #tooSlow(kernel, on) {
    if (this.limit === Infinity) return null;
    const rate = this.#rates.get(kernel.label) ?? (await this.#probe(kernel, on));
    const predicted = on.problem.flops / rate;
    if (predicted <= this.limit) return null;
    const { speed_of, unit_of } = this.device.core;
    const speed = speed_of({ ...on.problem, gflops: rate / 1e9 }).toPrecision(2);
    return `one run would take about ${predicted.toFixed(1)} s at the ${speed} ${unit_of(on.problem)} of a smaller run; the limit is ${this.limit} s`;
  }

  /** Estimate the rate on probes of growing size, until a run takes 20 ms. @param {Runnable} kernel @param {Inputs} on @returns {Promise<number>} in FLOP/s */
  async #probe(kernel, on) {
    let rate = Infinity;
    for (const small of on.probes()) {
      const { launch, free } = await small.openEmpty(kernel);
      const run = this.#firstRun(launch, kernel.label, small.problem).then(() => wall(this.device, launch, 1));
      const seconds = await run.finally(free);
      rate = small.problem.flops / seconds;
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

  /** @param {Runnable} kernel @param {Inputs} on @param {number} longest */
  async #measure(kernel, on, longest) {
    const { device } = this;
    const p = on.problem;
    const { launch, verdict, free } = await on.open(kernel);
    try {
      await this.#firstRun(launch, kernel.label, p);
      const { wrong, ...errors } = await verdict();
      if (wrong) return device.record(kernel, p, { status: "incorrect", reason: wrong, ...errors });
      const seconds = await wall(device, launch, 1);
      if (seconds > longest) {
        const reason = `one run took ${(seconds * 1e3).toPrecision(3)} ms, much longer than the best so far`;
        return device.record(kernel, p, { status: "skipped", reason, ...errors });
      }
      const timing = await device.time(launch);
      const calls = [];
      for (let i = 0; i < CALLS; i++) calls.push(await wall(device, launch, 1));
      const call_us = calls.sort((x, y) => x - y)[Math.floor(CALLS / 2)] * 1e6;
      this.#rates.set(kernel.label, (p.flops / timing.median_us) * 1e6);
      const gflops = p.flops / timing.median_us / 1e3;
      const peak_fraction = this.roofline && !kernel.matrix ? gflops / this.roofline.gflops : null; // of the FMA peak
      return device.record(kernel, p, { ...timing, call_us, gflops, peak_fraction, ...errors });
    } finally {
      free();
    }
  }
}

/**
 * Measure the stages on one case, which is prepared first and freed at the end. Stops early when the bench's signal is aborted.
 * @param {Bench} bench @param {Runnable[]} kernels @param {Task} problem @param {() => Promise<Inputs>} prepare
 * @param {(words: string) => void} onStart @returns {AsyncGenerator<RunRecord>}
 */
export async function* ladder(bench, kernels, problem, prepare, onStart) {
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
      onStart(`${kernel.label} at ${bench.device.core.size_of(problem)}, ${i + 1} of ${kernels.length} …`);
      yield await bench.run(kernel, on);
    }
  } finally {
    on.free();
  }
}
