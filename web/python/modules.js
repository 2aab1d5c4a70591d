/** The parts of Python's standard library that translated code uses. */

import { placed, provide } from "./classes.js";
import { dict, list, zip } from "./iteration.js";
import { OverflowError, PythonError, TypeError_, isObject, repr } from "./objects.js";
import { Dict, mul } from "./values.js";

export const dataclasses = {
  MISSING: undefined,
  /** @param {any} x @returns {import("./classes.js").Field[]} */
  fields: (x) => x.__fields__ ?? x.constructor.__fields__,
  /** @param {any} x @returns {Dict} */
  asdict: (x) => new Dict(Object.entries(x).map(([name, value]) => [name, plain(value)])),
  /** @param {any} x @param {Dict | Record<string, any>} [changes] */
  replace(x, changes = {}) {
    const { constructor: cls } = x;
    const changed = placed(cls, [], changes);
    return new cls(
      ...cls.__parameters__.map((/** @type {string} */ name, /** @type {number} */ i) =>
        i in changed ? changed[i] : x[name],
      ),
    );
  },
};

/** @param {any} x @returns {any} */
function plain(x) {
  if (Array.isArray(x)) return x.map(plain);
  if (x instanceof Dict) return new Dict([...x].map(([key, value]) => [key, plain(value)]));
  return isObject(x) && x.constructor.__fields__.length ? dataclasses.asdict(x) : x;
}

export const json = {
  /** @param {string} text @returns {any} with a Dict for each object; throws JavaScript's SyntaxError */
  loads: (text) =>
    JSON.parse(text, (_, x) =>
      typeof x === "object" && x !== null && !Array.isArray(x) ? new Dict(Object.entries(x)) : x,
    ),
};

/** @type {Record<string, Record<string, (...x: any[]) => any>>} */
export const { typing, itertools, operator } = {
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
};

const { ceil, exp, floor, log, log2, max, min, sqrt } = Math;
/** @param {any} x */
const prod = (x) => list(x).reduce(mul, 1);
export const math = { ceil, exp, floor, inf: Infinity, isfinite: Number.isFinite, log, log2, nan: NaN, prod, sqrt };
/** NumPy's functions, of numbers: what Python computes of arrays is computed here of one row after another. */
export const numpy = { ceil, exp, log, maximum: max, minimum: min };
provide("webmm.choose.model.by_row", (rows, names, formula) =>
  rows.map((/** @type {number[]} */ row) => formula(dict(zip(names, row)))),
);

export const re = {
  /** @param {RegExp | string} pattern @param {string} by @param {string} text */
  sub: (pattern, by, text) =>
    text.replace(
      typeof pattern === "string" ? new RegExp(pattern, "gu") : pattern,
      by.replaceAll("$", "$$$$").replace(/\\(\d)/g, "$$$1"),
    ),
};

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
