/**
 * The libraries, each wrapped in the same interface:
 *
 *     const library = await open(host);                    // opens the library's WebGPU device
 *     const work = await library.prepare(task, inputs);    // makes inputs resident, may compile; null if the op is missing
 *     await work.run(count);                               // queue the task `count` times, as its users would
 *     await library.done();                                // wait until the device has finished all queued work
 *     const c = await work.read();                         // a Float32Array
 *     work.free();
 *
 * `done()` submits what the library has not submitted yet, then waits for `onSubmittedWorkDone()` of the library's queue.
 * Every call allocates its result and frees it, through the library's pool if it has one; ONNX Runtime writes into a
 * preallocated result, as its documentation recommends.
 */

import { jax } from "./jax.js";
import { onnxruntime } from "./onnxruntime.js";
import { tensorflow } from "./tensorflow.js";
import { webmm } from "./webmm.js";

/** @typedef {{script: (path: string) => Promise<void>, url: (path: string) => string, bytes: (path: string) => Promise<ArrayBuffer>, page: string, name: string}} Host */

export const LIBRARIES = { webmm, "tensorflow.js": tensorflow, "onnxruntime-web": onnxruntime, "jax-js": jax };
