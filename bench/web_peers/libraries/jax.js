/** jax-js is lazy: requesting a result's buffer submits the work. With `jit`, it does not plan the kernel in each call. */

import { versionOf } from "./version.js";

export async function jax(host) {
  const jax = await import(host.url("@jax-js/jax/dist/index.js"));
  if (!(await jax.init("webgpu")).includes("webgpu")) throw new Error("jax-js found no WebGPU");
  jax.defaultDevice("webgpu");
  const device = jax.getWebGPUDevice();
  const { nn, numpy } = jax;
  const seen = (x, transposed) => (transposed ? numpy.matrixTranspose(x) : x);
  const makers = {
    gemm: ({ layout = "nn" }) => (a, b) => numpy.matmul(seen(a, layout[0] === "t"), seen(b, layout[1] === "t")),
    softmax: () => (x) => nn.softmax(x, -1),
    layer_norm: () => (x, weight, bias) => nn.standardize(x, -1, { epsilon: 1e-5 }).mul(weight).add(bias),
    // In BTNH, as of jax.nn
    attention: ({ causal }) => (q, k, v) => nn.dotProductAttention(q, k, v, { isCausal: causal }),
    sum: ({ axis }) => (x) => numpy.sum(x, axis),
  };
  return {
    name: "jax-js",
    version: await versionOf(host, "@jax-js/jax"),
    done: () => device.queue.onSubmittedWorkDone(),
    async prepare(task, inputs) {
      if (!makers[task.op]) return null;
      const call = jax.jit(makers[task.op](task));
      const arrays = [];
      for (const { data, shape } of Object.values(inputs)) arrays.push(await jax.devicePut(numpy.array(data, { shape }), "webgpu"));
      await jax.blockUntilReady(arrays);
      const given = () => arrays.map((array) => array.ref);
      return {
        async run(count) {
          for (let i = 0; i < count; i++) await call(...given()).gpuBuffer();
        },
        read: () => call(...given()).data(),
        free: () => arrays.forEach((array) => array.dispose()),
      };
    },
  };
}
