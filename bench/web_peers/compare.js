/**
 * The comparison: every library computes the same tasks, alternately.
 *
 * For each task, the inputs are made resident in each library that has the op, the result is checked against float64, and
 * the library runs for `warmUp`, so that it has finished compiling and tuning. Then come the rounds: in each, every library
 * queues a batch of calls and waits for them once, which gives a sample of wall-clock time per call, including the
 * library's work in JavaScript. A batch lasts at least `batchTime`. The order of the libraries rotates from round to round;
 * a library that is `SLOW` times slower than the fastest runs in one round only.
 */

import { LIBRARIES } from "./libraries/index.js";
import { checkOf, flopsOf, inputsOf, nameOf } from "./tasks.js";

const MAX_BATCH = 2000;
const SLOW = 8;
const SCHEMA = "webmm.records/1";
const DEVICE = ["adapter", "backend", "driver", "engine", "version"]; // what a measurement was made on

/** `warmUp` and `batchTime` in ms; no task starts after `seconds`. @typedef {{rounds: number, warmUp: number, batchTime: number, seconds: number}} Protocol */

/**
 * @param {import("./libraries/index.js").Host} host @param {object[]} opened libraries @param {import("./tasks.js").Task[]} tasks
 * @param {Protocol & {log: (line: string) => void, keep?: (records: object[]) => void}} options
 * @returns {Promise<object[]>} records; after each task, `keep` receives the records so far
 */
export async function compare(host, opened, tasks, { log, keep = () => {}, seconds, ...protocol }) {
  const { device } = opened.find((library) => library.name === "webmm");
  const end = performance.now() + 1e3 * seconds;
  const records = [];
  for (const task of tasks) {
    if (performance.now() > end) break;
    const runs = await runsOf(task, opened, protocol);
    for (const run of runs) records.push(...(await recordsOf(run, task, host, device)));
    for (const { work } of runs) await work?.free();
    log(line(task, runs));
    keep(records);
  }
  return records;
}

/** @param {import("./libraries/index.js").Host} host @param {string | undefined} names comma-separated; all by default */
export async function openAll(host, names, log) {
  const opened = [];
  for (const name of names?.split(",") ?? Object.keys(LIBRARIES)) {
    const library = await LIBRARIES[name](host);
    log(`${library.name} ${library.version}`);
    opened.push(library);
  }
  return opened;
}

/** Run one task in all libraries; return a run per library, with its samples, or the reason why there are none. */
async function runsOf(task, opened, protocol) {
  const inputs = inputsOf(task);
  const check = checkOf(task, inputs);
  const runs = [];
  for (const library of opened) {
    const run = { library, samples: [], error: null, bound: check.bound, reason: null, status: "ok" };
    try {
      run.work = await library.prepare(task, inputs);
      if (!run.work) continue;
      await prepare(run, check, protocol);
    } catch (error) {
      run.status = error.status ?? "runtime";
      run.reason = String(error?.message ?? error);
    }
    runs.push(run);
  }
  let able = runs.filter((run) => run.status === "ok");
  for (let round = 0; round < protocol.rounds; round++) {
    for (let i = 0; i < able.length; i++) {
      const run = able[(round + i) % able.length];
      run.samples.push((await wall(run, run.batch)) / run.batch);
    }
    const fastest = Math.min(...able.map(({ samples }) => samples[0]));
    able = able.filter(({ samples }) => samples[0] < SLOW * fastest);
  }
  return runs;
}

/** Check the result, warm up, and determine the number of calls per sample. */
async function prepare(run, check, { warmUp, batchTime }) {
  run.error = check.error(await run.work.read());
  if (!(run.error <= check.bound)) throw Object.assign(new Error(`off by ${run.error}`), { status: "incorrect" });
  let batch = 1;
  let elapsed = await wall(run, batch);
  for (let spent = elapsed; spent < warmUp || (elapsed < batchTime && batch < MAX_BATCH); ) {
    elapsed = await wall(run, batch);
    spent += elapsed;
    if (elapsed < batchTime) batch = Math.min(MAX_BATCH, Math.ceil(batch * Math.min(4, (1.2 * batchTime) / elapsed)));
  }
  run.batch = batch;
}

/** @returns {Promise<number>} ms until `count` calls are done */
async function wall(run, count) {
  const start = performance.now();
  await run.work.run(count);
  await run.library.done();
  return performance.now() - start;
}

// Records and tables

const OPS = {
  gemm: ({ m, n, k }) => ({ op: "gemm", m, n, k }),
  attention: ({ heads, queries, keys, width, causal }) => ({ op: "attention", variant: causal ? "causal" : "full", m: queries, n: keys, k: width, batch: heads }),
  weights: ({ m, n, k, bits, block }) => ({ op: "weights", variant: `int${bits} block ${block}`, m, n, k }),
  softmax: ({ m, n }) => ({ op: "normalise", variant: "softmax", m, n, k: 1 }),
  layer_norm: ({ m, n }) => ({ op: "normalise", variant: "layer_norm", m, n, k: 1 }),
  sum: ({ m, n, axis }) => ({ op: "reduce", variant: "sum", ...(axis === 0 ? { m: 1, n: m, k: n } : { m, n, k: 1 }) }), // i, k, j
};

