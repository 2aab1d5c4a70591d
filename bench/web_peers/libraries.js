/**
 * The libraries, each behind the same few calls:
 *
 *     const library = await open(host);                  // on a WebGPU device of its own
 *     const product = await library.product(a, b);       // A and B made resident; may compile
 *     await product.run(count);                          // queue A·B `count` times, as its users would
 *     await library.done();                              // until the device has finished all of it
 *     const c = await product.read();                    // a Float32Array
 *     product.free();
 *
 * `done()` is `onSubmittedWorkDone()` of the library's own queue for all of them, after whatever the library still holds
 * back was submitted. Every call allocates its own C and gives it back, from the library's pool if it has one; ONNX
 * Runtime is given a C to write to, which is what its documentation recommends.
 */

import { matmulModel } from "./onnx.js";

/** @typedef {{script: (path: string) => Promise<void>, url: (path: string) => string, bytes: (path: string) => Promise<ArrayBuffer>, page: string, name: string}} Host */

const IN_FLIGHT = 8; // products that webmm's user has under way before waiting for the first

const version = async (host, name) => JSON.parse(new TextDecoder().decode(await host.bytes(`${name}/package.json`))).version;

/** webmm.js, through `matmul` of resident arrays; which kernel runs is its own choice. */
async function webmm(host, config = {}) {
  const { Device, Matrix } = await import(`${host.page}/webmm.js`);
  const device = await Device.open();
  return {
    name: "webmm",
    version: device.bundle.index.version,
    device,
    done: () => {
      device.flush();
      return device.wgpu.queue.onSubmittedWorkDone();
    },
    async product(a, b) {
      const [x, y] = [await device.array(a), await device.array(b)];
      const problem = { m: a.rows, n: b.columns, k: a.columns, dtype: "float32" };
      const kernel = config.kernel ? device.bundle.kernel(config.kernel, config.config) : device.choose(problem);
      return {
        kernel,
        problem,
        async run(count) {
          const options = config.kernel ? { kernel } : {};
          const flying = [];
          for (let i = 0; i < count; i++) {
            if (flying.length === IN_FLIGHT) await flying.shift();
            flying.push(device.matmul(x, y, options).then((c) => c.free()));
          }
          await Promise.all(flying);
        },
        async read() {
          const c = await device.matmul(x, y, { kernel });
          const { data } = await c.read();
          c.free();
          return data;
        },
        /** What the device alone takes, by webmm's own rule. */
        async time() {
          const c = await device.empty([problem.m, problem.n]);
          const timing = await device.time(await device.launch(kernel, problem, x, y, c));
          c.free();
          return timing;
        },
        free: () => [x, y].forEach((array) => array.free()),
      };
    },
  };
}

/** TensorFlow.js collects passes and submits every 15th; `submitQueue` sends the rest. */
async function tensorflow(host) {
  await host.script("@tensorflow/tfjs-core/dist/tf-core.min.js");
  await host.script("@tensorflow/tfjs-backend-webgpu/dist/tf-backend-webgpu.min.js");
  const { tf } = globalThis;
  await tf.setBackend("webgpu");
  await tf.ready();
  if (tf.getBackend() !== "webgpu") throw new Error(`TensorFlow.js fell back to ${tf.getBackend()}`);
  const backend = tf.backend();
  return {
    name: "tensorflow.js",
    version: await version(host, "@tensorflow/tfjs-core"),
    done() {
      if (backend.commandEncoder) {
        backend.endComputePassEncoder?.();
        backend.submitQueue();
      }
      return backend.device.queue.onSubmittedWorkDone();
    },
    async product(a, b) {
      const [x, y] = [tf.tensor2d(a.data, a.shape), tf.tensor2d(b.data, b.shape)];
      return {
        async run(count) {
          for (let i = 0; i < count; i++) tf.matMul(x, y).dispose();
        },
        async read() {
          const c = tf.matMul(x, y);
          const data = await c.data();
          c.dispose();
          return data;
        },
        free: () => tf.dispose([x, y]),
      };
    },
  };
}

/** ONNX Runtime Web submits at the end of each run; runs are awaited one by one, as it demands. */
async function onnxruntime(host) {
  const ort = await import(host.url("onnxruntime-web/dist/ort.webgpu.min.mjs"));
  const wasm = "onnxruntime-web/dist/ort-wasm-simd-threaded.asyncify";
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = { mjs: host.url(`${wasm}.mjs`) };
  ort.env.wasm.wasmBinary = await host.bytes(`${wasm}.wasm`);
  ort.env.webgpu.powerPreference = "high-performance";
  const session = await ort.InferenceSession.create(matmulModel(), {
    executionProviders: ["webgpu"],
    preferredOutputLocation: "gpu-buffer",
  });
  const device = await ort.env.webgpu.device;
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const buffer = (shape) => device.createBuffer({ size: Math.ceil((shape[0] * shape[1]) / 4) * 16, usage });
  const tensor = (gpuBuffer, dims) => ort.Tensor.fromGpuBuffer(gpuBuffer, { dataType: "float32", dims });
  const upload = (matrix) => {
    const gpuBuffer = buffer(matrix.shape);
    device.queue.writeBuffer(gpuBuffer, 0, matrix.data.buffer, matrix.data.byteOffset, matrix.data.byteLength);
    return gpuBuffer;
  };
  return {
    name: "onnxruntime-web",
    version: await version(host, "onnxruntime-web"),
    done: () => device.queue.onSubmittedWorkDone(),
    async product(a, b) {
      const shape = [a.rows, b.columns];
      const buffers = [upload(a), upload(b), buffer(shape)];
      const feeds = { A: tensor(buffers[0], a.shape), B: tensor(buffers[1], b.shape) };
      const fetches = { C: tensor(buffers[2], shape) };
      return {
        async run(count) {
          for (let i = 0; i < count; i++) await session.run(feeds, fetches);
        },
        async read() {
          await session.run(feeds, fetches);
          return download(device, buffers[2], shape[0] * shape[1]);
        },
        free: () => buffers.forEach((one) => one.destroy()),
      };
    },
  };
}

/** jax-js is lazy: asking for C's buffer submits the product. `jit` spares it planning the kernel in each call. */
async function jax(host) {
  const jax = await import(host.url("@jax-js/jax/dist/index.js"));
  if (!(await jax.init("webgpu")).includes("webgpu")) throw new Error("jax-js found no WebGPU");
  jax.defaultDevice("webgpu");
  const device = jax.getWebGPUDevice();
  const multiply = jax.jit((x, y) => jax.numpy.matmul(x, y));
  return {
    name: "jax-js",
    version: await version(host, "@jax-js/jax"),
    done: () => device.queue.onSubmittedWorkDone(),
    async product(a, b) {
      const put = (matrix) => jax.devicePut(jax.numpy.array(matrix.data, { shape: matrix.shape }), "webgpu");
      const [x, y] = [await put(a), await put(b)];
      await jax.blockUntilReady([x, y]);
      return {
        async run(count) {
          for (let i = 0; i < count; i++) await multiply(x.ref, y.ref).gpuBuffer();
        },
        read: () => multiply(x.ref, y.ref).data(),
        free: () => [x, y].forEach((array) => array.dispose()),
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

export const LIBRARIES = { webmm, "tensorflow.js": tensorflow, "onnxruntime-web": onnxruntime, "jax-js": jax };
