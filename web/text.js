// @ts-check
/** Numbers and names in messages. */

/** @param {number} value @returns {string} with thousands separators */
export const grouped = (value) => value.toLocaleString("en");

/** @param {string} name in Python @returns {string} such as outDtype for out_dtype */
export const spelled = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
