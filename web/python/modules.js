/** The parts of Python's standard library that translated code uses, besides dataclasses. */

import { dict, list, prod, zip } from "./builtins.js";
import { dataclasses, provide } from "./classes.js";
import { Dict, OverflowError, PythonError, TypeError_, repr } from "./values.js";

export const json = {
  /** @param {string} text @returns {any} with a Dict for each object; throws JavaScript's SyntaxError */
  loads: (text) =>
    JSON.parse(text, (_, x) => (x && typeof x === "object" && !Array.isArray(x) ? new Dict(Object.entries(x)) : x)),
};

/** @type {Record<string, Record<string, (...x: any[]) => any>>} */
export const { typing, itertools, operator, re } = {
  typing: {
    get_args: (hint) => hint,
    get_type_hints: (cls) => new Dict(dataclasses.fields(cls).map((field) => [field.name, field.hint])),
  },
  itertools: {
    product: (...columns) =>
      columns
        .map(list)
        .reduce((rows, column) => rows.flatMap((row) => column.map((x) => [...row, x])), [/** @type {any[]} */ ([])]),
  },
  operator: {
    index(x) {
      if (!Number.isInteger(x)) throw new TypeError_(`${repr(x)} is not an integer`);
      return x;
    },
  },
  re: {
    sub: (pattern, by, text) =>
      text.replace(new RegExp(pattern, pattern.flags ?? "gu"), by.replaceAll("$", "$$$$").replace(/\\(\d)/g, "$$$1")),
  },
};

const { ceil, exp, floor, log, log2, max, min, sqrt } = Math;
const { isFinite: isfinite, isNaN: isnan } = Number;
export const math = { ceil, exp, floor, inf: Infinity, isfinite, isnan, log, log2, nan: NaN, prod, sqrt };
/** NumPy's functions, of numbers: what Python computes of arrays is computed here of one row after another. */
export const numpy = { ceil, exp, log, maximum: max, minimum: min };
provide("webmm.choose.model.by_row", (rows, names, formula) =>
  rows.map((/** @type {number[]} */ row) => formula(dict(zip(names, row)))),
);

class StructError extends PythonError {}

/** The arrays of numbers by their codes; all machines with WebGPU are little-endian. @type {Record<string, any>} */
const CODES = { I: Uint32Array, i: Int32Array, f: Float32Array, d: Float64Array };

export const struct = {
  error: StructError,
  /** @param {string} format such as "<2I" @param {...number} values @returns {Uint8Array} */
  pack(format, ...values) {
    const [, count, code] = /** @type {RegExpExecArray} */ (/^<(\d*)([Iifd])$/.exec(format));
    if (values.length !== Number(count || 1))
      throw new StructError(`${format} takes ${count || 1} values, not ${values.length}`);
    const stored = CODES[code].from(values);
    for (const [i, value] of values.entries()) {
      if (code === "f" && Number.isFinite(value) && !Number.isFinite(stored[i]))
        throw new OverflowError(`${value} is too large for float32`);
      if (/i/i.test(code) && stored[i] !== Number(value)) throw new StructError(`${value} is out of range`);
    }
    return new Uint8Array(stored.buffer);
  },
  /** @param {string} format @param {Uint8Array} data @param {number} offset @param {...number} values */
  pack_into: (format, data, offset, ...values) => data.set(struct.pack(format, ...values), offset),
  /** @param {string} format @param {Uint8Array} data @returns {number[]} */
  unpack: (format, data) => [...new CODES[format.slice(-1)](data.slice().buffer)],
};
