// @ts-check
/** What engines say goes wrong, as webmm's errors: lost devices, scopes, what nobody caught, and what takes too long. */

import { DeviceLostError, MemoryLimitError, TimeoutError, WebmmError, inWords } from "../errors.js";

/** Stands between the library and one WebGPU device. */
export class Guard {
  /** @type {string | null} */
  #loss = null;
  /** @type {string | null} */
  #failure = null;

  /** @param {GPUDevice} device */
  constructor(device) {
    this.wgpu = device;
    /** @type {Promise<string>} settles with the reason in words */
    this.lost = device.lost.then((info) => (this.#loss = lossInWords(info)));
    device.addEventListener?.("uncapturederror", (event) => {
      event.preventDefault();
      this.#failure = inWords(/** @type {GPUUncapturedErrorEvent} */ (event).error);
    });
  }

  /** Why the device is gone, or null while it works. */
  get loss() {
    return this.#loss;
  }

  /** Throw where the device is gone. */
  alive() {
    if (this.#loss) throw new DeviceLostError(this.#loss);
  }

  /**
   * Run `work` and turn what the engine says meanwhile into webmm's errors.
   * @template T
   * @param {string} doing @param {() => T | Promise<T>} work @returns {Promise<T>}
   */
  async using(doing, work) {
    this.alive();
    this.wgpu.pushErrorScope("out-of-memory");
    this.wgpu.pushErrorScope("validation");
    let result, thrown;
    try {
      result = work();
    } catch (error) {
      thrown = error;
    }
    const scopes = [this.wgpu.popErrorScope(), this.wgpu.popErrorScope()];
    try {
      if (thrown) throw thrown;
      const value = await /** @type {T} */ (result);
      const [invalid, noMemory] = await Promise.all(scopes);
      if (noMemory) throw new MemoryLimitError(`${doing}: the device is out of memory; use smaller matrices`);
      if (invalid) throw new WebmmError(`${doing}: ${invalid.message}`);
      return value;
    } catch (error) {
      await settled();
      this.alive();
      throw error instanceof WebmmError ? error : new WebmmError(`${doing}: ${inWords(error)}`, error);
    }
  }

  /** Throw what the engine reported since the last time, if anything. */
  report() {
    const failure = this.#failure;
    this.#failure = null;
    if (failure) throw new WebmmError(failure);
  }
}

/** @param {GPUDeviceLostInfo} info */
function lossInWords(info) {
  const message = info.message ? `: ${info.message}` : "";
  return info.reason === "destroyed" ? "the device was closed" : `the browser or driver gave the device up${message}`;
}

/**
 * @template T
 * @param {number} seconds @param {string} doing @param {Promise<T>} work
 * @returns {Promise<T>}
 */
export async function within(seconds, doing, work) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new TimeoutError(`${doing} took longer than ${seconds} s`)), seconds * 1e3);
  });
  try {
    return /** @type {T} */ (await Promise.race([work, late]));
  } finally {
    clearTimeout(timer);
  }
}

/** @returns {Promise<void>} after the engine has had its say, so that a loss is known by then */
export const settled = () => new Promise((resolve) => setTimeout(resolve, 0));
