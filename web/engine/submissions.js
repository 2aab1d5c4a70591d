/** Batching of dispatches: several share one submission, which costs the device about 12 µs (H200). */
/** @typedef {{pipeline: GPUComputePipeline, bindGroup: GPUBindGroup, grid: [number, number, number]}} Step a dispatch */
/** @typedef {Step[]} Launch dispatches that run one after another */

const [FIRST, MOST] = [8, 32]; // dispatches per submission: few at first, so that the device starts early, then more

/** The dispatches of one device that are queued for the next submission. */
export class Submissions {
  /** @type {{encoder: GPUCommandEncoder, pass: GPUComputePassEncoder, set: GPUComputePipeline | null} | null} `set` is the pipeline that the pass has set */
  #open = null;
  #waiting = 0;
  #most = FIRST;
  #due = false; // whether a submission at the end of this turn of the event loop is scheduled

  /** @param {import("./guard.js").Guard} guard */
  constructor(guard) {
    this.guard = guard;
    this.wgpu = guard.wgpu;
  }

  /** Submit commands, after what is queued. @param {(encoder: GPUCommandEncoder) => void} write */
  commands(write) {
    this.flush();
    const encoder = this.wgpu.createCommandEncoder();
    write(encoder);
    this.wgpu.queue.submit([encoder.finish()]);
  }

  /** Queue a launch: the launches of one turn of the event loop share a submission, up to `MOST` of them. @param {Launch} launch */
  queue(launch) {
    const open = (this.#open ??= this.#begin());
    open.set = dispatch(open.pass, launch, open.set);
    this.#waiting += 1;
    if (this.#waiting < this.#most) return;
    this.#most = Math.min(2 * this.#most, MOST);
    this.flush();
  }

  /** Begin a pass, which is submitted at the end of this turn at the latest. */
  #begin() {
    if (!this.#due)
      setTimeout(() => {
        this.#due = false;
        this.#most = FIRST;
        this.flush();
      });
    this.#due = true;
    const encoder = this.wgpu.createCommandEncoder();
    return { encoder, pass: encoder.beginComputePass(), set: null };
  }

  /** Submit the queued launches now. This also happens at the end of each turn of the event loop, and before every readback. */
  flush() {
    if (!this.#open) return;
    const { encoder, pass } = this.#open;
    pass.end();
    this.#open = null;
    this.#waiting = 0;
    if (!this.guard.loss) this.wgpu.queue.submit([encoder.finish()]);
  }
}

/** @param {GPUCommandEncoder} encoder @param {Launch} launch @param {GPUComputePassTimestampWrites} [timestampWrites] */
export function encode(encoder, launch, timestampWrites) {
  const pass = encoder.beginComputePass(timestampWrites ? { timestampWrites } : {});
  dispatch(pass, launch);
  pass.end();
}

/** Return the pipeline that the pass has set afterwards. @param {GPUComputePassEncoder} pass @param {Launch} launch @param {GPUComputePipeline | null} [set] that it has set before */
function dispatch(pass, launch, set = null) {
  for (const { pipeline, bindGroup, grid } of launch) {
    if (pipeline !== set) pass.setPipeline(pipeline);
    set = pipeline;
    pass.setBindGroup(0, bindGroup);
    pass.dispatchWorkgroups(grid[0], grid[1], grid[2]);
  }
  return set;
}
