/**
 * The errors that webmm throws, as in webmm/errors.py.
 *
 *     WebmmError
 *     ├── ProblemError       invalid operands: shapes, dtypes, sizes, unreadable files
 *     ├── ConfigError        invalid settings: unknown option, kernel or tile sizes
 *     ├── UnsupportedError   a limit or feature of this device does not suffice; the message names it
 *     │   └── NoAdapterError no WebGPU, or no adapter
 *     ├── MemoryLimitError   the device is out of memory
 *     ├── DeviceLostError    the device was lost; the message says why
 *     ├── FreedArrayError    an array was used after `free()`
 *     ├── TimeoutError       a compilation or run took too long
 *     └── ShaderError        the engine rejected a shader
 */

export class WebmmError extends Error {
  /** @param {string} message @param {unknown} [cause] */
  constructor(message, cause) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
  }
}
export class ProblemError extends WebmmError {}
export class ConfigError extends WebmmError {}
export class UnsupportedError extends WebmmError {}
export class NoAdapterError extends UnsupportedError {}
export class MemoryLimitError extends WebmmError {}
export class DeviceLostError extends WebmmError {}
export class FreedArrayError extends WebmmError {}
export class TimeoutError extends WebmmError {}
export class ShaderError extends WebmmError {}

/** @param {unknown} error @returns {string} its message */
export function inWords(error) {
  return error instanceof Error ? error.message : String(error);
}
