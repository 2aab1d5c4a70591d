/**
 * The comparison: every library computes the same products, in turns.
 *
 * Per size: A and B are made resident in each library, C is checked against float64, then each runs for 0.2 s so that
 * whatever it compiles or tunes is done. Then come rounds; in each, every library queues a batch of products and waits
 * for them once, which is a sample of wall time per call, the library's own work in JavaScript included. A batch lasts
 * 50 ms at least. Who goes first changes from round to round.
 */

import { LIBRARIES } from "./libraries.js";

const WARM_UP = 200; // ms
const BATCH_TIME = 50; // ms that a sample lasts at least
const MAX_BATCH = 2000;
const SCHEMA = "webmm.records/1";

/** @param {string} text such as "512,333x257x129" @returns {{m: number, n: number, k: number}[]} */
function parseSizes(text) {
  return text.split(",").map((size) => {
    const [m, n = m, k = n] = size.split(/[x×]/).map(Number);
    return { m, n, k };
  });
}

/**
 * @param {import("./libraries.js").Host} host
 * @param {{sizes: string, rounds: number, libraries?: string, log: (line: string) => void}} options
 * @returns {Promise<object[]>} records
 */
export async function compare(host, { sizes, rounds, libraries, log }) {
  const { Matrix, Checker, errorBound } = await import(`${host.page}/webmm.js`);
  const opened = await openAll(host, libraries?.split(",") ?? Object.keys(LIBRARIES), log);
  const { info, bundle } = opened.find((library) => library.name === "webmm").device;
  const rounding = bundle.index.dtypes.float32;
  const records = [];
  for (const { m, n, k } of parseSizes(sizes)) {
    const [a, b] = [Matrix.random(m, k, 1), Matrix.random(k, n, 2)];
    const checker = new Checker(a, b, rounding);
    const bound = errorBound(k, "float32", rounding);
    const runs = [];
    for (const library of opened) {
      const run = { library, samples: [], error: null, reason: null, status: "ok" };
      runs.push(run);
      try {
        await prepare(run, a, b, checker);
        if (!(run.error <= bound)) throw Object.assign(new Error(`off by ${run.error}·|A|·|B|`), { status: "incorrect" });
      } catch (error) {
        run.status = error.status ?? "runtime";
        run.reason = String(error?.message ?? error);
      }
      log(`${m}x${n}x${k} ${library.name}: ${run.reason ?? `${run.batch} calls per sample`}`);
    }
    const able = runs.filter((run) => run.status === "ok");
    for (let round = 0; round < rounds; round++) {
      for (let i = 0; i < able.length; i++) {
        const run = able[(round + i) % able.length];
        run.samples.push((await wall(run, run.batch)) / run.batch);
      }
    }
    const base = { op: "gemm", m, n, k, batch: 1, dtype: "float32", adapter: info.name, backend: info.backend, driver: info.driver };
    for (const run of runs) {
      const { kernel } = run.product ?? {};
      const common = {
        ...base,
        kernel: kernel?.name ?? run.library.name,
        engine: `${run.library.name} ${run.library.version}, ${host.name}`,
        version: bundle.index.version,
        config: kernel?.config ?? {},
        error_bound: bound,
        max_error: run.error,
      };
      records.push(record(common, run, summary(run.samples, "wall")));
      if (run.product?.time && run.status === "ok") {
        const timing = await run.product.time();
        if (timing.clock === "timestamp") records.push(record(common, run, timing));
      }
      run.product?.free();
    }
  }
  return records;
}

async function openAll(host, names, log) {
  const opened = [];
  for (const name of names) {
    const library = await LIBRARIES[name](host);
    log(`${library.name} ${library.version}`);
    opened.push(library);
  }
  return opened;
}

/** Make the operands resident, check the product, warm up, and see how many calls make a sample. */
async function prepare(run, a, b, checker) {
  run.product = await run.library.product(a, b);
  const c = await run.product.read();
  run.error = await checker.error({ dtype: "float32", floats: () => c });
  let batch = 1;
  let elapsed = await wall(run, batch);
  for (let spent = 0; spent < WARM_UP || (elapsed < BATCH_TIME && batch < MAX_BATCH); ) {
    elapsed = await wall(run, batch);
    spent += elapsed;
    if (elapsed < BATCH_TIME) batch = Math.min(MAX_BATCH, Math.ceil(batch * Math.min(4, (1.2 * BATCH_TIME) / elapsed)));
  }
  run.batch = batch;
}

/** @returns {Promise<number>} ms until `count` products are done */
async function wall(run, count) {
  const start = performance.now();
  await run.product.run(count);
  await run.library.done();
  return performance.now() - start;
}

function summary(samples, clock) {
  const us = samples.map((ms) => ms * 1e3).sort((x, y) => x - y);
  const middle = us.length >> 1;
  const median_us = us.length % 2 ? us[middle] : (us[middle - 1] + us[middle]) / 2;
  return us.length ? { median_us, best_us: us[0], clock } : { median_us: null, best_us: null, clock: null };
}

function record(common, run, { median_us, best_us, clock }) {
  const gflops = median_us ? (2 * common.m * common.n * common.k) / median_us / 1e3 : null;
  return { ...common, status: run.status, reason: run.reason, median_us, best_us, gflops, clock, peak_fraction: null };
}

/** @param {object[]} records @returns {string} schema webmm.records/1 */
export function document(records) {
  return JSON.stringify({ schema: SCHEMA, records }, null, 1) + "\n";
}

/** @param {object[]} records @returns {string} a Markdown table: a row per library, a column per size */
export function table(records) {
  const walls = records.filter((r) => r.clock !== "timestamp");
  const sizes = [...new Set(walls.map(sizeOf))];
  const libraries = [...new Set(walls.map((r) => r.engine.split(",")[0]))];
  const find = (library, size) => walls.find((r) => r.engine.startsWith(library) && sizeOf(r) === size);
  const cell = (r) => (r?.gflops ? `${ms(r.median_us)} (${ms(r.best_us)}) ms, ${significant(r.gflops)}` : (r?.status ?? ""));
  const rows = libraries.map((library) => [library, ...sizes.map((size) => cell(find(library, size)))]);
  const ratio = (size, key) => {
    const ours = find("webmm", size);
    const peers = libraries.filter((name) => !name.startsWith("webmm")).map((name) => find(name, size)?.[key]);
    const fastest = Math.min(...peers.filter(Boolean));
    return ours?.[key] && Number.isFinite(fastest) ? (fastest / ours[key]).toFixed(2) : "";
  };
  rows.push(["**webmm × fastest peer**", ...sizes.map((size) => `${ratio(size, "median_us")} (${ratio(size, "best_us")})`)]);
  const device = sizes.map((size) => records.find((r) => r.clock === "timestamp" && sizeOf(r) === size));
  const kernels = sizes.map((size) => find("webmm", size));
  rows.push(["webmm's kernel", ...kernels.map((r) => (r ? `${r.kernel} ${Object.entries(r.config).map((e) => e.join("=")).join(" ")}` : ""))]);
  if (device.some(Boolean)) rows.push(["on the device alone", ...device.map((r) => (r ? `${ms(r.median_us)} ms, ${significant(r.gflops)}` : ""))]);
  const line = (cells) => `| ${cells.join(" | ")} |`;
  const head = ["median (best), GFLOP/s", ...sizes];
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}

const sizeOf = (r) => (r.m === r.n && r.n === r.k ? `${r.m}` : `${r.m}×${r.n}×${r.k}`);
const ms = (us) => Number((us / 1e3).toPrecision(3)).toString();
const significant = (x) => Number(x.toPrecision(3)).toLocaleString("en");
