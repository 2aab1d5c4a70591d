/** WebGPU's failures as webmm's errors: lost devices, error scopes, uncaptured errors, and timeouts. */

import { DeviceLostError, MemoryLimitError, TimeoutError, WebmmError, inWords } from "../errors.js";

/** Watches one WebGPU device for failures. */
export class Guard {
  /** Why the device was lost, or null while it works. @type {string | null} */
  loss = null;
  #failure = "";

  /** @param {GPUDevice} device */
  constructor(device) {
    this.wgpu = device;
    /** @type {Promise<string>} resolves with the reason when the device is lost */
    this.lost = device.lost.then((info) => (this.loss = lossInWords(info)));
    device.addEventListener?.("uncapturederror", (event) => {
      event.preventDefault();
      this.#failure = inWords(/** @type {GPUUncapturedErrorEvent} */ (event).error);
    });
  }

  /** Throw DeviceLostError if the device was lost. */
  alive() {
    if (this.loss) throw new DeviceLostError(this.loss);
  }

  /** Run `work` in error scopes, and throw the errors that the engine reports as webmm's. @template T @param {string} doing the activity, for messages @param {() => T | Promise<T>} work */
  async using(doing, work) {
    this.alive();
    this.wgpu.pushErrorScope("out-of-memory");
    this.wgpu.pushErrorScope("validation");
    const result = (async () => work())(); // which begins at once, within the scopes
    const scopes = [this.wgpu.popErrorScope(), this.wgpu.popErrorScope()];
    try {
      const value = await result;
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

  /** Throw the last uncaptured error since the previous call, if there was one. */
  report() {
    const failure = this.#failure;
    this.#failure = "";
    if (failure) throw new WebmmError(failure);
  }
}

/** @param {GPUDeviceLostInfo} info */
function lossInWords(info) {
  const message = info.message ? `: ${info.message}` : "";
  return info.reason === "destroyed" ? "the device was closed" : `the browser or driver dropped the device${message}`;
}

/** Wait for `work`, but throw TimeoutError after `seconds`; the work itself goes on. @template T @param {number} seconds @param {string} doing the activity, for the message @param {Promise<T>} work */
export async function within(seconds, doing, work) {
  /** @type {Promise<never>} */
  const late = new Promise((_, reject) => {
    const refuse = () => reject(new TimeoutError(`${doing} took longer than ${seconds} s`));
    const timer = setTimeout(refuse, seconds * 1e3);
    work.finally(() => clearTimeout(timer)).catch(() => undefined); // its error is told by the race
  });
  return Promise.race([work, late]);
}

/** Make a promise once for each key; one that fails is forgotten, so that the next call tries again. @template T @param {Map<string, Promise<T>>} kept @param {string} key @param {() => Promise<T>} make @param {number} [most] of them, beyond which the oldest is forgotten @param {() => void} [forgotten] called then */
export function once(kept, key, make, most = Infinity, forgotten) {
  const known = kept.get(key);
  if (known) return known;
  const made = make();
  made.catch(() => kept.delete(key));
  kept.set(key, made);
  if (kept.size > most) {
    const [oldest] = kept.keys();
    kept.delete(oldest);
    forgotten?.();
  }
  return made;
}

/** @returns {Promise<void>} resolves after one turn of the event loop, by which time the loss of a device has been reported */
export const settled = () => new Promise((resolve) => setTimeout(resolve, 0));
