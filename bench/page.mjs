// The page's ladders in node on Dawn, run by the page's code: checked, timed, and saved as the page saves them.
//
//     webmm bundle PAGE
//     node bench/page.mjs --page PAGE --output RECORDS.json [--only TITLE,…] [--sizes N] [--seconds S]
//
// Each ladder runs at its N largest sizes, in the page's order, until S seconds have passed; the gemm ladder runs at the
// sizes of `--cubes`. The file is rewritten after each size.
import { writeFileSync } from "node:fs";
import { basename, isAbsolute, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

const { values } = parseArgs({
  options: {
    page: { type: "string" },
    output: { type: "string" },
    dawn: { type: "string", default: new URL("./web_peers/node_modules/webgpu/index.js", import.meta.url).href },
    toggles: { type: "string", default: "allow_unsafe_apis,vulkan_enable_f16_on_nvidia" }, // of Dawn
    only: { type: "string" },
    cubes: { type: "string", default: "1024,4096" },
    sizes: { type: "string", default: "2" },
    seconds: { type: "string", default: "600" },
  },
});
const [page, output] = [values.page, values.output];
const words = process.argv.slice(2).map((word) => (isAbsolute(word) ? basename(word) : word));
const command = ["node bench/page.mjs", ...words].join(" ");
if (!page || !output) throw new Error("name the page's folder (--page) and where its records go (--output)");
const { create, globals } = await import(values.dawn);
Object.assign(globalThis, globals);
const module = (/** @type {string} */ name) => import(new URL(name, pathToFileURL(`${resolve(page)}/`)).href);
const { Device } = await module("webmm.js");
const { Bench, Operands, ladder } = await module("bench.js");
const { PreparedCase } = await module("prepared.js");
const { toJson } = await module("records.js");

const gpu = create([`enable-dawn-features=${values.toggles}`]); // kept: Dawn crashes if the garbage collector frees it
const device = await Device.open({ gpu });
const { index } = device.bundle;
const { size_of, speed_of, unit_of } = device.core;
const end = performance.now() + 1e3 * Number(values.seconds);
const records = [];
const fragments = device.matrix.map(({ m, n, k, operands, result }) => `${m}×${n}×${k} ${operands} into ${result}`);
console.log(`${device.info.name}; matrix units: ${fragments.join(", ") || "none"}, written in the ${device.spelling || "no"} spelling`);

/** The runs, as [title, problem, kernels, prepare]. */
async function* runs() {
  const cubes = values.cubes.split(",").map(Number);
  const stored = Object.keys(index.dtypes).filter((name) => index.dtypes[name].features.every((feature) => device.features.has(feature)));
  const floats = (/** @type {string} */ dtype) => cubes.map((n) => {
    const p = { m: n, n, k: n, dtype };
    const kernels = device.bundle.stages.map((name) => device.stage(name, p));
    return ["Matrix product", p, kernels, () => Operands.random(device, p)];
  });
  if (stored.includes("float16")) yield* floats("float16");
  const { default: ladders } = await device.bundle.module("ladders.js");
  for (const { title, [device.info.kind]: known } of ladders) {
    const cases = known.map((each) => new PreparedCase(device, each, known));
    const sizes = [...new Set(cases.map(({ problem }) => size_of(problem)))].slice(-Number(values.sizes));
    for (const on of cases.filter(({ problem }) => sizes.includes(size_of(problem)))) {
      const { problem } = on;
      if (problem.dtype in index.dtypes && !stored.includes(problem.dtype)) continue;
      yield [title, problem, on.stages, () => on.load()];
    }
  }
  yield* floats("float32");
}

for await (const [title, problem, kernels, prepare] of runs()) {
  if (values.only && !values.only.split(",").includes(title)) continue;
  if (performance.now() > end) break;
  console.log(`${title}, ${size_of(problem)} ${problem.dtype}`);
  const bench = new Bench(device);
  let i = 0;
  for await (const record of ladder(bench, kernels, problem, prepare)) {
    records.push(record);
    const { label } = kernels[i++];
    const speed = record.gflops ? `${speed_of(record).toPrecision(4)} ${unit_of(record)}` : `${record.status}: ${record.reason}`;
    console.log(`  ${label.padEnd(22)} ${speed}`);
  }
  writeFileSync(output, toJson(records, { command, date: new Date().toISOString().slice(0, 10) }));
}
process.exit(0); // Dawn keeps node alive
