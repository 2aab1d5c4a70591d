// Runs shaders as any WebGPU program would: takes WGSL, bindings, workgroup counts and buffers as data, and returns results as data.
export async function dispatch(gpu, cases) {
  const adapter = await gpu.requestAdapter();
  const wanted = ["subgroups", "shader-f16", "chromium-experimental-subgroup-matrix"];
  const features = wanted.filter((name) => adapter.features.has(name));
  const { maxComputeWorkgroupStorageSize } = adapter.limits;
  const device = await adapter.requestDevice({
    requiredFeatures: features,
    requiredLimits: { maxComputeWorkgroupStorageSize },
  });
  const bytes = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
  const results = [];
  for (const { steps, buffers, result } of cases) {
    device.pushErrorScope("validation");
    const there = {};
    for (const [name, hex] of Object.entries(buffers)) {
      const data = bytes(hex);
      const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
      there[name] = device.createBuffer({ size: data.byteLength, usage });
      device.queue.writeBuffer(there[name], 0, data);
    }
    const encoder = device.createCommandEncoder();
    for (const { wgsl, bindings, params, counts } of steps) {
      const module = device.createShaderModule({ code: wgsl });
      const uniform = device.createBuffer({
        size: params.length / 2,
        usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
      });
      device.queue.writeBuffer(uniform, 0, bytes(params));
      const pipeline = device.createComputePipeline({ layout: "auto", compute: { module } });
      const entries = bindings.map((name, binding) => ({
        binding,
        resource: { buffer: binding ? there[name] : uniform },
      }));
      const pass = encoder.beginComputePass();
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
      pass.dispatchWorkgroups(...counts);
      pass.end();
    }
    const size = there[result].size;
    const back = device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    encoder.copyBufferToBuffer(there[result], 0, back, 0, size);
    device.queue.submit([encoder.finish()]);
    const error = await device.popErrorScope();
    if (error) {
      results.push({ error: error.message });
      continue;
    }
    await back.mapAsync(GPUMapMode.READ);
    const hex = Array.from(new Uint8Array(back.getMappedRange()), (byte) => byte.toString(16).padStart(2, "0")).join(
      "",
    );
    results.push({ hex });
  }
  const { subgroupMinSize: lanes, subgroupMatrixConfigs: configs = [] } = adapter.info;
  return {
    features,
    lanes,
    fragments: [...configs].map((c) => [c.componentType, c.resultComponentType, c.M, c.N, c.K]),
    results,
  };
}
