// @ts-check
/** Dispatches on their way to the queue: several share a submission, which costs the device some 12 µs (H200). */
/** @typedef {{pipeline: GPUComputePipeline, bindGroup: GPUBindGroup, grid: [number, number, number]}} Step a dispatch */
/** @typedef {Step[]} Launch dispatches that run one after another, as one */

const [FEW, MANY] = [8, 32]; // dispatches per submission: few at first, for the device to begin, then more

/** What waits to be submitted together, of one device. */
export class Submissions {
  /** @type {GPUCommandEncoder | null} */
  #open = null;
  /** @type {GPUComputePassEncoder | null} */
  #pass = null;
  #waiting = 0;
  #most = FEW;
  #due = false; // whether the end of this turn of the event loop will submit
  /** @type {GPUComputePipeline | null} which the pass has set */
  #pipeline = null;

  /** @param {import("./guard.js").Guard} guard */
  constructor(guard) {
    this.guard = guard;
    this.wgpu = guard.wgpu;
  }

  /** @param {Launch} launch @param {number} count queue it this often, each in a pass of its own */
  submit(launch, count) {
    this.flush();
    const encoder = this.wgpu.createCommandEncoder();
    for (let i = 0; i < count; i++) encode(encoder, launch);
    this.wgpu.queue.submit([encoder.finish()]);
  }

  /**
   * Queue a dispatch: those of one turn of the event loop go together, up to `MANY` of them.
   * @param {Launch} launch
   */
  queue(launch) {
    if (!this.#pass) this.#begin();
    this.#pipeline = dispatch(/** @type {GPUComputePassEncoder} */ (this.#pass), launch, this.#pipeline);
    this.#waiting += 1;
    if (this.#waiting < this.#most) return;
    this.#most = Math.min(2 * this.#most, MANY);
    this.flush();
  }

  #begin() {
    this.#open = this.wgpu.createCommandEncoder();
    this.#pass = this.#open.beginComputePass();
    if (this.#due) return;
    this.#due = true;
    setTimeout(() => {
      this.#due = false;
      this.#most = FEW;
      this.flush();
    });
  }

  /** Submit what is queued. Happens by itself at the end of the event loop's turn, and before anything that depends on it. */
  flush() {
    if (!this.#open || !this.#pass) return;
    const encoder = this.#open;
    this.#pass.end();
    this.#open = this.#pass = this.#pipeline = null;
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

/**
 * @param {GPUComputePassEncoder} pass @param {Launch} launch @param {GPUComputePipeline | null} [set] the pipeline that is set already
 * @returns {GPUComputePipeline | null} the one that is set then
 */
function dispatch(pass, launch, set = null) {
  for (const { pipeline, bindGroup, grid } of launch) {
    if (pipeline !== set) pass.setPipeline(pipeline);
    set = pipeline;
    pass.setBindGroup(0, bindGroup);
    pass.dispatchWorkgroups(grid[0], grid[1], grid[2]);
  }
  return set;
}
