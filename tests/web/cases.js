// Checks the bundle's products, whose results NumPy computed, for every stage and dtype that the device supports: the same
// code in a browser (test_shaders.py) and in node (node_cases.mjs).

/** SwiftShader takes over half a minute to compile this stage's boundary checks of single elements; tests/gpu covers them on lavapipe. */
const SLOW_TO_COMPILE = "persistent";

/**
 * @param {typeof import("../../web/webmm.js")} webmm @param {import("../../web/webmm.js").Device} device
 * @param {number} half 0 or 1: node takes a quarter of the cases, a browser another
 */
export async function checkCases(webmm, device, half) {
  const { index } = device.bundle;
  const outcomes = [];
  for (const [i, { m, n, k }] of index.cases.entries()) {
    const load = async (x) => webmm.parseNpy(await device.bundle.file(`cases/${m}x${n}x${k}.${x}.npy`));
    const [a, b, expected] = [await load("a"), await load("b"), await load("c")];
    for (const dtype of Object.keys(index.dtypes)) {
      for (const [j, name] of device.bundle.stages.entries()) {
        if ((i + j) % 4 !== 2 * half) continue;
        const kernel = device.stage(name);
        const p = { m, n, k, dtype };
        const outcome = { name, m, n, k, dtype };
        outcomes.push(outcome);
        outcome.reason = device.reason(kernel, p);
        if (outcome.reason === null && name === SLOW_TO_COMPILE && (n % 4 || k % 4)) outcome.reason = "slow to compile";
        if (outcome.reason !== null) continue;
        const got = (await device.matmul(a.as(dtype), b.as(dtype), { kernel })).floats();
        const bound = webmm.errorBound(k, dtype, index.dtypes[dtype]);
        outcome.right = isRight(got, expected.floats(), a.floats(), b.floats(), p, bound);
      }
    }
  }
  return outcomes;
}

/** |C - Ĉ| ≤ bound·(|A|·|B|), with NumPy's float64 product for Ĉ. */
function isRight(got, expected, a, b, { m, n, k }, bound) {
  for (let i = 0; i < m; i++) {
    for (let j = 0; j < n; j++) {
      let scale = 0;
      for (let l = 0; l < k; l++) scale += Math.abs(a[i * k + l] * b[l * n + j]);
      if (!(Math.abs(got[i * n + j] - expected[i * n + j]) <= (bound + 2 ** -23) * scale)) return false; // Ĉ as float32
    }
  }
  return true;
}