async function recordsOf(run, task, host, { info, bundle }) {
  const { kernel } = run.work ?? {};
  const { name, backend, driver } = info;
  const common = {
    variant: "", batch: task.batch ?? 1, ...OPS[task.op](task), dtype: "float32", layout: task.layout ?? "nn",
    kernel: kernel?.name ?? run.library.name, config: kernel?.config ?? {},
    engine: `${run.library.name} ${run.library.version}, ${host.name}`, adapter: name, backend, driver, version: bundle.index.version,
    status: run.status, reason: run.reason, error_bound: run.bound, max_error: run.error, peak_fraction: null,
  };
  const record = (timing) => ({ ...common, ...timing, gflops: timing.median_us ? flopsOf(task) / timing.median_us / 1e3 : null });
  const records = [record(summary(run.samples))];
  if (run.work?.time && run.status === "ok") {
    const { median_us, best_us, spread_us, samples, clock } = await run.work.time();
    if (clock === "timestamp") records.push(record({ median_us, best_us, spread_us, samples, clock }));
  }
  return records;
}

/** @param {number[]} samples ms */
function summary(samples) {
  const us = samples.map((ms) => ms * 1e3).sort((x, y) => x - y);
  if (!us.length) return { median_us: null, best_us: null, spread_us: null, samples: null, clock: null };
  const quantile = (q) => us[Math.round(q * (us.length - 1))];
  return { median_us: quantile(0.5), best_us: us[0], spread_us: quantile(0.75) - quantile(0.25), samples: us.length, clock: "wall" };
}

/** @param {object[]} records @param {object} about entries of the header @returns {string} schema webmm.records/1, one record per line */
export function document(records, about = {}) {
  const rows = records.map((record) => ({ ...record, max_error: record.max_error === Infinity ? "inf" : record.max_error }));
  const devices = new Set(rows.map((row) => JSON.stringify(Object.fromEntries(DEVICE.map((name) => [name, row[name]])))));
  const onLines = (texts) => `[\n${texts.join(",\n")}\n]`;
  const entries = Object.entries({ schema: SCHEMA, ...about }).map(([name, value]) => [name, JSON.stringify(value)]);
  entries.push(["devices", onLines([...devices])], ["records", onLines(rows.map((row) => JSON.stringify(row)))]);
  return `{\n${entries.map(([name, text]) => `"${name}": ${text}`).join(",\n")}\n}\n`;
}

/** @returns {string} such as "512³: webmm 16.5 µs, jax-js 77 µs: 4.67 × jax-js" */
function line(task, runs) {
  const each = runs.map(({ library, samples, status, reason }) => {
    const { median_us } = summary(samples);
    return `${library.name} ${median_us ? `${significant(median_us)} µs` : `${status} (${reason})`}`;
  });
  return `${nameOf(task)}: ${each.join(", ")}`;
}

/** @param {object[]} records of wall-clock time @returns {{sizes: string, times: Map<string, number>, ratio: number | null}[]} a table row per task */
function rowsOf(records) {
  /** @type {Map<string, object[]>} */
  const tasks = new Map();
  for (const record of records) tasks.set(sizesOf(record), [...(tasks.get(sizesOf(record)) ?? []), record]);
  return [...tasks].map(([sizes, alike]) => {
    const times = new Map(alike.filter((r) => r.median_us).map((r) => [r.engine.split(" ")[0], r.median_us]));
    const peers = [...times].filter(([name]) => name !== "webmm").map(([, us]) => us);
    const ours = times.get("webmm");
    return { sizes, times, ratio: ours && peers.length ? Math.min(...peers) / ours : null };
  });
}

/** @param {object[]} records @returns {string} Markdown: a table row per task, with webmm's speedup over the fastest peer, and the geometric mean of the speedups */
export function table(records) {
  const rows = rowsOf(records.filter(({ clock }) => clock !== "timestamp"));
  const names = [...new Set(rows.flatMap(({ times }) => [...times.keys()]))];
  const cells = (row) => [row.sizes, ...names.map((name) => (row.times.has(name) ? significant(row.times.get(name)) : "")), row.ratio?.toFixed(2) ?? ""];
  const ratios = rows.map(({ ratio }) => ratio).filter(Boolean);
  const mean = Math.exp(ratios.reduce((sum, ratio) => sum + Math.log(ratio), 0) / ratios.length);
  const text = (row) => `| ${row.join(" | ")} |`;
  const head = ["µs per call", ...names, "webmm × fastest peer"];
  const last = `${ratios.length} tasks: geometric mean ${mean.toFixed(2)}, least ${Math.min(...ratios).toFixed(2)}, below 1: ${ratios.filter((ratio) => ratio < 1).length}`;
  return [text(head), text(head.map(() => "---")), ...rows.map((row) => text(cells(row))), "", last].join("\n");
}

/** @param {object} record @returns {string} */
function sizesOf({ op, variant, m, n, k, batch, layout }) {
  const sizes = op === "gemm" && m === n && n === k ? `${m}³` : [m, n, k].join("×");
  return [op === "attention" ? `${variant} attention` : variant || op, `${batch > 1 ? `${batch} × ` : ""}${sizes}`, layout === "nn" ? "" : layout].filter(Boolean).join(" ");
}

const significant = (x) => Number(x.toPrecision(3)).toLocaleString("en");
