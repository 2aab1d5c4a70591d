/** A program of its own, in plain WebGPU, that runs products of float32 from the data of `webmm/shaders`; it uses no webmm.js. */

/**
 * Run a case: a stage with its `values` (of the uniform's members) and, evaluated from its rules for a size, the workgroups of
 * each dispatch, the elements of each buffer and the bytes of each scratch buffer. Return C.
 */
async function run(device, { dispatches, values, workgroups, elements, scratch }, contents) {
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST | GPUBufferUsage.UNIFORM;
  const buffer = (size) => device.createBuffer({ size: Math.ceil(size / 16) * 16, usage });
  const bound = {};
  for (const [name, count] of Object.entries(elements)) {
    bound[name] = buffer(4 * count);
    if (contents[name]) device.queue.writeBuffer(bound[name], 0, contents[name]);
  }
  for (const [name, size] of Object.entries(scratch)) bound[name] = buffer(size);
  const encoder = device.createCommandEncoder();
  for (const [i, { wgsl, bindings, params, entry_point }] of dispatches.entries()) {
    const uniform = new DataView(new ArrayBuffer(Math.ceil(params.size / 16) * 16));
    for (const { name, type, offset } of params.members)
      uniform[type === "f32" ? "setFloat32" : "setUint32"](offset, values[name], true);
    bound.params = buffer(params.size);
    device.queue.writeBuffer(bound.params, 0, uniform.buffer);
    const visibility = GPUShaderStage.COMPUTE;
    const entries = bindings.map(({ binding, type }) => ({ binding, visibility, buffer: { type } }));
    const layout = device.createBindGroupLayout({ entries });
    const pipeline = await device.createComputePipelineAsync({
      layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
      compute: { module: device.createShaderModule({ code: wgsl }), entryPoint: entry_point },
    });
    const resources = bindings.map(({ binding, name }) => ({ binding, resource: { buffer: bound[name] } }));
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, device.createBindGroup({ layout, entries: resources }));
    pass.dispatchWorkgroups(...workgroups[i]);
    pass.end();
  }
  const back = device.createBuffer({ size: bound.c.size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  encoder.copyBufferToBuffer(bound.c, 0, back, 0, back.size);
  device.queue.submit([encoder.finish()]);
  await back.mapAsync(GPUMapMode.READ);
  return new Float32Array(back.getMappedRange().slice(0));
}

/** Return the names of the cases in which a product of small integers, with the operands' rows `padded`, is wrong. */
export async function checkAtHome(device, cases) {
  const wrong = [];
  for (const each of cases) {
    const { m, n, k, lda, ldb, ldc, a_offset, b_offset, c_offset } = each.values;
    const a = Float32Array.from({ length: each.elements.a }, (_, i) => ((i * 7) % 11) - 5);
    const b = Float32Array.from({ length: each.elements.b }, (_, i) => ((i * 5) % 13) - 6);
    const c = await run(device, each, { a, b });
    let right = true;
    for (let i = 0; i < m; i++)
      for (let j = 0; j < n; j++) {
        let sum = 0;
        for (let at = 0; at < k; at++) sum += a[a_offset + i * lda + at] * b[b_offset + at * ldb + j];
        right &&= c[c_offset + i * ldc + j] === sum;
      }
    if (!right) wrong.push(each.name);
  }
  return wrong;
}
