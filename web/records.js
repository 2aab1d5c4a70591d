/** Reading and writing records, in the JSON schema of Python's `webmm.measure.records`. */

import { ProblemError } from "./errors.js";
import { json, provide } from "./python.js";

/** @import { Bundle, Python } from "./bundle.js" */
/** @import { Config } from "./kernels.js" */
/** @typedef {"ok" | "unsupported" | "compile" | "runtime" | "incorrect" | "timeout" | "skipped"} Status */
/**
 * One measurement, or the reason why there is none, in the schema webmm.records/1.
 * @typedef {{
 *   op: string, kernel: string, m: number, n: number, k: number, batch: number, dtype: string, engine: string,
 *   adapter: string, backend: string, driver: string, version: string, config: Config, layout: string, variant: string,
 *   status: Status, reason: string | null, median_us: number | null, best_us: number | null, spread_us: number | null,
 *   samples: number | null, gflops: number | null, clock: string | null, max_error: number | null,
 *   error_bound: number | null, peak_fraction: number | null, call_us?: number,
 * }} RunRecord `call_us` is not part of the schema: the wall-clock time of one call until its result is available
 */

/** What a measurement was made on. */
const DEVICE = ["adapter", "backend", "driver", "engine", "version"];

const SCHEMA = "webmm.records/1";
const MAX_UNPACKED = 2 ** 23; // bytes; a record takes about 500
provide("webmm.text.is_plain", (/** @type {string} */ text) => !/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u.test(text));
const PIECE = 2 ** 10; // compressed bytes unpacked at a time; at most a thousand times as many come out

/** @param {RunRecord[]} records @param {object} about entries of the header, such as `command` @returns {string} a header, then one record per line */
export function toJson(records, about = {}) {
  const rows = records.map(({ call_us, ...record }) => JSON.stringify(record, finite));
  const devices = new Set(records.map((record) => JSON.stringify(record, DEVICE)));
  const header = Object.entries({ schema: SCHEMA, ...about }).map(
    ([name, value]) => `"${name}": ${JSON.stringify(value)},\n`,
  );
  const lines = (/** @type {string[]} */ list) => (list.length ? `[\n${list.join(",\n")}\n]` : "[]");
  return `{\n${header.join("")}"devices": ${lines([...devices])},\n"records": ${lines(rows)}\n}\n`;
}

/** @param {string} _name @param {unknown} value JSON has no infinity and NaN; as in Python, they become strings */
function finite(_name, value) {
  if (typeof value !== "number" || Number.isFinite(value)) return value;
  return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

/** @param {string} text @param {Bundle} bundle @returns {RunRecord[]} throws ProblemError for anything but a valid document */
export function fromJson(text, { core }) {
  let document;
  try {
    document = json.loads(text);
  } catch {
    throw new ProblemError("this is not a JSON file; choose one that this page or “webmm bench --json” wrote");
  }
  const records = core.records_of(document);
  return records.map((/** @type {Python} */ each) => ({ ...each, config: Object.fromEntries(each.config) }));
}

/** Pack records into the fragment of a link, compressed: a ladder takes about 2 kB. @param {RunRecord[]} records @returns {Promise<string>} */
export async function toFragment(records) {
  const stream = new Blob([toJson(records)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const binary = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** @param {string} fragment @param {Bundle} bundle @returns {Promise<RunRecord[]>} throws ProblemError for a damaged link */
export async function fromFragment(fragment, bundle) {
  const text = await unpacked(fragment).catch((error) => {
    if (error instanceof ProblemError) throw error;
    throw new ProblemError("the link's results are damaged; ask for the link again");
  });
  return fromJson(text, bundle);
}

/** @param {string} fragment @returns {Promise<string>} */
async function unpacked(fragment) {
  const binary = atob(fragment.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(binary, (c) => c.charCodeAt(0));
  let [given, size, text] = [0, 0, ""];
  const pieces = new ReadableStream({
    pull(controller) {
      if (given < bytes.length) controller.enqueue(bytes.subarray(given, (given += PIECE)));
      else controller.close();
    },
  });
  const reader = pieces.pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const decoder = new TextDecoder();
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    size += read.value.length;
    if (size > MAX_UNPACKED) {
      const most = `${MAX_UNPACKED / 2 ** 20} MiB, more than any run's results`;
      throw new ProblemError(`the link unpacks to more than ${most}; ask for the link again`);
    }
    text += decoder.decode(read.value, { stream: true });
  }
  return text + decoder.decode();
}
