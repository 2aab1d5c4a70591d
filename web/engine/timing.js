/** Timing on the device, by the protocol of webmm/engine/timing.py. */

import { encode } from "./submissions.js";

/** @import { Engine as Device } from "./engine.js" */
/** @import { Launch } from "./submissions.js" */
/** @typedef {{median_us: number, best_us: number, spread_us: number, samples: number, clock: "timestamp" | "wall"}} Timing */

/** The time of the last measurement on each device, in ms. @type {WeakMap<Device, number>} */
const timed = new WeakMap();

/** Time a launch on the device, with timestamp queries if it has them, otherwise with the wall clock. @param {Device} device @param {Launch} launch @param {number} [warmUp] in seconds */
export async function time(device, launch, warmUp = device.core.WARM_UP) {
  const { BATCH_TIME, COLD, WAKE, sample_count: sampleCount } = device.core;
  await device.synchronize();
  if (device.info.kind !== "cpu" && performance.now() - (timed.get(device) ?? -Infinity) > 1e3 * COLD) warmUp += WAKE;
  await wall(device, launch, 1); // drivers compile at the first dispatch
  let estimate = await wall(device, launch, 1);
  const batchOf = () => Math.max(1, Math.floor(BATCH_TIME / estimate));
  for (let spent = estimate; spent < warmUp;) {
    const batch = Math.min(batchOf(), 1000);
    const took = await wall(device, launch, batch);
    estimate = took / batch;
    spent += took;
  }
  const timing = await sampled(device, launch, sampleCount(estimate), batchOf());
  timed.set(device, performance.now());
  return { ...timing };
}

/** @param {Device} device @param {Launch} launch @param {number} count @param {number} batch @returns {Promise<Timing>} */
async function sampled(device, launch, count, batch) {
  const { BATCH_TIME, MIN_SAMPLES, SAMPLE_TIME, Timing, is_coarse: isCoarse } = device.core;
  if (device.features.has("timestamp-query")) {
    const ticks = await timestamps(device, launch, count, 1);
    // Browsers may round timestamps to 0.1 ms; samples are then as long as those of the wall clock.
    if (!isCoarse(ticks)) return Timing.of(ticks, "timestamp");
    const longer = await timestamps(device, launch, MIN_SAMPLES + 4, batch);
    if (longer.every((seconds) => seconds > 0)) return Timing.of(longer, "timestamp");
  }
  const walls = [];
  for (let i = 0; i < Math.min(count, SAMPLE_TIME / BATCH_TIME); i++)
    walls.push((await wall(device, launch, batch)) / batch);
  return Timing.of(walls, "wall");
}

/** @param {Device} device @param {Launch} launch @param {number} count @returns {Promise<number>} seconds from the submission to the end */
export async function wall(device, launch, count) {
  const start = performance.now();
  device.submit(launch, count);
  await device.synchronize();
  return Math.max((performance.now() - start) / 1e3, 1e-6);
}

/** @param {Device} device @param {Launch} launch @param {number} samples @param {number} batch dispatches per sample, each in its own pass @returns {Promise<number[]>} seconds per dispatch */
async function timestamps(device, launch, samples, batch) {
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
