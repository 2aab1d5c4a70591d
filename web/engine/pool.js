// @ts-check
/** Buffers, and those that were freed and wait for the next arrays. */

import { MemoryLimitError, UnsupportedError } from "../errors.js";
import { grouped } from "../text.js";

const [TURNS, SMALL] = [4, 2 ** 24]; // so many buffers of up to so many bytes take turns: neighbouring results then do not wait

/** The storage of one device. */
export class Pool {
  /** @type {Map<number, GPUBuffer[]>} freed buffers, by size; those that were asked for last, or are new, stand last */
  #idle = new Map();
  #bytes = 0; // in the pool
  #last = 0; // the size that stands last
  /** Bytes of freed buffers that are kept for the next arrays. */
  most = 2 ** 30;

  /** @param {import("./guard.js").Guard} guard @param {string} name of the adapter @param {() => void} flush submits what may still use a buffer */
  constructor(guard, name, flush) {
    this.guard = guard;
    this.wgpu = guard.wgpu;
    this.name = name;
    this.flush = flush;
  }

  /** @param {number} nbytes @returns {GPUBuffer | undefined} the one that was freed first; none where a new one is better */
  idle(nbytes) {
    const size = sized(nbytes);
    const idle = this.#idle.get(size);
    if (!idle) return undefined;
    if (size !== this.#last) {
      this.#idle.delete(size);
      this.#idle.set(size, idle);
      this.#last = size;
    }
    if (size <= SMALL && idle.length < TURNS) return undefined;
    const buffer = idle.shift();
    if (buffer) this.#bytes -= size;
    return buffer;
  }

  /**
   * @param {number} nbytes rounded up to whole vec4 @param {string} [what] needs them
   * @returns {Promise<GPUBuffer>} storage of any contents: it may have served before; `give` takes it back
   */
  async take(nbytes, what = "an array") {
    const size = sized(nbytes);
    if (size > this.wgpu.limits.maxBufferSize) {
      const most = grouped(this.wgpu.limits.maxBufferSize);
      throw new UnsupportedError(`${what} needs ${grouped(size)} bytes, ${this.name} allows ${most} (maxBufferSize)`);
    }
    const idle = this.idle(nbytes);
    if (idle) return idle;
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const create = () =>
      this.guard.using(`allocating ${grouped(size)} bytes`, () => this.wgpu.createBuffer({ size, usage }));
    try {
      return await create();
    } catch (error) {
      if (!(error instanceof MemoryLimitError) || !this.#bytes) throw error;
      this.#trim(0); // what is kept for reuse may be what is missing
      return create();
    }
  }

  /**
   * Take a freed array's buffer back. A new one costs the engine a pass that clears it, a millisecond for 64 MiB.
   * @param {GPUBuffer} buffer @param {number} [nbytes] that it was taken for: to ask the engine takes longer
   */
  give(buffer, nbytes = buffer.size) {
    const size = sized(nbytes);
    const same = this.#idle.get(size);
    if (same) same.push(buffer);
    else {
      this.#idle.set(size, [buffer]);
      this.#last = size;
    }
    this.#bytes += size;
    if (this.#bytes > this.most) this.#trim();
  }

  /** Give buffers back to the engine until no more are kept, first of the sizes that were not asked for longest. */
  #trim(most = this.most) {
    this.flush(); // they may still be in use there
    for (const [size, buffers] of this.#idle) {
      while (buffers.length && this.#bytes > most) {
        buffers.shift()?.destroy();
        this.#bytes -= size;
      }
      if (buffers.length) return;
      this.#idle.delete(size);
    }
  }
}

/** @param {number} nbytes @returns {number} bytes of a buffer that holds so many: whole vec4 */
const sized = (nbytes) => Math.max(16, roundUp(nbytes, 16));

/** @param {number} value @param {number} multiple */
export const roundUp = (value, multiple) => Math.ceil(value / multiple) * multiple;
