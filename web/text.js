// @ts-check
/** Formatting of numbers in messages. */

/** @param {number} value @returns {string} with thousands separators */
export const grouped = (value) => value.toLocaleString("en");
