/** Measurements for the ladders and the tuner: a kernel is checked before it is timed, and every outcome becomes a record. */

import { Checker, errorBound } from "./check.js";
import { wall } from "./engine/timing.js";
import { DeviceLostError, TimeoutError, UnsupportedError, inWords } from "./errors.js";
import { ELEMENTS } from "./host.js";
import { Matrix } from "./matrix.js";
import { Dict } from "./python.js";
import { within } from "./webmm.js";

/** @import { Device, DeviceArray, Kernel, Problem, RunRecord, Roofline, Launch, Python, Task } from "./webmm.js" */
/** @import { ElementType, HostArray } from "./host.js" */
/** @import { Pasted } from "./pasted.js" */
/** @typedef {Kernel | Pasted} Runnable */
/** @typedef {{wrong: string | null, max_error: number | null, error_bound: number}} Verdict `wrong` describes the error of a wrong result, and is null otherwise */

const RUN_TIMEOUT = 20; // seconds for one checked run
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
  /** @type {DeviceArray[]} the inputs in the order of the problem's buffers, then the result of the last launch */
  arrays = [];

  /** @param {Device} device @param {Python} of the problem @param {(result: HostArray) => Promise<Verdict>} check */
  constructor(device, of, check) {
    this.device = device;
    this.of = of;
    this.problem = taskOf(of);
    this.check = check;
  }

  /** Make the inputs, one after another. @template T @param {Iterable<T>} each @param {(one: T) => Promise<DeviceArray>} make */
  async fill(each, make) {
    try {
      for (const one of each) this.arrays.push(await make(one));
      return this;
    } catch (error) {
      this.free();
      throw error;
    }
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

  get result() {
    return this.arrays[this.arrays.length - 1];
  }

  /** Prepare a launch whose result is full of NaN or, for integers, of ones in all bits. @param {Runnable} kernel */
  async open(kernel) {
    const extent = written(this.of);
    const poison = new Uint8Array(extent.end * extent.dtype.itemsize).fill(255);
    for (const old of this.arrays.splice(this.of.buffers().length - 1)) old.free();
    this.arrays.push(await filled(this.device, poison.buffer, extent));
    return this.#launch(kernel);
  }

  /** Prepare a launch on arrays that are not filled, for a probe. @param {Runnable} kernel */
  async openEmpty(kernel) {
    await this.fill(this.of.buffers(), (/** @type {Python} */ { end, dtype }) => this.device.empty([end], dtype.name));
    return this.#launch(kernel);
  }

  /** Compute the problem once, and free the inputs. @param {Runnable} kernel */
  async compute(kernel) {
    try {
      this.device.submit(await this.open(kernel), 1);
      return await this.result.read();
    } finally {
      this.free();
    }
  }

  /** @param {Runnable} kernel @returns {Promise<Launch>} on the arrays, one for each buffer */
  #launch(kernel) {
    const { device, of, arrays } = this;
    return "launch" in kernel ? kernel.launch(of, ...arrays) : device.launch(kernel, of, ...arrays);
  }
}

/** The operands of a matrix product. */
export class Operands extends Inputs {
  /** @param {Device} device @param {Problem} p */
  static random(device, p) {
    const [a, b] = [Matrix.random(p.m, p.k, 1, p.dtype), Matrix.random(p.k, p.n, 2, p.dtype)];
    const rounding = device.bundle.index.dtypes[p.dtype];
    const [checker, bound] = [new Checker(a, b, rounding), errorBound(p.k, p.dtype, rounding)];
    const on = new Operands(device, device.bundle.problem(p), (got) => judged(device, checker, got, bound));
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

/** @param {Device} device @param {Checker} checker @param {HostArray} got @param {number} error_bound @returns {Promise<Verdict>} */
async function judged({ core }, checker, got, error_bound) {
  const max_error = await checker.error(got);
  if (max_error <= error_bound) return { wrong: null, max_error, error_bound };
  const words = [await checker.wrong(core, got, error_bound), core.excess(max_error, error_bound, "·|A||B|")];
  return { wrong: words.filter(Boolean).join("; "), max_error, error_bound };
}

/** Runs kernels, and remembers their rates in order to skip runs that would take too long. */
export class Bench {
  /** GFLOP/s, by the labels of kernels. */
  rates = new Dict();
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
    const { device } = this;
    const failed = (/** @type {unknown} */ error) => {
      if (error instanceof DeviceLostError) throw error;
      const status = error instanceof TimeoutError ? "timeout" : device.core.status_of(error);
      return { status, reason: inWords(error) };
    };
    const measuring = device.core.measured(this, kernel, on, longest);
    return device.record(kernel, on.problem, await measuring.then(Object.fromEntries, failed));
  }

  /** Check and time a kernel on a case of its own, which is freed at the end. @param {Runnable} kernel @param {Promise<Inputs>} loading */
  async measure(kernel, loading) {
    const on = await loading;
    return this.run(kernel, on).finally(() => on.free());
  }

  // What the translated steps of a measurement ask of a bench (webmm/page/measured.py)

  /** Run a kernel for the first time, when drivers compile. @param {Runnable} kernel @param {Inputs} on @param {Promise<Launch>} [opening] */
  async start(kernel, on, opening = on.open(kernel)) {
    const launch = await opening;
    this.device.submit(launch, 1);
    await within(RUN_TIMEOUT, `${kernel.label} at ${this.device.core.size_of(on.problem)}`, this.device.synchronize());
    return launch;
  }

  /** Check the result of the last launch. @param {Inputs} on */
  async verdict(on) {
    return on.check(await on.result.read());
  }

  /** @param {Runnable} kernel @param {Inputs} on a smaller case, which is freed @returns {Promise<number>} seconds of a run */
  probe(kernel, on) {
    const run = this.start(kernel, on, on.openEmpty(kernel)).then((launch) => wall(this.device, launch));
    return run.finally(() => on.free());
  }

  /** @param {Launch} launch */
  time(launch) {
    return this.device.time(launch);
  }
}

/**
 * Measure the stages on one case, which is prepared first and freed at the end. Stops early when the bench's signal is aborted.
 * @param {Bench} bench @param {Runnable[]} kernels @param {Task} problem @param {() => Promise<Inputs>} prepare
 * @param {(words: string) => void} onStart @returns {AsyncGenerator<RunRecord>}
 */
export async function* ladder(bench, kernels, problem, prepare, onStart) {
  const on = await prepare().catch((error) => {
    if (!(error instanceof UnsupportedError)) throw error;
    return /** @type {any} */ ({ problem, reason: () => error.message, free: () => {} }); // every kernel is refused
  });
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
