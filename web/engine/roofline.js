/** The measured peak rates of a device, as in webmm/measure/roofline.py. */

import { MemoryLimitError } from "../errors.js";
import { time } from "./timing.js";

/** @import { Engine as Device } from "./engine.js" */
/** @typedef {{gflops: number, gbytes: number}} Roofline */

const COPY_WARM_UP = 0.1; // seconds, for the roofline's kernels

/** Measure the peak arithmetic and memory rates; takes about a second. @param {Device} device @returns {Promise<Roofline>} in GFLOP/s and GB/s */
export async function roofline(device) {
  const { core, limits } = device;
  const cpu = device.info.kind === "cpu";
  let gflops = 0;
  const seed = new Float32Array(8).fill(0.5);
  for (const { settings, workgroups, flops } of core.fma_variants(cpu)) {
    const us = await microkernel(device, "fma", Object.fromEntries(settings), workgroups, seed);
    gflops = Math.max(gflops, flops / us / 1e3);
  }
  const most = Math.min(core.copy_bytes(cpu), limits.maxStorageBufferBindingSize, limits.maxBufferSize);
  return { gflops, gbytes: await copyRate(device, most) };
}

/** @param {Device} device @param {number} most bytes of the buffer @returns {Promise<number>} 10⁹ bytes per second, reads and writes both counted */
async function copyRate(device, most) {
  const workgroup = device.core.COPY_WORKGROUP;
  const workgroups = Math.floor(most / 16 / workgroup);
  try {
    const us = await microkernel(device, "copy", { workgroup }, workgroups, null);
    return (2 * 16 * workgroup * workgroups) / us / 1e3;
  } catch (error) {
    if (!(error instanceof MemoryLimitError) || most < 2 ** 24) throw error;
    return copyRate(device, most / 2); // phones may have less memory to spare
  }
}

/** @param {Device} device @param {string} label @param {Record<string, number>} settings @param {number} workgroups whose invocations write a vec4 each @param {Float32Array | null} seed the input, or null for one as large as the output @returns {Promise<number>} best time in µs */
async function microkernel(device, label, settings, workgroups, seed) {
  const { bundle, core, launches, pipelines } = device;
  const pipeline = await pipelines.of(await bundle.text(`roofline/${label}.wgsl`, settings), label, core.BINDINGS);
  const shape = [workgroups * settings.workgroup, 4];
  const arrays = [];
  try {
    arrays.push(await (seed ? device.array(seed) : device.empty(shape)));
    arrays.push(await device.empty(shape));
    const resources = arrays.map(({ buffer }) => ({ buffer }));
    const step = { pipeline, bindGroup: await launches.bind(pipeline, resources), grid: core.fold(workgroups) };
    return (await time(device, [step], COPY_WARM_UP)).best_us;
  } finally {
    for (const array of arrays) array.free();
  }
}
