// @ts-check
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
import { Dict, call, make } from "./python.js";

/** @typedef {import("./bundle.js").Binding} Binding */
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
/** The fields of each op's problems. */
const FIELDS = {
  gemm: [
    "m",
    "n",
    "k",
    "batch",
    "dtype",
    "outDtype",
    "transposeA",
    "transposeB",
    "bias",
    "activation",
    "alpha",
    "beta",
  ],
  quantized: [
    ...["m", "n", "k", "dtype", "bDtype", "outDtype", "transposeA", "transposeB"],
    ...["zeroA", "zeroB", "zeroC", "multiplier", "scaledRows", "scaledColumns", "bias"],
  ],
  weights: ["m", "n", "k", "bits", "block", "dtype"],
  reduce: ["operation", "rows", "columns", "dtype"],
  normalise: ["function", "rows", "columns", "dtype", "weight", "bias", "eps"],
  elementwise: ["activation", "size", "dtype"],
};

/** List the stages of an op, in the order of the ladder. @param {string} [op] "gemm" by default @returns {Promise<{name: string, summary: string}[]>} throws ProblemError for an unknown op */
export async function stages(op = "gemm", { bundle = Bundle.load() } = {}) {
  const { core } = await bundle;
  oneOf("op", op, Object.keys(FIELDS));
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
  const { core } = bundle;
  const op = oneOf("op", problem.op, Object.keys(FIELDS));
  const described = problemOf(core, op, problem);
  const settings = Object.entries(options.config ?? {}).map(([name, value]) => [name, String(value)]);
  const kernel = core.configure(stage, new Dict(/** @type {any} */ (settings)), op);
  const { dispatches, buffers, scratch, valid_for } = await bundle.stageAsData(kernel, described, options.general);
  const packed = dispatches.map((/** @type {any} */ each) => ({ ...each, uniform: Uint8Array.from(each.uniform) }));
  return { op, dispatches: packed, buffers, scratch, valid_for };
}

/** @param {any} core @param {string} op @param {any} given @returns {any} the translated problem */
function problemOf(core, op, { op: _, ...given }) {
  checkOptions(op, given, FIELDS[/** @type {keyof typeof FIELDS} */ (op)]);
  const {
    m,
    n,
    k,
    rows,
    columns,
    dtype = op === "quantized" ? "uint8" : "float32",
    batch = 1,
    transposeA = false,
    transposeB = false,
    ...others
  } = given;
  const type = core.dtype_of(dtype);
  if (op === "weights")
    return make(core.WeightOnly, [m, n, k, type, type, make(core.Operand, [k]), others.bits, others.block]);
  if (op === "elementwise") return make(core.Elementwise, [others.activation, others.size, type]);
  if (op === "reduce") return call(core.reduction, [rows, columns, others.operation], { dtype: type });
  if (op === "normalise") {
    const { operation } = core.NORMALISATIONS.get(oneOf("normalisation", others.function, core.NORMALISATIONS.keys()));
    const terms = {
      function: others.function,
      weight: others.weight ?? false,
      bias: others.bias ?? false,
      epsilon: others.eps ?? 0,
    };
    return make(core.Normalisation, [operation, rows, columns, 1, type, type, core.Span.dense(columns, 1)], terms);
  }
  const operands = [
    [transposeA ? m : k, m * k, transposeA],
    [transposeB ? k : n, k * n, transposeB],
    [n, m * n, false],
  ];
  const [a, b, c] = operands.map(([row, matrix, transposed]) => make(core.Operand, [row, matrix], { transposed }));
  if (op === "quantized") {
    const { bDtype = dtype, outDtype = "int32", zeroA = 0, zeroB = 0, zeroC = 0, multiplier = [0, 0] } = others;
    const { scaledRows = false, scaledColumns = false, bias = false } = others;
    const terms = { scaled_rows: scaledRows, scaled_columns: scaledColumns, bias };
    const scheme = { zero_a: zeroA, zero_b: zeroB, zero_c: zeroC, multiplier, ...terms };
    return make(core.Quantized, [m, n, k, type, core.dtype_of(bDtype), core.dtype_of(outDtype), a, b], scheme);
  }
  const { outDtype = dtype, bias = "", activation = "", alpha = 1, beta = 0 } = others;
  return make(core.Gemm, [m, n, k, batch, type, core.dtype_of(outDtype), a, b, c], { bias, activation, alpha, beta });
}
