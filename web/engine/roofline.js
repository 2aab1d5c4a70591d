/** The measured peak rates of a device: what the translated steps of webmm/measure/roofline.py ask of it. */

import { provide } from "../python.js";
import { time } from "./timing.js";

/** @import { Dict } from "../python.js" */
/** @import { Engine as Device } from "./engine.js" */
/** @typedef {{gflops: number, gbytes: number}} Roofline */

/** @param {Device} device @param {"fma" | "copy"} name @param {Dict} settings @param {number} workgroups @param {number[]} seconds of warm-up and of timing @returns {Promise<number>} the best time, in µs, of a kernel that copies a vec4 per invocation, or makes it of eight numbers */
async function bestUs(device, name, settings, workgroups, seconds) {
  const { bundle, core, launches, pipelines } = device;
  const text = await bundle.text(`roofline/${name}.wgsl`, Object.fromEntries(settings));
  const pipeline = await pipelines.of(text, name, core.BINDINGS);
  const shape = [workgroups * settings.get("workgroup"), 4];
  const arrays = [];
  try {
    arrays.push(await (name === "copy" ? device.empty(shape) : device.array(Array(8).fill(0.5))));
    arrays.push(await device.empty(shape));
    const resources = arrays.map(({ buffer }) => ({ buffer }));
    const step = { pipeline, bindGroup: await launches.bind(pipeline, resources), grid: core.fold(workgroups) };
    return (await time(device, [step], ...seconds)).best_us;
  } finally {
    for (const array of arrays) array.free();
  }
}

provide("webmm.measure.roofline.best_us", bestUs);
