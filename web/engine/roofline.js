/** The measured peak rates of a device, as in webmm/measure/roofline.py. */

import { MemoryLimitError } from "../errors.js";
import { Matrix } from "../matrix.js";
import { time } from "./timing.js";

/** @import { Engine as Device } from "./engine.js" */
/** @typedef {{gflops: number, gbytes: number}} Roofline */

const COPY_WARM_UP = 0.1; // seconds, for the roofline's kernels

/** Measure the peak arithmetic and memory rates; takes about a second. @param {Device} device @returns {Promise<Roofline>} in GFLOP/s and GB/s */
export async function roofline(device) {
  const cpu = device.info.kind === "cpu";
  let gflops = 0;
  const seed = new Matrix(new Float32Array(8).fill(0.5), [2, 4]);
  for (const { settings, workgroups, invocations, flops } of device.core.fma_variants(cpu)) {
    const launch = { label: "fma", settings: Object.fromEntries(settings), workgroups, results: invocations };
    gflops = Math.max(gflops, flops / (await microkernel(device, launch, seed)) / 1e3);
  }
  return { gflops, gbytes: await copyRate(device, device.core.copy_bytes(cpu)) };
}

/** @param {Device} device @param {number} most bytes of the buffer @returns {Promise<number>} 10⁹ bytes per second, reads and writes both counted */
async function copyRate(device, most) {
  const workgroup = device.core.COPY_WORKGROUP;
  let nbytes = Math.min(most, device.limits.maxStorageBufferBindingSize, device.limits.maxBufferSize);
  for (; ; nbytes /= 2) {
    const vectors = Math.floor(nbytes / 16);
    const workgroups = Math.ceil(vectors / workgroup);
    const launch = { label: "copy", settings: { workgroup }, workgroups, results: vectors };
    try {
      return (2 * 16 * vectors) / (await microkernel(device, launch, null)) / 1e3;
    } catch (error) {
      if (!(error instanceof MemoryLimitError) || nbytes < 2 ** 24) throw error; // phones may have less memory to spare
    }
  }
}

/**
 * @param {Device} device @param {{label: string, settings: Record<string, number>, workgroups: number, results: number}} run
 * @param {Matrix | null} seed the input, or null for one as large as the output
 * @returns {Promise<number>} best time in µs
 */
async function microkernel(device, run, seed) {
  const { core } = device;
  const code = await device.bundle.text(`roofline/${run.label}.wgsl`, run.settings);
  const pipeline = await device.pipelines.of(code, run.label, core.BINDINGS);
  const result = await device.empty([run.results, 4]);
  let source = null;
  try {
    source = seed ? await device.array(seed) : await device.empty([run.results, 4]);
    const buffers = [source, result].map(({ buffer }) => ({ buffer }));
    const bindGroup = await device.launches.bind(pipeline, buffers);
    const launch = [{ pipeline, bindGroup, grid: core.fold(run.workgroups) }];
    return (await time(device, launch, COPY_WARM_UP)).best_us;
  } finally {
    source?.free();
    result.free();
  }
}
