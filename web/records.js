// @ts-check
/** Records as documents: the schema that Python's `webmm.records` reads and writes. */

import { ProblemError } from "./errors.js";
import { RECORD_FIELDS, STATUSES } from "./webmm.js";

/** @typedef {import("./webmm.js").RunRecord} RunRecord */
/** @typedef {import("./webmm.js").Task} Task */

export const SCHEMA = "webmm.records/1";

/** In what an op's speed is told: `Op.unit` in Python. @type {Record<string, string>} */
export const UNITS = { gemm: "GFLOP/s", quantized: "GOP/s", weights: "GFLOP/s", reduce: "GB/s", normalise: "GB/s", elementwise: "GB/s" };
/** Elements moved for each that is taken; of a reduction its result, too. @type {Record<string, number>} */
const MOVED = { reduce: 1, normalise: 2, elementwise: 2 };

/** @param {Task | undefined} record @returns {string} */
export const unitOf = (record) => UNITS[record?.op ?? "gemm"] ?? "GFLOP/s";

/** @param {Task & {gflops: number | null}} record @returns {number} in that unit; GB/s are of elements read and results written */
export function speedOf({ op, dtype, n, gflops }) {
  const moved = MOVED[op ?? "gemm"];
  const bytes = dtype === "float32" ? 4 : 2;
  return (gflops ?? 0) * (moved ? bytes * (moved + (op === "reduce" ? 1 / n : 0)) : 1);
}

/** @param {RunRecord[]} records @returns {string} */
export function toJson(records) {
  const rows = records.map((record) => Object.fromEntries(RECORD_FIELDS.map((name) => [name, finite(record[name])])));
  return JSON.stringify({ schema: SCHEMA, records: rows }, null, 1) + "\n";
}

/** @param {unknown} value JSON has no infinity; as Python, say it in words */
function finite(value) {
  if (typeof value !== "number" || Number.isFinite(value)) return value;
  return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

/** @param {string} text @returns {RunRecord[]} */
export function fromJson(text) {
  let document;
  try {
    document = JSON.parse(text);
  } catch {
    throw new ProblemError("this is no JSON file; choose one that this page or “webmm bench --json” wrote");
  }
  if (document?.schema !== SCHEMA) {
    throw new ProblemError(`this is no ${SCHEMA} document${document?.schema ? `, but ${String(document.schema).slice(0, 40)}` : ""}`);
  }
  if (!Array.isArray(document.records)) throw new ProblemError("the document holds no list of records");
  return document.records.map(checked);
}

/** @param {any} row @param {number} i @returns {RunRecord} */
function checked(row, i) {
  const where = `record ${i + 1}`;
  if (row === null || typeof row !== "object") throw new ProblemError(`${where} is no object`);
  for (const name of ["kernel", "dtype", "adapter", "engine", "version", "op"]) {
    if (typeof row[name] !== "string") throw new ProblemError(`${where} has no ${name}`);
  }
  for (const name of ["m", "n", "k"]) {
    if (!Number.isSafeInteger(row[name]) || row[name] < 1) throw new ProblemError(`${where} has no valid ${name}`);
  }
  if (!STATUSES.includes(row.status)) throw new ProblemError(`${where} has the unknown status “${row.status}”`);
  for (const name of ["median_us", "best_us", "gflops", "max_error", "error_bound", "peak_fraction"]) {
    const value = row[name] ?? null;
    row[name] = typeof value === "string" && value in WORDS ? WORDS[value] : value;
    if (row[name] !== null && typeof row[name] !== "number") throw new ProblemError(`${where}: ${name} is no number`);
  }
  const config = row.config && typeof row.config === "object" ? row.config : {};
  return /** @type {RunRecord} */ ({ backend: "", driver: "", batch: 1, layout: "nn", reason: null, clock: null, ...row, config });
}

/** @type {Record<string, number>} */
const WORDS = { inf: Infinity, "-inf": -Infinity, nan: NaN };

/**
 * Pack records into a link's fragment: compressed, so that a ladder is some 2 kB.
 * @param {RunRecord[]} records @returns {Promise<string>}
 */
export async function toFragment(records) {
  const stream = new Blob([toJson(records)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** @param {string} fragment @returns {Promise<RunRecord[]>} */
export async function fromFragment(fragment) {
  let text;
  try {
    const binary = atob(fragment.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(binary, (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    text = await new Response(stream).text();
  } catch {
    throw new ProblemError("the link's results are damaged; ask for the link again");
  }
  return fromJson(text);
}
