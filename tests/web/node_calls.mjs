// Usage: node node_calls.mjs WEBMM_JS WEBGPU_PACKAGE CASES [MEMORY [BINDING]]. Prints the outcome of each case as JSON; see calls.js.
import { readFileSync } from "node:fs";
import { makeCalls } from "./calls.js";
import { dawn, finish } from "./dawn.mjs";

const [module, webgpu, cases, memory, binding] = process.argv.slice(2);
const gpu = await dawn(webgpu);
const webmm = await import(module);
const device = await webmm.Device.open({ gpu });
if (memory) device.memory = Number(memory);
if (binding) {
  // No device has a limit below WebGPU's default; its getters do not work on another object.
  const { limits } = device;
  const limited = { maxStorageBufferBindingSize: Number(binding) };
  device.limits = new Proxy(limits, { get: (_, name) => limited[name] ?? limits[name] });
  device.choices = new device.choices.constructor(device);
}
const outcomes = await makeCalls(webmm, device, JSON.parse(readFileSync(cases, "utf8")));
finish({ features: [...device.features], outcomes });
