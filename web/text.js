// @ts-check
/** Numbers in words. */

/** @param {number} value */
export const grouped = (value) => value.toLocaleString("en");
