/** Minimal ONNX models of the tasks; inputs are named as in the operator's specification, the result is Y. */

const IR_VERSION = 8;
const OPSETS = { "": 17, "com.microsoft": 1 };
const [FLOAT, UINT8, INT64] = [1, 2, 7]; // TensorProto.DataType
const [ONE_FLOAT, ONE_INT, INTS] = [1, 2, 7]; // AttributeProto.AttributeType

/** @param {import("../tasks.js").Task} task @returns {{model: Uint8Array, shape: number[]}} a serialised onnx.ModelProto, and the shape of Y */
export function modelOf(task) {
  const { op, m, n, k = 1, batch = 1, axis = -1, block = 32 } = task;
  if (op === "attention") {
    const attributes = [int("num_heads", task.heads), int("unidirectional", Number(task.causal))];
    const names = ["query", "key", "value"]; // (batch, tokens, heads · width)
    return { model: modelWith(names, [node("MultiHeadAttention", names, "Y", attributes, "com.microsoft")], 3), shape: [1, task.queries, task.heads * task.width] };
  }
  if (op === "gemm") return { model: modelWith(...product(task)), shape: [...(batch > 1 ? [batch] : []), m, n] };
  if (op === "softmax") return { model: modelWith(["X"], [node("Softmax", ["X"], "Y", [int("axis", -1)])], 2), shape: [m, n] };
  if (op === "sum") {
    const axes = message(5, [...number(1, 1), ...number(2, INT64), ...message(8, utf8("axes")), ...message(9, int64(axis))]);
    return { model: modelWith(["X"], [node("ReduceSum", ["X", "axes"], "Y", [int("keepdims", 0)])], 2, { initializers: axes, rank: 1 }), shape: [axis === 0 ? n : m] };
  }
  if (op === "layer_norm") {
    const attributes = [int("axis", -1), float("epsilon", 1e-5)];
    return { model: modelWith(["X", "Scale", "B"], [node("LayerNormalization", ["X", "Scale", "B"], "Y", attributes)], [2, 1, 1]), shape: [m, n] };
  }
  const attributes = [int("K", k), int("N", n), int("bits", 4), int("block_size", block)];
  const names = ["A", "B", "scales"];
  const nodes = [node("MatMulNBits", names, "Y", attributes, "com.microsoft")];
  return { model: modelWith(names, nodes, [2, 3, 2], { types: [FLOAT, UINT8, FLOAT] }), shape: [m, n] };
}

/** A product, with transposition as exporters write it: by Gemm's flags, or by a Transpose node if there is a batch. */
function product({ layout = "nn", batch = 1 }) {
  const transposed = [...layout].map((letter) => letter === "t");
  if (batch === 1) {
    const attributes = transposed.flatMap((each, i) => (each ? [int(`trans${"AB"[i]}`, 1)] : []));
    return [["A", "B"], [node(attributes.length ? "Gemm" : "MatMul", ["A", "B"], "Y", attributes)], 2];
  }
  const names = ["A", "B"].map((name, i) => (transposed[i] ? `${name}t` : name));
  const nodes = names.flatMap((name, i) => (transposed[i] ? [node("Transpose", [name[0]], name, [ints("perm", [0, 2, 1])])] : []));
  return [["A", "B"], [...nodes, node("MatMul", names, "Y")], 3];
}

/**
 * @param {string[]} inputs @param {number[][]} nodes @param {number | number[]} ranks of the inputs; the first is that of Y
 * @param {{types?: number[], initializers?: number[], rank?: number}} [others]
 */
function modelWith(inputs, nodes, ranks, { types = inputs.map(() => FLOAT), initializers = [], rank } = {}) {
  const rankOf = (i) => (Array.isArray(ranks) ? ranks[i] : ranks);
  const graph = [
    ...nodes.flat(),
    ...message(2, utf8("task")),
    ...initializers,
    ...inputs.flatMap((name, i) => message(11, value(name, types[i], rankOf(i)))),
    ...message(12, value("Y", FLOAT, rank ?? rankOf(0))),
  ];
  const opsets = Object.entries(OPSETS).flatMap(([domain, version]) => message(8, [...message(1, utf8(domain)), ...number(2, version)]));
  return Uint8Array.from([...number(1, IR_VERSION), ...message(7, graph), ...opsets]);
}

/** onnx.NodeProto, as a field of a graph. @param {string} op @param {string[]} inputs @param {string} output @param {number[][]} [attributes] */
function node(op, inputs, output, attributes = [], domain = "") {
  const fields = inputs.flatMap((name) => message(1, utf8(name)));
  return message(1, [...fields, ...message(2, utf8(output)), ...message(4, utf8(op)), ...attributes.flat(), ...message(7, utf8(domain))]);
}

// onnx.AttributeProto, as a field of a node
const int = (name, x) => message(5, [...message(1, utf8(name)), ...number(3, x), ...number(20, ONE_INT)]);
const ints = (name, xs) => message(5, [...message(1, utf8(name)), ...xs.flatMap((x) => number(8, x)), ...number(20, INTS)]);
const float = (name, x) => message(5, [...message(1, utf8(name)), (2 << 3) | 5, ...new Uint8Array(new Float32Array([x]).buffer), ...number(20, ONE_FLOAT)]);

/** A named array with symbolic sizes: onnx.ValueInfoProto. @param {string} name @param {number} type @param {number} rank */
function value(name, type, rank) {
  const shape = Array.from({ length: rank }, (_, axis) => message(1, message(2, utf8(`${name}${axis}`)))).flat();
  const tensor = [...number(1, type), ...message(2, shape)];
  return [...message(1, utf8(name)), ...message(2, message(1, tensor))];
}

// Protocol buffers: a field consists of its number and wire type, then its value

const number = (field, x) => [...varint(field << 3), ...varint(x)];
const message = (field, bytes) => [(field << 3) | 2, ...varint(bytes.length), ...bytes];
const utf8 = (string) => [...new TextEncoder().encode(string)];
const int64 = (x) => [...new Uint8Array(new BigInt64Array([BigInt(x)]).buffer)];

function varint(x) {
  const bytes = [];
  let rest = BigInt.asUintN(64, BigInt(x)); // negative numbers take 64 bits
  for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
  return [...bytes, Number(rest)];
}
