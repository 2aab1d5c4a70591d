/** webmm.js, through its public calls on resident arrays; webmm.js chooses the kernel. */

import { nibblesOf } from "../tasks.js";

export async function webmm(host) {
  const { BlockWeights, Device, HostArray } = await import(`${host.page}/webmm.js`);
  const { call: python } = await import(`${host.page}/python.js`);
  const device = await Device.open();
  const { core } = device.bundle;

  /** Return resident arrays, a call on them, and for products the translated problem, which identifies the kernel. */
  async function callOf(task, inputs) {
    const [x, y, z] = await Promise.all(Object.values(inputs).map(({ data, shape }) => device.array(data, { shape })));
    const { op, m, n, k, batch = 1, layout = "nn", axis, bits, block } = task;
    if (op === "gemm") {
      const [transposeA, transposeB] = [layout[0] === "t", layout[1] === "t"];
      const problem = python(core.gemm, [m, n, k], { batch, transpose_a: transposeA, transpose_b: transposeB });
      return { arrays: [x, y], call: () => device.matmul(x, y, { transposeA, transposeB }), problem };
    }
    if (op === "softmax") return { arrays: [x], call: () => device.softmax(x) };
    if (op === "layer_norm") return { arrays: [x, y, z], call: () => device.layerNorm(x, { weight: y, bias: z }) };
    if (op === "attention") {
      const heads = [x, y, z].map((each) => each.transpose(1, 0, 2));
      return { arrays: [x, y, z], call: () => device.attention(...heads, { causal: task.causal }), seen: (c) => c.transpose(1, 0, 2) };
    }
    if (op === "sum") return { arrays: [x], call: () => device.reduce(x, "sum", { axis }) };
    const words = new HostArray(new Uint32Array(nibblesOf(task).buffer), [n, k / 8], "uint32");
    const zeros = new HostArray(new Uint8Array((n * k) / block).fill(8), [n, k / block], "uint8");
    const weights = await new BlockWeights([k, n], bits, block, words, y, zeros).to(device);
    return { arrays: [x, y, weights], call: () => device.qmatmulWeights(x, weights) };
  }

  return {
    name: "webmm",
    version: device.bundle.index.version,
    device,
    done: () => {
      device.flush();
      return device.wgpu.queue.onSubmittedWorkDone();
    },
    async prepare(task, inputs) {
      const { arrays, call, problem, seen = (c) => c } = await callOf(task, inputs);
      return {
        kernel: problem && device.choose(problem),
        async run(count) {
          for (let i = 0; i < count; i++) (await call()).free();
        },
        async read() {
          const c = await call();
          const { data } = await seen(c).read();
          c.free();
          return data;
        },
        /** The time of the kernel on the device, by webmm's timing rule; for products only. */
        time: problem && (async () => {
          const c = await device.empty([task.batch ?? 1, task.m, task.n]);
          const timing = await device.time(await device.launch(device.choose(problem), problem, ...arrays, c));
          c.free();
          return timing;
        }),
        free: () => arrays.forEach((array) => array.free()),
      };
    },
  };
}
