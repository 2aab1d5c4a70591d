/**
 * The runtime library of translated Python: values that compare by value, dataclasses, and the builtins and modules of the
 * subset of Python that `webmm.page.script` translates.
 *
 * None is null; int and float are numbers, tuple and list are arrays, dict is a `Dict`, set and frozenset are a `PySet`,
 * bytes is a Uint8Array. Keyword arguments are passed by `call(f, [args], {kwargs})`, to classes as well.
 */

export * from "./python/values.js";
export * from "./python/builtins.js";
export * from "./python/classes.js";
export * from "./python/modules.js";
