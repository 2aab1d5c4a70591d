// Runs the calls of table.py with webmm.js: the same code in a browser (test_calls.py) and in node (node_calls.mjs).

const TYPES = {
  float32: Float32Array,
  float16: Uint16Array,
  float64: Float64Array,
  int8: Int8Array,
  uint8: Uint8Array,
  int32: Int32Array,
  bool: Uint8Array,
};

/** @param {string} name as Python spells it */
const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());

/** The views of webmm.js, by their Python names. */
const VIEWS = {
  transpose: (x, axes) => x.transpose(...axes),
  slice: (x, ranges) => x.slice(...ranges),
  reshape: (x, shape) => x.reshape(...shape),
  broadcast_to: (x, shape) => x.broadcastTo(...shape),
};

/** @param {typeof import("../../web/webmm.js")} webmm @param {import("../../web/webmm.js").Device} device @param {any[]} cases */
export async function makeCalls(webmm, device, cases) {
  const outcomes = [];
  for (const one of cases) outcomes.push(await outcome(webmm, device, one));
  return outcomes;
}

async function outcome(webmm, device, { call, operands, options, resident }) {
  const mine = [];
  const host = ({ array: { dtype, shape, base64 } }) => {
    const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    return webmm.HostArray.from(new TYPES[dtype](bytes.buffer), { shape, dtype });
  };
  const there = async (x) => {
    if (typeof x !== "object" || x === null || Array.isArray(x)) return x;
    if (!resident) return host(x);
    let array = await device.array(host(x));
    mine.push(array);
    for (const [name, args] of x.views) array = VIEWS[name](array, args);
    return array;
  };
  try {
    const given = {};
    for (const [name, x] of Object.entries(options))
      given[camel(name)] = call === "qmatmul" && x?.array ? host(x) : await there(x);
    const found = await made(webmm, device, call, operands, given, there, host);
    const result = found instanceof webmm.DeviceArray ? await found.read() : found;
    mine.push(...(found instanceof webmm.DeviceArray ? [found] : []));
    const bytes = new Uint8Array(result.data.buffer, result.data.byteOffset, result.data.byteLength);
    let binary = "";
    for (const byte of bytes) binary += String.fromCharCode(byte);
    return { base64: btoa(binary), dtype: result.dtype, shape: result.shape };
  } catch (error) {
    return { error: error.name, message: error.message, stack: error.stack };
  } finally {
    for (const array of mine) array.free();
  }
}

async function made(webmm, device, call, operands, options, there, host) {
  if (call === "qmatmul_weights") {
    const { bits, block, symmetric, ...others } = options;
    const x = await there(operands[0]);
    const weights = webmm.quantizeBlocks(host(operands[1]), { bits, block, symmetric });
    if (!(x instanceof webmm.DeviceArray)) return device.qmatmulWeights(x, weights, others);
    const resident = await weights.to(device);
    try {
      return await device.qmatmulWeights(x, resident, others);
    } finally {
      resident.free();
    }
  }
  const arrays = [];
  for (const x of operands) arrays.push(await there(x));
  if (call === "read") return arrays[0];
  if (call === "freed" || call === "matmul_freed") {
    arrays[arrays.length - 1].free();
    return call === "freed" ? arrays[0].read() : device.matmul(arrays[0], arrays[1]);
  }
  if (call === "map") {
    const { f, text, ...values } = options;
    return device.map(arrays[0], f ?? new webmm.Epilogue(text, values));
  }
  if (call === "cached") {
    const { of, layer = 1, ...sizes } = options;
    const cache = await webmm.KVCache.open(device, sizes);
    try {
      for (const i of [0, 2]) await cache.append(layer, arrays[i], arrays[i + 1]);
      return await cache[of](layer).read();
    } finally {
      cache.free();
    }
  }
  const { op, ...others } = options;
  return call === "reduce" ? device.reduce(arrays[0], op, others) : device[camel(call)](...arrays, others);
}
