// Dawn for the tests in node, with features that browsers enable by flags (float16, matrix units), so that GPUs with these are tested.

// While anything is awaited, Dawn asks the driver again at each turn of node's loop, which keeps a core busy that a
// software driver needs. Once a millisecond does.
globalThis.setImmediate = /** @type {any} */ ((/** @type {() => void} */ task) => setTimeout(task, 1));

/** @param {string} path of npm's webgpu @returns {Promise<GPU>} keep a reference: adapter and device need the object to stay alive */
export async function dawn(path) {
  const { create, globals } = await import(path);
  Object.assign(globalThis, globals);
  return create(["enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia"]);
}

/** Print an outcome as JSON, then exit: Dawn keeps node alive, and exiting before the write ends would truncate it. @param {unknown} outcome */
export function finish(outcome) {
  process.stdout.write(JSON.stringify(outcome), () => process.exit(0));
}
