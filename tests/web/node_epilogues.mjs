// Usage: node node_epilogues.mjs WEBMM_JS WEBGPU_PACKAGE TEXTS DECLARATIONS. Prints as JSON what epilogues and reductions of
// webmm.js compute, the activate() of each of TEXTS or its error, the pipelines that two slopes need, and the shader of each
// of DECLARATIONS, which are names or the texts of a reduction, or its error.
import { dawn, finish } from "./dawn.mjs";

const [module, webgpu, texts, declarations] = process.argv.slice(2);
const gpu = await dawn(webgpu);
const { Device, Epilogue, Reduction, quantizeBlocks } = await import(module);
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
const batch = left.reshape(2, 3, 5);
for (const [name, shape] of Object.entries({ row: [8], column: [2, 3, 1], matrix: [2, 3, 8], one: [1, 1] })) {
  const gate = HostArray.from(
    y.data.slice(
      0,
      shape.reduce((size, length) => size * length),
    ),
    { shape },
  );
  const gated = new Epilogue("x * gate", { gate });
  await keep(`weights ${name}`, await device.qmatmulWeights(batch, weights, { activation: gated }));
}
const [none, noWeights] = [[2, 0], [0, 8]].map((shape) => HostArray.from(new Float32Array(0), { shape })); // prettier-ignore
await keep(
  "weights of nothing",
  await device.qmatmulWeights(none, quantizeBlocks(noWeights), { activation: new Epilogue("x + 2") }),
);
const vector = HostArray.from(a.data.slice(0, 5), { shape: [5] });
const row = HostArray.from(y.data.slice(0, 8), { shape: [8] });
await keep(
  "vector",
  await device.matmul(vector, right, {
    activation: new Epilogue("x - y", { y: row }),
  }),
);

const then = new Epilogue("x * k", { k: 2 }).then("relu").then(new Epilogue("x + k", { k: 1 }));
await keep("then", await device.matmul(left, right, { activation: then }));

const softsign = new Epilogue({ wgsl: "x / (1.0 + abs(x))" });
await keep("wgsl", await device.matmul(left, right, { activation: softsign }));
await keep("wgsl then", await device.matmul(left, right, { activation: then.then(softsign) }));

const rows = host(903, [3, 301], 5);
const numbers = HostArray.from(rows.data, { shape: rows.shape });
const there = await on(rows);
const shaders = [];
for (const given of JSON.parse(declarations)) {
  try {
    const op = typeof given === "string" ? given : new Reduction(given);
    for (const [where, x] of [
      ["host", numbers],
      ["device", there],
    ])
      await keep(`${JSON.stringify(given)} ${where}`, await device.reduce(x, op, { axis: where === "host" ? 1 : 0 }));
    const name = [...core.DECLARED.keys()].filter((each) => typeof given !== "string" || each === given).pop();
    const kernel = new (core.STAGES.get("reduce").get("vectorized"))(8, 2);
    const { wgsl } = await device.bundle.shader(kernel, core.reduction(3, 301, name));
    shaders.push({ text: wgsl.replaceAll(name, "NAME") });
  } catch (error) {
    shaders.push({ error: `${error.name}: ${error.message}` });
  }
}
const empty = HostArray.from(new Float32Array(0), { shape: [2, 0] });
await keep("empty", await device.reduce(empty, "all", { axis: 1 }));
await keep(
  "whole",
  await device.reduce(
    HostArray.from(Int32Array.from(rows.data), { shape: [3, 301] }),
    new Reduction({
      map: "x * 1000003 * 1000003",
      combine: "a + b",
      identity: 0,
    }),
    { axis: 1 },
  ),
);
const { memory } = device;
device.memory = 2048;
for (const name of ["std", "count_nonzero", "mean", "prod", "max", "argmin", "logsumexp"])
  await keep(`parts ${name}`, await device.reduce(numbers, name));
device.memory = memory;
const dot = new Reduction({ map: "x * y", combine: "a + b", identity: 0 });
const line = HostArray.from(rows.data.slice(0, 301));
for (const y of [numbers, line, await on({ data: line.data, shape: [301] })])
  await keep(`dot ${y.ndim} ${y instanceof HostArray}`, await device.reduce(numbers, dot, { axis: 1, y }));
await keep("dot there", await device.reduce(there, dot, { axis: 0, y: there }));

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
finish({ results, pipelines, outcomes, shaders });
