// @ts-check
/**
 * What translated Python stands on: values that compare by value, dataclasses, and the builtins and modules of the subset
 * of Python that `webmm.page.script` translates.
 *
 * None is null; int and float are numbers, tuple and list arrays, dict is a `Dict`, set and frozenset a `PySet`, bytes a
 * Uint8Array. Keyword arguments go through `call(f, [args], {kwargs})`, for classes as well.
 */

export * from "./python/values.js";
export * from "./python/text.js";
export * from "./python/iteration.js";
export * from "./python/classes.js";
export * from "./python/modules.js";
