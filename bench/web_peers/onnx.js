/** The smallest ONNX model there is of a product: C = MatMul(A, B), both two-dimensional, of any size. */

const IR_VERSION = 8;
const OPSET = 13;
const FLOAT = 1; // TensorProto.DataType

/** @returns {Uint8Array} a serialised onnx.ModelProto */
export function matmulModel() {
  const node = [...text(1, "A"), ...text(1, "B"), ...text(2, "C"), ...text(4, "MatMul")];
  const graph = [
    ...message(1, node),
    ...text(2, "product"),
    ...message(11, value("A", "m", "k")),
    ...message(11, value("B", "k", "n")),
    ...message(12, value("C", "m", "n")),
  ];
  return Uint8Array.from([...number(1, IR_VERSION), ...message(7, graph), ...message(8, number(2, OPSET))]);
}

/** A named matrix of float32 with symbolic sizes: onnx.ValueInfoProto. */
function value(name, rows, columns) {
  const shape = [rows, columns].flatMap((size) => message(1, text(2, size)));
  const tensor = [...number(1, FLOAT), ...message(2, shape)];
  return [...text(1, name), ...message(2, message(1, tensor))];
}

// Protocol buffers: a field is its number and kind, then its value

const number = (field, value) => [field << 3, ...varint(value)];
const message = (field, bytes) => [(field << 3) | 2, ...varint(bytes.length), ...bytes];
const text = (field, string) => message(field, new TextEncoder().encode(string));

function varint(value) {
  const bytes = [];
  for (; value > 127; value >>>= 7) bytes.push((value & 127) | 128);
  return [...bytes, value];
}
