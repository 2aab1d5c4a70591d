/**
 * Host time of a warm webmm.js call: µs of JavaScript, including the engine's work, for small resident operands, so that
 * the host never waits for the device. For comparison, the same dispatch is written directly in WebGPU.
 */

const CALLS = 200; // per round, followed by one wait
const ROUNDS = 30;

/** @param {import("./libraries/index.js").Host} host @returns {Promise<Record<string, number>>} the median of each call, in µs */
export async function hostTime(host) {
  const { Device } = await import(`${host.page}/webmm.js`);
  const device = await Device.open();
  const floats = await device.array(new Float32Array(64 * 64).fill(0.5), { shape: [64, 64] });
  const bytes = await device.array(new Uint8Array(64 * 64).fill(3), { shape: [64, 64] });
  const vector = await device.array(new Float32Array(64).fill(1));
  const scales = { scaleA: 0.5, zeroA: 1, scaleB: 0.25, zeroB: 2 };
  const calls = {
    matmul: () => device.matmul(floats, floats),
    "matmul with bias and activation": () => device.matmul(floats, floats, { bias: vector, activation: "relu" }),
    softmax: () => device.softmax(floats),
    layerNorm: () => device.layerNorm(floats, { weight: vector, bias: vector }),
    "reduce sum": () => device.reduce(floats, "sum", { axis: -1 }),
    qmatmul: () => device.qmatmul(bytes, bytes, scales),
  };
  const times = {};
  const direct = await directly(device, floats);
  times["one dispatch in WebGPU alone"] = await median(device, direct);
  for (const [name, call] of Object.entries(calls)) {
    times[name] = await median(device, async (count) => {
      for (let i = 0; i < count; i++) (await call()).free();
    });
  }
  return times;
}

/** @returns {Promise<(count: number) => void>} a function that queues products like `matmul`, eight per submission, without webmm.js */
async function directly(device, floats) {
  const c = await device.empty([64, 64]);
  const problem = { m: 64, n: 64, k: 64, dtype: "float32" };
  const [step] = await device.launch(device.choose(problem), problem, floats, floats, c);
  return (count) => {
    for (let done = 0; done < count; ) {
      const encoder = device.wgpu.createCommandEncoder();
      const pass = encoder.beginComputePass();
      for (let i = 0; i < 8 && done < count; i++, done++) {
        pass.setPipeline(step.pipeline);
        pass.setBindGroup(0, step.bindGroup);
        pass.dispatchWorkgroups(...step.grid);
      }
      pass.end();
      device.wgpu.queue.submit([encoder.finish()]);
    }
  };
}

/** @returns {Promise<number>} µs per call */
async function median(device, run) {
  const samples = [];
  for (let round = 0; round < ROUNDS; round++) {
    const start = performance.now();
    await run(CALLS);
    samples.push((1e3 * (performance.now() - start)) / CALLS);
    await device.synchronize();
  }
  return samples.sort((x, y) => x - y)[ROUNDS >> 1];
}
