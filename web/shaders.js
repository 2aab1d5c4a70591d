/**
 * Kernels as data, for other WebGPU programs: the equivalent of `webmm shader --json --size`, for a given problem.
 *
 *     import { shader, stages } from "webmm/shaders";
 *     const { dispatches } = await shader("tile_2d", { op: "gemm", m: 100, n: 50, k: 30 });
 *     dispatches[0].wgsl; // with its bindings, uniform, grid, features and limits
 *
 * This module opens no device and runs nothing on a GPU.
 */

import { Bundle } from "./bundle.js";
import { checkOptions, oneOf } from "./calls/options.js";
import { invoke } from "./python.js";
import { spelled } from "./text.js";

/** @import { Binding } from "./bundle.js" */
/**
 * A problem with dense operands: A is (m, k) or, with `transposeA`, (k, m); B is (k, n) or, with `transposeB`, (n, k);
 * reductions and normalisations work on the rows of a (rows, columns) matrix. Dtypes are float32 by default; those of op
 * "quantized" are uint8, with an int32 result.
 * @typedef {{op: "gemm", m: number, n: number, k: number, batch?: number, dtype?: "float32" | "float16", outDtype?: "float32" | "float16",
 *   transposeA?: boolean, transposeB?: boolean, bias?: "" | "row" | "column", activation?: string, alpha?: number, beta?: number}} Product
 * @typedef {{op: "quantized", m: number, n: number, k: number, dtype?: "int8" | "uint8", bDtype?: "int8" | "uint8",
 *   outDtype?: "int8" | "uint8" | "int32" | "float32", transposeA?: boolean, transposeB?: boolean, zeroA?: number | null,
 *   zeroB?: number | null, zeroC?: number, multiplier?: [number, number], scaledRows?: boolean, scaledColumns?: boolean,
 *   bias?: boolean}} ByteProduct fields as of Python's `Quantized`; a zero point of null is given per row or column
 * @typedef {{op: "weights", m: number, n: number, k: number, bits: 4 | 8, block: 32 | 128, dtype?: string}} WeightProduct
 * @typedef {{op: "reduce", operation: string, rows: number, columns: number, dtype?: string}} RowReduction
 * @typedef {{op: "normalise", function: "softmax" | "layer_norm" | "rms_norm", rows: number, columns: number, dtype?: string,
 *   weight?: boolean, bias?: boolean, eps?: number}} RowNormalisation
 * @typedef {{op: "elementwise", activation: string, size: number, dtype?: string}} Mapped
 */
/**
 * The sizes for which a text is right, by name: members of the uniform (k, lda, a_offset, …), `batch`, and `m*n`. A size
 * that is absent may be any. With `where`, such as "outer > 1", a condition applies only then; `equals` may name a size.
 * @typedef {Record<string, {multiple_of?: number, at_least?: number, at_most?: number, equals?: number | string, where?: string}>} ValidFor
 */
/**
 * Formulas over sizes, evaluated in the order count, y, x, z: the workgroups to dispatch are (x, y, z). They have
 * + - * /, ceil() and min(). `rule` has them in words.
 * @typedef {{count?: string, y: string, x: string, z: string, rule: string} & Record<string, any>} Grid
 */
/**
 * A dispatch: one pipeline with one bind group, whose binding 0 is a uniform buffer with the contents `uniform`. Offsets and
 * sizes are in bytes. `uniform` and `workgroups` are those of the given problem.
 * @typedef {{
 *   kernel: string, config: Record<string, number | string>, dialect: "tint", wgsl: string, entry_point: string, bindings: Binding[],
 *   params: {size: number, members: {name: string, type: string, offset: number}[]}, uniform: Uint8Array,
 *   workgroup_size: number[], grid: Grid, workgroups: [number, number, number], valid_for: ValidFor,
 *   features: string[], limits: Record<string, number>,
 * }} Dispatch
 */
/**
 * An operand or a result with its number of elements for the given problem, named like its binding; `rule` is the
 * number for any, `place` the index of an element. Buffers have a multiple of 16 bytes.
 * @typedef {{name: string, dtype: string, elements: number, written: boolean, place: string | null, rule: string | null}} Buffer
 */

/** A scratch buffer, or a scratch array texture of rgba32float, named like its binding; `rule` has its size as formulas. @typedef {{name: string, nbytes: number, rule: string} | {name: string, width: number, height: number, layers: number, rule: {width: string, height: string, layers: string}}} Scratch */

const OPTIONS = /** @type {const} */ (["op", "config", "general", "bundle"]);
/** List the stages of an op, in the order of the ladder. @param {string} [op] "gemm" by default @returns {Promise<{name: string, summary: string}[]>} throws ProblemError for an unknown op */
export async function stages(op = "gemm", { bundle = Bundle.load() } = {}) {
  const loaded = await bundle;
  oneOf("op", op, loaded.index.ops);
  const core = await loaded.op(op);
  return [...core.STAGES.get(op).values()].map(({ name, summary }) => ({ name, summary }));
}

/**
 * Render a stage for a problem.
 * @param {string} stage one of `stages()` @param {Product | ByteProduct | WeightProduct | RowReduction | RowNormalisation | Mapped} problem
 * @param {{config?: Record<string, number | string>, general?: boolean, bundle?: Bundle | Promise<Bundle>}} [options] `config`
 *   sets tunables that differ from the defaults; with `general`, the texts are right at any sizes, strides and offsets, not
 *   specialised for those of the problem
 * @returns {Promise<{op: string, dispatches: Dispatch[], buffers: Buffer[], scratch: Scratch[], valid_for: ValidFor}>}
 *   `dispatches` run one after another; `buffers` are the operands and results; `scratch` is written by one dispatch and read by
 *   the next; `valid_for` says for which sizes the texts are right, as do their headers. Throws ConfigError for an unknown
 *   stage, option or tunable, or a stage that cannot compute the problem
 */
export async function shader(stage, problem, options = {}) {
  checkOptions("shader", options, OPTIONS.slice(1));
  const bundle = await (options.bundle ?? Bundle.load());
  const op = oneOf("op", problem.op, (await bundle.module("ops.js")).FIELDS.keys());
  const described = await problemOf(bundle, op, problem);
  const kernel = bundle.configure(stage, options.config, op);
  const { dispatches, buffers, scratch, valid_for } = await bundle.stageAsData(kernel, described, options.general);
  const packed = dispatches.map((/** @type {any} */ each) => ({ ...each, uniform: Uint8Array.from(each.uniform) }));
  return { op, dispatches: packed, buffers, scratch, valid_for };
}

/** @param {Bundle} bundle @param {string} op @param {any} given @returns {Promise<any>} the problem that the op's row describes */
async function problemOf(bundle, op, { op: _, ...given }) {
  const fields = (await bundle.module("ops.js")).FIELDS.get(op);
  const names = new Map(fields.map((/** @type {string} */ name) => [spelled(name), name]));
  checkOptions(op, given, [...names.keys()]);
  const known = Object.entries(given).filter(([, value]) => value !== undefined);
  const named = Object.fromEntries(known.map(([name, value]) => [names.get(name), value]));
  return invoke(await bundle.row(op), "described", [], named);
}
