/** The buffer pool: storage buffers, and freed ones that are kept for reuse. */

import { MemoryLimitError, UnsupportedError } from "../errors.js";
import { grouped } from "../text.js";

// Keep at least TURNS buffers of up to SMALL bytes in rotation, so that consecutive results do not wait for each other.
export const TURNS = 4;
const SMALL = 2 ** 24;

/** The buffer pool of one device. */
export class Pool {
  /** @type {Map<number, GPUBuffer[]>} idle buffers by size, the least recently used size first */
  #idle = new Map();
  #bytes = 0; // of all idle buffers
  #last = 0; // the most recently used size
  /** The limit of the idle buffers' total size, in bytes. */
  limit = 2 ** 30;

  /** @param {import("./guard.js").Guard} guard @param {string} name of the adapter @param {() => void} flush submits queued work, which may use a freed buffer */
  constructor(guard, name, flush) {
    this.guard = guard;
    this.wgpu = guard.wgpu;
    this.name = name;
    this.flush = flush;
  }

  /** @param {number} nbytes @returns {GPUBuffer | undefined} the idle buffer of this size that was freed first, or undefined if a new one should be allocated */
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
   * Take a storage buffer, an idle one if possible.
   * @param {number} nbytes rounded up to whole vec4 @param {string} [what] needs them, for messages
   * @returns {Promise<GPUBuffer>} with arbitrary contents; return it with `give()`. Throws UnsupportedError for a size
   *   above maxBufferSize, MemoryLimitError if the device is out of memory
   */
  async take(nbytes, what = "an array") {
    const size = sized(nbytes);
    if (size > this.wgpu.limits.maxBufferSize) {
      const limit = grouped(this.wgpu.limits.maxBufferSize);
      throw new UnsupportedError(`${what} needs ${grouped(size)} bytes, ${this.name} allows ${limit} (maxBufferSize)`);
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
      this.#trim(0); // the idle buffers may hold the memory that is needed
      return create();
    }
  }

  /** Return the buffer of a freed array: new ones are cleared first, a millisecond for 64 MiB. @param {GPUBuffer} buffer @param {number} [nbytes] the size that was requested; asking the engine for it takes longer */
  give(buffer, nbytes = buffer.size) {
    const size = sized(nbytes);
    const same = this.#idle.get(size);
    if (same) same.push(buffer);
    else {
      this.#idle.set(size, [buffer]);
      this.#last = size;
    }
    this.#bytes += size;
    if (this.#bytes > this.limit) this.#trim();
  }

  /** Destroy idle buffers until at most `limit` bytes are left, beginning with the least recently used size. */
  #trim(limit = this.limit) {
    this.flush(); // queued work may use them
    for (const [size, buffers] of this.#idle) {
      while (buffers.length && this.#bytes > limit) {
        buffers.shift()?.destroy();
        this.#bytes -= size;
      }
      if (buffers.length) return;
      this.#idle.delete(size);
    }
  }
}

/** @param {number} nbytes @returns {number} the size of a buffer for that many bytes: whole vec4 */
export const sized = (nbytes) => Math.max(16, roundUp(nbytes, 16));

/** @param {number} value @param {number} multiple */
export const roundUp = (value, multiple) => Math.ceil(value / multiple) * multiple;
