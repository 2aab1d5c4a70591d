// @ts-check
/** The parts of Python's standard library that translated code uses. */

import { Field, kwargs, provide } from "./classes.js";
import { dict, list, zip } from "./iteration.js";
import { OverflowError, PythonError, TypeError_, fieldNames, isObject, repr } from "./objects.js";
import { Dict, mul } from "./values.js";

export const dataclasses = {
  MISSING: undefined,
  /** @param {any} x @returns {Field[]} */
  fields: (x) => x.__fields__ ?? x.constructor.__fields__,
  /** @param {any} x @returns {Dict} */
  asdict: (x) => new Dict(fieldNames(x).map((name) => [name, plain(x[name])])),
  /** @param {any} x @param {Dict | Record<string, any>} [changes] */
  replace(x, changes = {}) {
    const changed = kwargs(changes);
    const names = x.constructor.__arguments__.map((/** @type {Field} */ { name }) => name);
    const unknown = [...changed.keys()].find((name) => !names.includes(name));
    if (unknown) throw new TypeError_(`${x.constructor.__name__}() takes no ${unknown}`);
    return new x.constructor(
      ...names.map((/** @type {string} */ name) => (changed.has(name) ? changed.get(name) : x[name])),
    );
  },
};

/** @param {any} x @returns {any} */
function plain(x) {
  if (Array.isArray(x)) return x.map(plain);
  if (x instanceof Dict) return new Dict([...x].map(([key, value]) => [key, plain(value)]));
  return isObject(x) && x.constructor.__fields__ ? dataclasses.asdict(x) : x;
}

export const json = {
  /** @param {string} text @returns {any} with a Dict for each object; throws JavaScript's SyntaxError */
  loads: (text) =>
    JSON.parse(text, (_, x) =>
      typeof x === "object" && x !== null && !Array.isArray(x) ? new Dict(Object.entries(x)) : x,
    ),
};

/** @type {Record<string, Record<string, (...x: any[]) => any>>} */
export const { typing, itertools, functools, operator } = {
  typing: {
    get_args: (hint) => hint,
    get_type_hints: (cls) => new Dict(dataclasses.fields(cls).map((field) => [field.name, field.hint])),
  },
  itertools: {
    product: (...columns) =>
      columns
        .map(list)
        .reduce((rows, column) => rows.flatMap((row) => column.map((x) => [...row, x])), [/** @type {any[]} */ ([])]),
    chain: (...parts) => parts.flatMap(list),
  },
  functools: {
    reduce: (f, x) => list(x).reduce((a, b) => f(a, b)),
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

const CODES = /** @type {Record<string, [number, string, number, number]>} */ ({
  I: [4, "setUint32", 0, 2 ** 32 - 1],
  i: [4, "setInt32", -(2 ** 31), 2 ** 31 - 1],
  f: [4, "setFloat32", -Infinity, Infinity],
  d: [8, "setFloat64", -Infinity, Infinity],
});

export const struct = {
  error: StructError,
  /** @param {string} format such as "<2I" @param {Uint8Array} data @param {number} offset @param {...number} values */
  pack_into(format, data, offset, ...values) {
    const [, count, code] = /** @type {RegExpExecArray} */ (/^<(\d*)([Iifd])$/.exec(format));
    const [size, setter, least, most] = CODES[code];
    const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    if (values.length !== Number(count || 1))
      throw new StructError(`${format} takes ${count || 1} values, not ${values.length}`);
    values.forEach((value, i) => {
      if (!(value >= least && value <= most) && !Number.isNaN(value)) throw new StructError(`${value} is out of range`);
      if (code === "f" && Number.isFinite(value) && !Number.isFinite(Math.fround(value)))
        throw new OverflowError(`${value} is too large for float32`);
      /** @type {any} */ (view)[setter](offset + i * size, value, true);
    });
  },
  /** @param {string} format @param {...number} values */
  pack(format, ...values) {
    const data = new Uint8Array(values.length * CODES[format.slice(-1)][0]);
    struct.pack_into(format, data, 0, ...values);
    return data;
  },
  /** @param {string} format of u32 only, such as "<2I" @param {Uint8Array} data */
  unpack(format, data) {
    if (!/^<\d*I$/.test(format)) throw new StructError(`the format ${format} is not supported by unpack()`);
    const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    return Array.from({ length: data.byteLength / 4 }, (_, i) => view.getUint32(4 * i, true));
  },
};
