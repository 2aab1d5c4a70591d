// node matrix_units.mjs JOBS.json DAWN: runs rendered shaders on Dawn; matrix_units.py writes the jobs and judges C.
//
// For each job a line of JSON: {adapter, driver, samples: [µs per dispatch, …]} or {error}. Dawn rounds timestamps to
// 65.5 µs, so that a sample is many dispatches in one pass.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";

const [jobsFile, dawn] = process.argv.slice(2);
const { create, globals } = createRequire(import.meta.url)(dawn);
Object.assign(globalThis, globals);
const WARM_UP = 250; // ms
const SAMPLE = 20e3; // µs
const SAMPLES = 9;

const toggles = "allow_unsafe_apis,vulkan_enable_f16_on_nvidia";
const gpu = create([`enable-dawn-features=${toggles}`]);
const adapter = await gpu.requestAdapter();
const features = ["chromium-experimental-subgroup-matrix", "shader-f16", "subgroups", "timestamp-query"];
const limits = ["maxBufferSize", "maxStorageBufferBindingSize", "maxComputeWorkgroupStorageSize", "maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupSizeX"];
const device = await adapter.requestDevice({
  requiredFeatures: features.filter((name) => adapter.features.has(name)),
  requiredLimits: Object.fromEntries(limits.map((name) => [name, adapter.limits[name]])),
});
globalThis.held = [gpu, adapter, device]; // Dawn crashes once the garbage collector takes what it came from

const { STORAGE, COPY_SRC, COPY_DST, MAP_READ, UNIFORM, QUERY_RESOLVE } = GPUBufferUsage;
const querySet = device.createQuerySet({ type: "timestamp", count: 2 });
const resolved = device.createBuffer({ size: 16, usage: QUERY_RESOLVE | COPY_SRC });
const times = device.createBuffer({ size: 16, usage: COPY_DST | MAP_READ });

function buffer(data, usage) {
  const size = Math.max(16, Math.ceil(data.byteLength / 16) * 16);
  const made = device.createBuffer({ size, usage: usage | COPY_DST });
  const whole = data.byteLength - (data.byteLength % 4); // what writeBuffer takes
  device.queue.writeBuffer(made, 0, data, 0, whole);
  if (whole < data.byteLength) device.queue.writeBuffer(made, whole, Uint8Array.of(...data.subarray(whole), 0, 0, 0).subarray(0, 4));
  return made;
}

async function run({ shader, params, dispatch, operands, bytes, out }) {
  const missing = shader.features.filter((name) => !device.features.has(name));
  if (missing.length) throw new Error(`Dawn does not have ${missing.join(", ")}`);
  device.pushErrorScope("validation");
  const module = device.createShaderModule({ code: shader.wgsl });
  const pipeline = await device.createComputePipelineAsync({ layout: "auto", compute: { module, entryPoint: shader.entry_point } });
  const c = buffer(new Uint8Array(bytes).fill(255), STORAGE | COPY_SRC); // NaN: what nobody writes shows
  const buffers = { params: buffer(Uint8Array.from(params), UNIFORM), c };
  for (const [name, file] of Object.entries(operands)) buffers[name] = buffer(readFileSync(file), STORAGE);
  const entries = shader.bindings.map(({ binding, name }) => ({ binding, resource: { buffer: buffers[name] } }));
  const group = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
  const submit = (count, timestampWrites) => {
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass(timestampWrites ? { timestampWrites } : {});
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    for (let i = 0; i < count; i++) pass.dispatchWorkgroups(...dispatch);
    pass.end();
    if (timestampWrites) {
      encoder.resolveQuerySet(querySet, 0, 2, resolved, 0);
      encoder.copyBufferToBuffer(resolved, 0, times, 0, 16);
    }
    device.queue.submit([encoder.finish()]);
  };
  const timed = async (count) => {
    submit(count, { querySet, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 });
    await times.mapAsync(GPUMapMode.READ);
    const [start, end] = new BigUint64Array(times.getMappedRange().slice(0));
    times.unmap();
    return Number(end - start) / 1e3 / count;
  };
  submit(1);
  const failed = await device.popErrorScope();
  if (failed) throw new Error(failed.message);
  const back = device.createBuffer({ size: c.size, usage: COPY_DST | MAP_READ });
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(c, 0, back, 0, c.size);
  device.queue.submit([encoder.finish()]);
  await back.mapAsync(GPUMapMode.READ);
  writeFileSync(out, new Uint8Array(back.getMappedRange(0, c.size)).subarray(0, bytes));
  back.unmap();
  const start = performance.now();
  while (performance.now() - start < WARM_UP) {
    submit(10);
    await device.queue.onSubmittedWorkDone();
  }
  const count = Math.max(10, Math.ceil(SAMPLE / (await timed(10))));
  const samples = [];
  for (let i = 0; i < SAMPLES; i++) samples.push(await timed(count));
  for (const made of [...Object.values(buffers), back]) made.destroy();
  return samples;
}

for (const job of JSON.parse(readFileSync(jobsFile, "utf8"))) {
  const { description, device: name, vendor } = adapter.info;
  const line = { adapter: name || vendor, driver: description };
  try {
    line.samples = await run(job);
  } catch (error) {
    line.error = String(error?.message ?? error);
  }
  console.log(JSON.stringify(line));
}
process.exit(0); // Dawn keeps node alive
