/** Checks of call options; unknown ones are errors. */

import { ConfigError, ProblemError } from "../errors.js";
import { HostArray } from "../host.js";
import { repr } from "../python.js";

/** Throw ConfigError for an option that the call does not have. @param {string} call @param {object} options @param {readonly string[]} known */
export function checkOptions(call, options, known) {
  if (typeof options !== "object" || options === null)
    throw new ConfigError(`${call}() takes its options as an object, such as {${known[0]}: …}`);
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown) throw new ConfigError(`${call}() has no option “${unknown}”; it has ${known.join(", ")}`);
}

/** @param {string} name @param {unknown} value @param {number} otherwise the default @returns {number} throws ProblemError for anything but a number */
export function number(name, value, otherwise) {
  if (value === undefined) return otherwise;
  if (typeof value !== "number") throw new ProblemError(`${name} must be a number, not ${repr(value)}`);
  return value;
}

/** @template {string} T @param {string} what @param {unknown} value @param {Iterable<T>} known @returns {T} throws ProblemError for a value that is not known */
export function oneOf(what, value, known) {
  const names = [...known];
  if (names.includes(/** @type {T} */ (value))) return /** @type {T} */ (value);
  throw new ProblemError(`unknown ${what} “${value}”; choose from ${names.join(", ")}`);
}

/** @param {string} name @param {unknown} value by default false @returns {boolean} throws ProblemError for anything but true and false */
export function flag(name, value = false) {
  if (typeof value !== "boolean") throw new ProblemError(`${name} must be true or false, not ${JSON.stringify(value)}`);
  return value;
}

/** @template T @param {any} option @param {(option: any) => T} f @returns {T | null} a function of an option, or null if it was not given */
export const ifGiven = (option, f) => (option === undefined || option === null ? null : f(option));

/** @param {any} x data or a list @returns {any} a list of whole numbers, which has no dtype, as int32; all else as it is */
export const asIntegers = (x) =>
  [x].flat(Infinity).every((each) => each === (each | 0)) ? HostArray.from(x, { dtype: "int32" }) : x;
