/**
 * The libraries, each behind the same few calls:
 *
 *     const library = await open(host);                    // on a WebGPU device of its own
 *     const work = await library.prepare(task, inputs);    // inputs made resident; may compile. null: it has no such op
 *     await work.run(count);                               // queue the task `count` times, as its users would
 *     await library.done();                                // until the device has finished all of it
 *     const c = await work.read();                         // a Float32Array
 *     work.free();
 *
 * `done()` is `onSubmittedWorkDone()` of the library's own queue for all of them, after whatever the library still holds
 * back was submitted. Every call allocates its own result and gives it back, from the library's pool if it has one; ONNX
 * Runtime is given one to write to, which is what its documentation recommends.
 */

import { jax } from "./jax.js";
import { onnxruntime } from "./onnxruntime.js";
import { tensorflow } from "./tensorflow.js";
import { webmm } from "./webmm.js";

/** @typedef {{script: (path: string) => Promise<void>, url: (path: string) => string, bytes: (path: string) => Promise<ArrayBuffer>, page: string, name: string}} Host */

export const LIBRARIES = { webmm, "tensorflow.js": tensorflow, "onnxruntime-web": onnxruntime, "jax-js": jax };
