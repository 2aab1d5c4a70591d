// Usage: node node_epilogues.mjs WEBMM_JS WEBGPU_PACKAGE TEXTS. Prints as JSON what epilogues of webmm.js compute, the
// activate() of each of TEXTS or its error, and the pipelines that two slopes need.
import { dawn, finish } from "./dawn.mjs";

const [module, webgpu, texts] = process.argv.slice(2);
const gpu = await dawn(webgpu);
const { Device, Epilogue, quantizeBlocks } = await import(module);
const device = await Device.open({ gpu });
const core = device.core;

const whole = (count, by = 7) => Float32Array.from({ length: count }, (_, i) => ((i * by) % 11) - 5);
const host = (count, shape, by) => ({ data: whole(count, by), shape });
const on = ({ data, shape }) => device.array(data, { shape });
const results = {};
const keep = async (name, result) => {
  const read = result.read ? await result.read() : result;
  results[name] = { shape: [...read.shape], data: [...read.data] };
};

const [a, b, y] = [host(30, [6, 5], 7), host(40, [5, 8], 3), host(48, [6, 8], 5)];
const [left, right] = [await on(a), await on(b)];
const compiled = [];
const create = device.wgpu.createComputePipelineAsync.bind(device.wgpu);
device.wgpu.createComputePipelineAsync = (given) => (compiled.push(given.label), create(given));
for (const slope of [0.5, 0.25, 0.25]) {
  const leaky = new Epilogue("where(x > 0, x, slope * x)", { slope });
  await keep(`leaky ${slope}`, await device.matmul(left, right, { activation: leaky }));
}
const pipelines = compiled.length;

const parts = {
  matrix: y,
  column: { data: y.data.slice(0, 8), shape: [8] },
  row: { data: y.data.slice(0, 6), shape: [6, 1] },
};
const { HostArray } = await import(module);
for (const [name, part] of Object.entries(parts)) {
  const array = HostArray.from(part.data, { shape: part.shape });
  const gate = new Epilogue("x * gate + 1", { gate: array });
  await keep(
    `${name} host`,
    await device.matmul(HostArray.from(a.data, { shape: a.shape }), HostArray.from(b.data, { shape: b.shape }), {
      activation: gate,
    }),
  );
  const there = new Epilogue("x * gate + 1", { gate: await on(part) });
  for (let i = 0; i < 2; i++) await keep(`${name} device`, await device.matmul(left, right, { activation: there }));
}
const weights = quantizeBlocks(HostArray.from(b.data, { shape: b.shape }));
const own = new Epilogue("silu(x) * y", {
  y: HostArray.from(y.data, { shape: y.shape }),
});
await keep("weights", await device.qmatmulWeights(left, weights, { activation: own }));
const vector = HostArray.from(a.data.slice(0, 5), { shape: [5] });
const row = HostArray.from(y.data.slice(0, 8), { shape: [8] });
await keep(
  "vector",
  await device.matmul(vector, right, {
    activation: new Epilogue("x - y", { y: row }),
  }),
);

const outcomes = [];
for (const [text, values] of JSON.parse(texts)) {
  try {
    const given = Object.fromEntries(
      Object.entries(values).map(([name, x]) => [name, Array.isArray(x) ? HostArray.from(x) : x]),
    );
    const { name } = await new Epilogue(text, given).applied({
      core,
      device,
      data: (x) => x,
    });
    outcomes.push({ text: core.OWN.get(name).text });
  } catch (error) {
    outcomes.push({ error: `${error.name}: ${error.message}` });
  }
}
finish({ results, pipelines, outcomes });
