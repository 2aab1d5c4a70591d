// @ts-check
/** Running kernels as the ladder and the tuner do: checked before they are timed, with a record for every outcome. */

import { Checker, errorBound } from "./check.js";
import { DeviceLostError, ShaderError, TimeoutError, UnsupportedError, inWords } from "./errors.js";
import { Matrix } from "./matrix.js";
import { flopsOf, within } from "./webmm.js";

/** @typedef {import("./webmm.js").Device} Device */
/** @typedef {import("./webmm.js").DeviceArray} DeviceArray */
/** @typedef {import("./webmm.js").Kernel} Kernel */
/** @typedef {import("./webmm.js").Problem} Problem */
/** @typedef {import("./webmm.js").RunRecord} RunRecord */
/** @typedef {import("./webmm.js").Roofline} Roofline */

const RUN_TIMEOUT = 20; // seconds for one checked run
const PROBE_TIME = 0.02; // seconds: a cube that takes this long tells the rate

/** Seconds that one run may take before a combination is left out. */
export const DEFAULT_LIMIT = 0.75;

/** One problem's matrices, on both sides, with their product checked against the host's. */
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
    try {
      return new Operands(device, p, a, await device.array(hostB), checker);
    } catch (error) {
      a.free();
      throw error;
    }
  }

  free() {
    this.a.free();
    this.b.free();
  }
}

/** Runs kernels and remembers how fast each was, so that what would take minutes is left out. */
export class Bench {
  /** @type {Map<Kernel, number>} operations per second */
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
   * A record of `kernel` on the operands: checked and timed, or why not. Throws only where the device is lost.
   * @param {Kernel} kernel @param {Operands} operands
   * @param {{slowerThan?: number}} [options] skip what one run shows to take longer than this, in seconds
   * @returns {Promise<RunRecord>}
   */
  async run(kernel, operands, options = {}) {
    const p = operands.problem;
    const without = (/** @type {RunRecord["status"]} */ status, /** @type {string} */ reason) =>
      this.device.record(kernel, p, { status, reason });
    const reason = this.device.reason(kernel, p);
    if (reason) return without("unsupported", reason);
    try {
      const slow = await this.#tooSlow(kernel, p);
      if (slow) return without("skipped", slow);
      return await this.#measure(kernel, operands, options.slowerThan ?? Infinity);
    } catch (error) {
      if (error instanceof DeviceLostError) throw error;
      if (error instanceof UnsupportedError) return without("unsupported", error.message);
      if (error instanceof ShaderError) return without("compile", error.message);
      if (error instanceof TimeoutError) return without("timeout", error.message);
      return without("runtime", inWords(error));
    }
  }

  /** @param {Kernel} kernel @param {Problem} p @returns {Promise<string | null>} */
  async #tooSlow(kernel, p) {
    const rate = this.#rates.get(kernel) ?? (await this.#probe(kernel, p));
    const predicted = flopsOf(p) / rate;
    if (predicted <= this.limit) return null;
    const speed = (rate / 1e9).toPrecision(2);
    return `one run would take about ${predicted.toFixed(1)} s at the ${speed} GFLOP/s reached before; the limit is ${this.limit} s`;
  }

  /** The rate on a growing cube, until a run takes 20 ms or the cube is half as long as the problem. @param {Kernel} kernel @param {Problem} p */
  async #probe(kernel, p) {
    const length = Math.cbrt(p.m * p.n * p.k);
    let rate = Infinity;
    for (let n = 64; n <= length / 2; n *= 2) {
      const cube = { m: n, n, k: n, dtype: p.dtype };
      const seconds = await this.#oneRun(kernel, cube);
      rate = flopsOf(cube) / seconds;
      this.#rates.set(kernel, rate);
      if (seconds > PROBE_TIME) break;
    }
    return rate;
  }

  /** @param {Kernel} kernel @param {Problem} cube @returns {Promise<number>} seconds of a second run */
  async #oneRun(kernel, cube) {
    const { device } = this;
    const arrays = [];
    try {
      for (let i = 0; i < 3; i++) arrays.push(await device.empty([cube.m, cube.n], cube.dtype));
      const launch = await device.launch(kernel, cube, arrays[0], arrays[1], arrays[2]);
      device.submit(launch, 1); // drivers compile at the first dispatch
      await within(RUN_TIMEOUT, `${kernel.label} at ${cube.m}³`, device.synchronize());
      const start = performance.now();
      device.submit(launch, 1);
      await device.synchronize();
      return Math.max(performance.now() - start, 0.01) / 1e3;
    } finally {
      for (const array of arrays) array.free();
    }
  }

  /** @param {Kernel} kernel @param {Operands} operands @param {number} slowerThan */
  async #measure(kernel, operands, slowerThan) {
    const { device } = this;
    const p = operands.problem;
    const c = await this.#poisoned(p);
    try {
      const launch = await device.launch(kernel, p, operands.a, operands.b, c);
      device.submit(launch, 1);
      await within(RUN_TIMEOUT, `${kernel.label} at ${p.m}×${p.n}×${p.k}`, device.synchronize());
      const bound = errorBound(p.k, p.dtype, device.bundle.index.dtypes[p.dtype]);
      const error = await operands.checker.error(await c.read());
      if (!(error <= bound)) {
        const reason = `the largest error is ${error.toExponential(2)}·|A||B|, rounding explains at most ${bound.toExponential(2)}`;
        return device.record(kernel, p, { status: "incorrect", reason, max_error: error, error_bound: bound });
      }
      const start = performance.now();
      device.submit(launch, 1);
      await device.synchronize();
      const seconds = (performance.now() - start) / 1e3;
      if (seconds > slowerThan) {
        const reason = `one run took ${(seconds * 1e3).toPrecision(3)} ms, far from the best so far`;
        return device.record(kernel, p, { status: "skipped", reason, max_error: error, error_bound: bound });
      }
      const timing = await device.time(launch);
      this.#rates.set(kernel, (flopsOf(p) / timing.median_us) * 1e6);
      return this.#ok(kernel, p, timing, error, bound);
    } finally {
      c.free();
    }
  }

  /** An output full of NaN, so that an element left out shows. @param {Problem} p @returns {Promise<DeviceArray>} */
  async #poisoned(p) {
    const count = p.m * p.n;
    const data = p.dtype === "float16" ? new Uint16Array(count).fill(0x7e00) : new Float32Array(count).fill(NaN);
    return this.device.array(new Matrix(data, [p.m, p.n], p.dtype));
  }

  /**
   * @param {Kernel} kernel @param {Problem} p @param {import("./webmm.js").Timing} timing
   * @param {number} error @param {number} bound
   */
  #ok(kernel, p, timing, error, bound) {
    const gflops = flopsOf(p) / timing.median_us / 1e3;
    return this.device.record(kernel, p, {
      median_us: timing.median_us,
      best_us: timing.best_us,
      gflops,
      clock: timing.clock,
      max_error: error,
      error_bound: bound,
      peak_fraction: this.roofline && gflops / this.roofline.gflops,
    });
  }
}

