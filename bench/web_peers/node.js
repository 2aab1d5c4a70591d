// The node host, on Dawn: node node.js --page FOLDER --tasks FILE --output FOLDER [--only GROUPS] [--rounds N] [--libraries LIST] …
// FILE holds a list of tasks per group; GROUP.json of each group and host_time.json are written to the output folder.
import { readFileSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { runInThisContext } from "node:vm";

import { compare, document, openAll, table } from "./compare.js";
import { hostTime } from "./host_time.js";

const { values } = parseArgs({
  options: {
    page: { type: "string" },
    tasks: { type: "string" },
    output: { type: "string" },
    only: { type: "string" }, // groups, and host_time; all by default
    rounds: { type: "string", default: "9" },
    "warm-up": { type: "string", default: "200" }, // ms
    "batch-time": { type: "string", default: "50" }, // minimum ms per sample
    seconds: { type: "string", default: "3600" }, // after which no task starts
    libraries: { type: "string" },
    toggles: { type: "string", default: "" }, // of Dawn, as in enable-dawn-features
    command: { type: "string", default: "" }, // for the records' header
  },
});

const packages = new URL("./node_modules/", import.meta.url);
const { create, globals } = await import(new URL("webgpu/index.js", packages));
Object.assign(globalThis, globals);

// References that keep the GPU, adapters and devices alive: Dawn crashes if the garbage collector frees them.
const gpu = create(values.toggles ? [`enable-dawn-features=${values.toggles}`] : []);
globalThis.held = [gpu];
for (const [prototype, method] of [[GPU.prototype, "requestAdapter"], [GPUAdapter.prototype, "requestDevice"]]) {
  const original = prototype[method];
  prototype[method] = async function (...args) {
    const result = await original.apply(this, args);
    globalThis.held.push(result);
    return result;
  };
}

// Globals that the libraries expect from a browser
const userAgent = `node/${process.versions.node}`;
Object.defineProperty(globalThis, "navigator", { value: { gpu, userAgent, hardwareConcurrency: 1 }, configurable: true });
globalThis.require = createRequire(import.meta.url); // used by TensorFlow.js in node
const writeBuffer = GPUQueue.prototype.writeBuffer;
GPUQueue.prototype.writeBuffer = function (buffer, offset, data, ...rest) {
  if ((data.buffer ?? data) instanceof SharedArrayBuffer) data = data.slice(); // Dawn refuses ONNX Runtime's shared heap
  return writeBuffer.call(this, buffer, offset, data, ...rest);
};

const host = {
  name: `node ${process.versions.node}, Dawn`,
  page: pathToFileURL(resolve(values.page)).href,
  url: (path) => new URL(path, packages).href,
  bytes: async (path) => new Uint8Array(await readFile(new URL(path, packages))).buffer,
  script: async (path) => void runInThisContext(await readFile(new URL(path, packages), "utf8"), { filename: path }),
};

const log = (line) => console.error(`${(performance.now() / 1e3).toFixed(0)} s ${line}`);
const groups = JSON.parse(readFileSync(values.tasks, "utf8"));
const only = values.only?.split(",") ?? ["host_time", ...Object.keys(groups)];
const write = (name, text) => writeFileSync(join(values.output, `${name}.json`), text);
if (only.includes("host_time")) {
  const times = await hostTime(host);
  write("host_time", `${JSON.stringify(times, null, 1)}\n`);
  for (const [name, us] of Object.entries(times)) console.log(`${name}: ${us.toFixed(1)} µs`);
}
const chosen = Object.entries(groups).filter(([name]) => only.includes(name));
const opened = chosen.length ? await openAll(host, values.libraries, log) : [];
for (const [name, tasks] of chosen) {
  const records = await compare(host, opened, tasks, {
    rounds: Number(values.rounds),
    warmUp: Number(values["warm-up"]),
    batchTime: Number(values["batch-time"]),
    seconds: Number(values.seconds) - performance.now() / 1e3,
    log,
    keep: (some) => write(name, document(some, { command: values.command })),
  });
  console.log(`\n${table(records)}`);
}
process.exit(0); // Dawn keeps node alive
