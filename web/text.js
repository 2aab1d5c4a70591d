/** Numbers and names in messages. */

/** @param {number} value @returns {string} with thousands separators */
export const grouped = (value) => value.toLocaleString("en");

/** @param {string} name of a limit in WebGPU @returns {string} in Python, such as max-buffer-size */
export const hyphened = (name) => name.replace(/(?<=[a-z])(?=[A-Z\d])/g, "-").toLowerCase();

/** @param {string} name in Python @returns {string} such as outDtype for out_dtype */
export const spelled = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
