/** Timing on the device: what the translated rule of webmm/engine/timing.py asks of it. */

import { call, provide } from "../python.js";
import { encode } from "./submissions.js";

/** @import { Engine as Device } from "./engine.js" */
/** @import { Launch } from "./submissions.js" */
/** @typedef {{median_us: number, best_us: number, spread_us: number, samples: number, clock: "timestamp" | "wall"}} Timing */

/** The time of the last measurement on each device, in ms. @type {WeakMap<Device, number>} */
const timed = new WeakMap();

/** Time a launch on the device, with timestamp queries if it has them, otherwise with the wall clock. @param {Device} device @param {Launch} launch @param {...(number | undefined)} seconds of warm-up, and of all samples @returns {Promise<Timing>} */
export async function time(device, launch, ...seconds) {
  const clock = device.features.has("timestamp-query") ? "timestamp" : "wall";
  return { ...(await call(device.core.time_launch, [device, launch, ...seconds], { clock })) };
}

/** @param {Device} device @returns {Promise<number>} seconds since it was last timed, once it has done its work */
async function rested(device) {
  await device.synchronize();
  return (performance.now() - (timed.get(device) ?? -Infinity)) / 1e3;
}

/** @param {Device} device @param {Launch} launch @param {number} [count] @returns {Promise<number>} seconds from the submission to the end */
export async function wall(device, launch, count = 1) {
  const start = performance.now();
  device.submit(launch, count);
  await device.synchronize();
  return Math.max((performance.now() - start) / 1e3, 1e-6);
}

/** @param {Device} device @param {Launch} launch @param {number} samples @param {number} batch @returns {Promise<number[]>} seconds per dispatch; of batches, if timestamps are rounded as some browsers do; none if they are too coarse for these */
async function timestamps(device, launch, samples, batch) {
  const ticks = await sampled(device, launch, samples, 1);
  if (!device.core.is_coarse(ticks)) return ticks;
  const longer = await sampled(device, launch, device.core.MIN_SAMPLES + 4, batch);
  return longer.every((seconds) => seconds > 0) ? longer : [];
}

const mark = (/** @type {Device} */ device) => timed.set(device, performance.now());
for (const [name, f] of Object.entries({ rested, mark, wall, timestamps })) provide(`webmm.engine.timing.${name}`, f);

/** @param {Device} device @param {Launch} launch @param {number} samples @param {number} batch dispatches per sample, each in its own pass @returns {Promise<number[]>} seconds per dispatch */
async function sampled(device, launch, samples, batch) {
  const [queries, resolved] = await device.guard.using("timing", () => [
    device.wgpu.createQuerySet({ type: "timestamp", count: 2 * samples }),
    device.wgpu.createBuffer({ size: 16 * samples, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC }),
  ]);
  try {
    for (let i = 0; i < samples; i++)
      device.submissions.commands((encoder) => {
        for (let j = 0; j < batch; j++) {
          /** @type {GPUComputePassTimestampWrites} */
          const writes = { querySet: queries };
          if (j === 0) writes.beginningOfPassWriteIndex = 2 * i;
          if (j === batch - 1) writes.endOfPassWriteIndex = 2 * i + 1;
          encode(encoder, launch, j === 0 || j === batch - 1 ? writes : undefined);
        }
      });
    device.submissions.commands((encoder) => encoder.resolveQuerySet(queries, 0, 2 * samples, resolved, 0));
    const ticks = new BigInt64Array(await device.read(resolved, 16 * samples));
    return Array.from({ length: samples }, (_, i) => Number(ticks[2 * i + 1] - ticks[2 * i]) / 1e9 / batch);
  } finally {
    queries.destroy();
    resolved.destroy();
  }
}
