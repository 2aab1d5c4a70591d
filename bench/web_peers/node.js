// Node on Dawn: node node.js --page FOLDER --output FILE [--sizes LIST] [--rounds N] [--libraries LIST] [--toggles LIST]
import { readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { runInThisContext } from "node:vm";

import { compare, document, table } from "./compare.js";

const { values } = parseArgs({
  options: {
    page: { type: "string" },
    output: { type: "string" },
    sizes: { type: "string", default: "512,1024,2048,4096,333x257x129" },
    rounds: { type: "string", default: "15" },
    libraries: { type: "string" },
    toggles: { type: "string", default: "" }, // of Dawn, as in enable-dawn-features
  },
});

const packages = new URL("./node_modules/", import.meta.url);
const { create, globals } = await import(new URL("webgpu/index.js", packages));
Object.assign(globalThis, globals);

// A live reference to what everything came from: Dawn crashes once the garbage collector takes it.
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

// What the libraries look for in a browser
const userAgent = `node/${process.versions.node}`;
Object.defineProperty(globalThis, "navigator", { value: { gpu, userAgent, hardwareConcurrency: 1 }, configurable: true });
globalThis.require = createRequire(import.meta.url); // TensorFlow.js, once it sees node
const writeBuffer = GPUQueue.prototype.writeBuffer;
GPUQueue.prototype.writeBuffer = function (buffer, offset, data, ...rest) {
  if ((data.buffer ?? data) instanceof SharedArrayBuffer) data = data.slice(); // ONNX Runtime's heap: Dawn refuses it
  return writeBuffer.call(this, buffer, offset, data, ...rest);
};

const host = {
  name: `node ${process.versions.node}, Dawn`,
  page: pathToFileURL(resolve(values.page)).href,
  url: (path) => new URL(path, packages).href,
  bytes: async (path) => new Uint8Array(await readFile(new URL(path, packages))).buffer,
  script: async (path) => void runInThisContext(await readFile(new URL(path, packages), "utf8"), { filename: path }),
};

const records = await compare(host, {
  sizes: values.sizes,
  rounds: Number(values.rounds),
  libraries: values.libraries,
  log: (line) => console.error(line),
});
if (values.output) await writeFile(values.output, document(records));
console.log(table(records));
process.exit(0); // Dawn keeps node alive
