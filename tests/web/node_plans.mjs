// Usage: node node_plans.mjs WEBMM_JS WEBGPU_PACKAGE. Prints the WebGPU calls and the results of repeated calls as JSON.
import { dawn, finish } from "./dawn.mjs";

const [module, webgpu] = process.argv.slice(2);
const gpu = await dawn(webgpu);
const asked = new Map(); // number of uses of WebGPU's methods and attributes, by name
for (const { prototype } of [
  GPUDevice,
  GPUQueue,
  GPUBuffer,
  GPUCommandEncoder,
  GPUComputePassEncoder,
  GPUComputePipeline,
]) {
  for (const [name, of] of Object.entries(Object.getOwnPropertyDescriptors(prototype))) {
    const original = of.value ?? of.get;
    if (typeof original !== "function" || name === "constructor") continue;
    const counting = function (...args) {
      asked.set(name, (asked.get(name) ?? 0) + 1);
      return original.apply(this, args);
    };
    Object.defineProperty(prototype, name, { ...of, [of.value ? "value" : "get"]: counting });
  }
}

const { Device, quantizeBlocks } = await import(module);
const device = await Device.open({ gpu });
const numbers = (count) => Float32Array.from({ length: count }, (_, i) => ((i * 7) % 11) - 5);
const x = await device.array(numbers(64 * 64), { shape: [64, 64] });
const other = await device.array(numbers(64 * 64).reverse(), { shape: [64, 64] });
const vector = await device.array(numbers(64));
const bytes = await device.array(new Uint8Array(64 * 64).fill(3), { shape: [64, 64] });
const weights = await quantizeBlocks(
  numbers(64 * 64).reduce(
    (rows, value, i) => (rows[i >> 6].push(value), rows),
    Array.from({ length: 64 }, () => []),
  ),
).to(device);
const scales = { scaleA: 0.5, zeroA: 1, scaleB: 0.25, zeroB: 2 };
const calls = {
  matmul: (a) => device.matmul(a, x),
  "matmul with all": (a) => device.matmul(a, x, { transposeB: true, bias: vector, activation: "relu", alpha: 0.5 }),
  qmatmul: () => device.qmatmul(bytes, bytes, scales),
  qmatmulWeights: (a) => device.qmatmulWeights(a, weights),
  reduce: (a) => device.reduce(a, "sum", { axis: [1] }),
  softmax: (a) => device.softmax(a),
  layerNorm: (a) => device.layerNorm(a, { weight: vector, bias: vector }),
  rmsNorm: (a) => device.rmsNorm(a, { weight: vector }),
  gelu: (a) => device.gelu(a),
};
const outcome = {};
for (const [name, call] of Object.entries(calls)) {
  const first = await read(await call(other)); // with other operands than below
  for (let i = 0; i < 4; i++) (await call(x)).free(); // fills the pool's rotation of buffers
  await device.synchronize();
  asked.clear();
  for (let i = 0; i < 8; i++) (await call(x)).free();
  outcome[name] = { asked: Object.fromEntries(asked) };
  device.plans.clear();
  const fresh = await read(await call(x));
  const again = await read(await call(x));
  Object.assign(outcome[name], { same: String(fresh) === String(again), depends: String(fresh) !== String(first) });
}
// With a full pool, the least recently used size is evicted, and calls still find buffers.
device.pool.limit = 1_220_000;
(await device.empty([300_000])).free();
for (let i = 0; i < 5; i++) (await device.softmax(x)).free();
await device.synchronize();
asked.clear();
for (let i = 0; i < 8; i++) (await device.softmax(x)).free();
outcome["softmax beside a full pool"] = { asked: Object.fromEntries(asked), same: true, depends: true };

const errors = {};
for (const [name, call] of Object.entries({
  "an unknown option": () => device.matmul(x, x, { transposedB: true }),
  "no options": () => device.matmul(x, x, null),
  "a freed operand": async () => {
    const mine = await device.array(numbers(64 * 64), { shape: [64, 64] });
    mine.free();
    return device.matmul(mine, x);
  },
  "an activation with an option in its name": async () => {
    await device.matmul(x, x, { activation: "relu", alpha: 2 });
    return device.matmul(x, x, { activation: "relu|alpha=2" });
  },
  "a result that an operand shares": () => device.gemm(x.slice([null, null, -1]), other, x, { beta: 1 }),
}))
  errors[name] = await call().then(
    () => "none",
    (error) => error.name,
  );

// -0 is another number than 0, in the key of a plan and in that of a prepared launch.
const one = await device.array(new Float32Array([1]), { shape: [1, 1] });
const zeros = [];
for (const alpha of [0, -0, 0, -0]) {
  const [found] = await read(await device.matmul(one, one, { alpha }));
  zeros.push(Object.is(found, alpha));
}

// A replay of more launches than the device caches at first.
const many = (await device.array(numbers(600 * 48), { shape: [600, 3, 4, 4] })).slice(null, [0, 3, 2]);
const few = await device.array(numbers(600 * 32), { shape: [600, 2, 4, 4] });
const results = [];
for (let i = 0; i < 3; i++) results.push(String(await read(await device.matmul(many, few))));
const launches = results.every((each) => each === results[0]);

async function read(array) {
  const { data } = await array.read();
  array.free();
  return data;
}

finish({ calls: outcome, errors, zeros, launches });
