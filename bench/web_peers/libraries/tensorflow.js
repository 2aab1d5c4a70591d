/** TensorFlow.js submits after every 15 passes; `submitQueue` submits the rest. */

import { versionOf } from "./version.js";

export async function tensorflow(host) {
  await host.script("@tensorflow/tfjs-core/dist/tf-core.min.js");
  await host.script("@tensorflow/tfjs-backend-webgpu/dist/tf-backend-webgpu.min.js");
  const { tf } = globalThis;
  await tf.setBackend("webgpu");
  await tf.ready();
  if (tf.getBackend() !== "webgpu") throw new Error(`TensorFlow.js fell back to ${tf.getBackend()}`);
  const backend = tf.backend();

  /** TensorFlow.js has no kernel for it: computed from moments, as in its layer. */
  const layerNorm = (x, weight, bias) =>
    tf.tidy(() => {
      const { mean, variance } = tf.moments(x, -1, true);
      return tf.add(tf.mul(tf.mul(tf.sub(x, mean), tf.rsqrt(tf.add(variance, 1e-5))), weight), bias);
    });
  /** TensorFlow.js has none: two products, a softmax, and for a causal mask a sum with -1e9 above the diagonal. */
  const attention = ({ width, queries, keys, causal }, arrays) =>
    tf.tidy(() => {
      const [q, k, v] = arrays.map((x) => tf.transpose(x, [1, 0, 2]));
      let scores = tf.mul(tf.matMul(q, k, false, true), 1 / Math.sqrt(width));
      if (causal) scores = tf.add(scores, tf.mul(tf.sub(1, tf.linalg.bandPart(tf.ones([queries, keys]), -1, 0)), -1e9));
      return tf.transpose(tf.matMul(tf.softmax(scores), v), [1, 0, 2]);
    });
  const calls = {
    attention,
    gemm: ({ layout = "nn" }, [a, b]) => tf.matMul(a, b, layout[0] === "t", layout[1] === "t"),
    softmax: (_, [x]) => tf.softmax(x),
    layer_norm: (_, arrays) => layerNorm(...arrays),
    sum: ({ axis }, [x]) => tf.sum(x, axis),
  };
  return {
    name: "tensorflow.js",
    version: await versionOf(host, "@tensorflow/tfjs-core"),
    done() {
      if (backend.commandEncoder) {
        backend.endComputePassEncoder?.();
        backend.submitQueue();
      }
      return backend.device.queue.onSubmittedWorkDone();
    },
    async prepare(task, inputs) {
      const call = calls[task.op];
      if (!call) return null;
      const tensors = Object.values(inputs).map(({ data, shape }) => tf.tensor(data, shape));
      return {
        async run(count) {
          for (let i = 0; i < count; i++) call(task, tensors).dispose();
        },
        async read() {
          const c = call(task, tensors);
          const data = await c.data();
          c.dispose();
          return data;
        },
        free: () => tf.dispose(tensors),
      };
    },
  };
}
