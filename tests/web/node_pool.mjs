// node node_pool.mjs POOL_JS: prints the sizes of the buffers that a full pool gives back, in order, as JSON.
const { Pool } = await import(process.argv[2]);
const gone = [];
const pool = new Pool({ wgpu: {} }, "no adapter", () => {});
const buffer = (size) => ({ size, destroy: () => gone.push(size) });
for (const size of [32, 64, 128]) pool.give(buffer(size));
pool.idle(32); // the most recently requested size
pool.limit = 160;
pool.give(buffer(16));
console.log(JSON.stringify(gone));
