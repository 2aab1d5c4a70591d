// @ts-check
/** Options of calls: what is not known is never ignored. */

import { ConfigError } from "../errors.js";

/**
 * Throw ConfigError for an option that the call does not have.
 * @param {string} call @param {object} options @param {readonly string[]} known
 */
export function checkOptions(call, options, known) {
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown) throw new ConfigError(`${call}() has no option “${unknown}”; it has ${known.join(", ")}`);
}
