// What node's tests run on: Dawn, with what browsers keep behind flags, so that a GPU that has it is tested with it.

/** @param {string} path of npm's webgpu @returns {Promise<GPU>} keep it: the garbage collector must not take what adapter and device need */
export async function dawn(path) {
  const { create, globals } = await import(path);
  Object.assign(globalThis, globals);
  return create(["enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia"]);
}

/** Print an outcome as JSON and leave: Dawn keeps node alive, and leaving at once would cut the text off. @param {unknown} outcome */
export function finish(outcome) {
  process.stdout.write(JSON.stringify(outcome), () => process.exit(0));
}