/**
 * Measure kernels over problems, smallest first; ends early when the bench's signal says so.
 * @param {Bench} bench @param {Kernel[]} kernels @param {Problem[]} problems
 * @param {(kernel: Kernel, problem: Problem, done: number, total: number) => void} [onStart]
 * @returns {AsyncGenerator<RunRecord>}
 */
export async function* ladder(bench, kernels, problems, onStart = () => {}) {
  const ordered = [...problems].sort((p, q) => flopsOf(p) - flopsOf(q));
  const total = kernels.length * ordered.length;
  let done = 0;
  for (const problem of ordered) {
    if (bench.signal?.aborted) return;
    let operands;
    try {
      operands = await Operands.random(bench.device, problem);
    } catch (error) {
      if (!(error instanceof UnsupportedError)) throw error;
      for (const kernel of kernels) {
        yield bench.device.record(kernel, problem, { status: "unsupported", reason: error.message });
      }
      done += kernels.length;
      continue;
    }
    try {
      for (const kernel of kernels) {
        if (bench.signal?.aborted) return;
        onStart(kernel, problem, done++, total);
        yield await bench.run(kernel, operands);
      }
    } finally {
      operands.free();
    }
  }
}

/**
 * Search the bundle's configurations for the fastest within `budget` seconds: recommended ones first, then neighbours
 * of the best so far in turn with others drawn at random.
 * @param {Bench} bench @param {Problem} problem @param {number} budget
 * @param {(kernel: Kernel, done: number, total: number) => void} [onStart]
 * @returns {AsyncGenerator<RunRecord>}
 */
export async function* tune(bench, problem, budget, onStart = () => {}) {
  const { device } = bench;
  const operands = await Operands.random(device, problem);
  const started = performance.now();
  const left = untried(device, problem);
  const total = left.length;
  /** @type {{kernel: Kernel, seconds: number} | null} */
  let best = null;
  try {
    for (let turn = 0; left.length > 0; turn++) {
      if (bench.signal?.aborted || performance.now() - started > budget * 1e3) return;
      /** @type {Kernel} */
      const kernel = left.splice(next(left, best?.kernel ?? null, turn), 1)[0];
      onStart(kernel, turn, total);
      const record = await bench.run(kernel, operands, { slowerThan: best ? 2.5 * best.seconds + 0.001 : Infinity });
      if (record.median_us && (!best || record.median_us / 1e6 < best.seconds)) {
        best = { kernel, seconds: record.median_us / 1e6 };
      }
      yield record;
    }
  } finally {
    operands.free();
  }
}

/** Every configuration of the bundle, what `choose` would take first, then each stage's default from the last stage back. @param {Device} device @param {Problem} problem */
function untried(device, problem) {
  const stages = [...device.bundle.kernels.values()];
  const chosen = device.choose(problem);
  const defaults = [...device.bundle.kernels.keys()].map((name) => device.stage(name)).reverse();
  const others = stages.flat();
  return [...new Set([chosen, ...defaults, ...others])];
}

/** Where in `left` the next candidate stands. @param {Kernel[]} left @param {Kernel | null} best @param {number} turn */
function next(left, best, turn) {
  if (!best || turn <= new Set(left.map((kernel) => kernel.name)).size) return 0; // the chosen one and each stage come first
  if (turn % 3 === 0) return (turn * 7919) % left.length;
  const distance = (/** @type {Kernel} */ kernel) =>
    kernel.stage.tunables.filter((t) => kernel.config[t.name] !== best.config[t.name]).length + (kernel.name === best.name ? 0 : 4);
  let nearest = 0;
  left.forEach((kernel, i) => {
    if (distance(kernel) < distance(left[nearest])) nearest = i;
  });
  return nearest;
}
