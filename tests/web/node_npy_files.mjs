// Usage: node node_npy_files.mjs FILES_JS WEBMM_JS WEBGPU_PACKAGE CASES. Computes each case, [op, operands, options, output, written], from files to a file; prints what each gave as JSON; see test_npy_files.py.
import { openAsBlob, readFileSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { dawn, finish } from "./dawn.mjs";

const [files, module, webgpu, cases] = process.argv.slice(2);
const gpu = await dawn(webgpu);
const { NpyFile, applyToFiles } = await import(files);
const { Device } = await import(module);
const device = await Device.open({ gpu });
const made = [];
for (const name of ["array", "matmul", "gemm", "reduce", "softmax", "layerNorm", "rmsNorm", "gelu"]) {
  const call = device[name].bind(device);
  device[name] = async (...given) => made[made.push(await call(...given)) - 1];
}
const isFreed = (array) => {
  try {
    return !array.storage;
  } catch {
    return true;
  }
};
const outcomes = [];
for (const [op, paths, options, output, written] of JSON.parse(readFileSync(cases, "utf8"))) {
  let pieces = 0;
  const progress = (done, total) => (pieces = total);
  try {
    const operands = await Promise.all(paths.map(async (path) => NpyFile.open(await openAsBlob(path))));
    if (written) {
      const file = await open(output, "w");
      const write = (bytes, position) => file.write(bytes, 0, bytes.length, position);
      await applyToFiles(device, op, operands, { ...options, progress, write });
      await file.close();
    } else {
      const { blob } = await applyToFiles(device, op, operands, { ...options, progress });
      writeFileSync(output, new Uint8Array(await blob.arrayBuffer()));
    }
    outcomes.push(pieces);
  } catch (error) {
    outcomes.push(`${error.name}: ${error.message}`);
  }
}
finish({ features: [...device.features], outcomes, left: made.filter((array) => !isFreed(array)).length });
