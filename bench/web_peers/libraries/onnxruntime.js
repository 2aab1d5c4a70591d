/** ONNX Runtime Web submits at the end of each run; runs must be awaited one by one. */

import { nibblesOf } from "../tasks.js";
import { modelOf } from "./onnx.js";
import { versionOf } from "./version.js";

export async function onnxruntime(host) {
  const ort = await import(host.url("onnxruntime-web/dist/ort.webgpu.min.mjs"));
  const wasm = "onnxruntime-web/dist/ort-wasm-simd-threaded.asyncify";
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = { mjs: host.url(`${wasm}.mjs`) };
  ort.env.wasm.wasmBinary = await host.bytes(`${wasm}.wasm`);
  ort.env.webgpu.powerPreference = "high-performance";
  const options = { executionProviders: ["webgpu"], preferredOutputLocation: "gpu-buffer" };
  const held = await ort.InferenceSession.create(modelOf({ op: "softmax", m: 1, n: 1 }).model, options); // the device is destroyed with its last session
  const device = await ort.env.webgpu.device;
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const buffer = (bytes) => device.createBuffer({ size: Math.ceil(bytes / 16) * 16, usage });
  const tensor = (gpuBuffer, dims, dataType = "float32") => ort.Tensor.fromGpuBuffer(gpuBuffer, { dataType, dims });
  const resident = ({ data, shape }) => {
    const gpuBuffer = buffer(data.byteLength);
    device.queue.writeBuffer(gpuBuffer, 0, data.buffer, data.byteOffset, data.byteLength);
    return tensor(gpuBuffer, shape, data instanceof Uint8Array ? "uint8" : "float32");
  };
  return {
    name: "onnxruntime-web",
    version: await versionOf(host, "onnxruntime-web"),
    held,
    done: () => device.queue.onSubmittedWorkDone(),
    async prepare(task, inputs) {
      const { model, shape } = modelOf(task);
      const session = await ort.InferenceSession.create(model, options);
      const given = Object.values(inputs);
      if (task.op === "weights") given.splice(1, 0, { data: nibblesOf(task), shape: [task.n, task.k / task.block, task.block / 2] });
      if (task.op === "attention") given.forEach((x, i) => (given[i] = { data: x.data, shape: [1, x.shape[0], x.shape[1] * x.shape[2]] }));
      const tensors = given.map(resident);
      const count = shape.reduce((x, y) => x * y);
      const c = buffer(4 * count);
      const feeds = Object.fromEntries(tensors.map((each, i) => [session.inputNames[i], each]));
      const fetches = { Y: tensor(c, shape) };
      return {
        async run(times) {
          for (let i = 0; i < times; i++) await session.run(feeds, fetches);
        },
        async read() {
          await session.run(feeds, fetches);
          return download(device, c, count);
        },
        free() {
          for (const each of tensors) each.gpuBuffer.destroy();
          c.destroy();
          return session.release();
        },
      };
    },
  };
}

async function download(device, source, count) {
  const size = count * 4;
  const staging = device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(source, 0, staging, 0, size);
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  const data = new Float32Array(staging.getMappedRange().slice(0));
  staging.destroy();
  return data;
}
