"""Sizes of subgroups in the browser: shaders ask for theirs, and are refused where it is unknown."""

from __future__ import annotations

CONTROL = "subgroup-size-control"

# The text and the result of a product by the stage `subgroup` on the page's device.
PRODUCT = """
(async () => {
  const { device } = webmm, { core } = device;
  const kernel = device.kernelNamed("subgroup", { lanes: 4, tm: 4, tn: 4 }, "gemm");
  const problem = device.bundle.problem({ m: 33, n: 34, k: 35, dtype: "float32" });
  const { wgsl } = await device.bundle.shader(kernel, problem, core.pinned(kernel, device.capabilities));
  const [a, b] = [[33, 35], [35, 34]].map(([rows, columns]) =>
    new webmm.Matrix(new Float32Array(rows * columns).fill(1), [rows, columns]));
  const c = await device.matmul(a, b, { kernel: "subgroup", config: { lanes: 4, tm: 4, tn: 4 } });
  return { wgsl, right: [...c.data].every((x) => x === 35), features: [...device.features] };
})()
"""

# Why stages cannot run on a GPU of these sizes of subgroups, which compiles shaders that ask for ABLE.
REASONS = """
([features, lanes, able, kernels]) => import("./webmm.js").then(async ({ Device }) => {
  const [subgroupMinSize, subgroupMaxSize] = lanes;
  const info = { description: "a GPU", vendor: "", subgroupMinSize, subgroupMaxSize };
  const limits = new Proxy({}, { get: () => 2 ** 31 });
  const engine = { features: new Set(features), limits, lost: new Promise(() => {}) };
  const device = new Device({}, { info }, engine, webmm.device.bundle);
  device.pipelines.of = async (code) => {
    if (!able.includes(Number(code.match(/@subgroup_size\\((\\d+)\\)/)[1]))) throw new Error("no such size");
  };
  await device.choices.findSizes();
  const { subgroup_size, other_sizes } = device.capabilities;
  const problem = device.bundle.problem({ m: 64, n: 64, k: 64, dtype: "float32" });
  const named = (lanes) => device.kernelNamed("subgroup", { lanes, tm: 4, tn: 4 }, "gemm");
  const reasons = kernels.map((lanes) => device.core.refused(named(lanes), problem, device.choices.now()));
  return { sizes: [subgroup_size, ...other_sizes], reasons };
})
"""


def test_a_shader_asks_for_its_size(page) -> None:
    found = page.evaluate(PRODUCT)
    assert CONTROL in found["features"]
    assert "enable subgroup_size_control;" in found["wgsl"]
    assert "@subgroup_size(4) @workgroup_size(LANES)" in found["wgsl"]
    assert found["right"]


def test_sizes_that_a_gpu_can_be_asked_for(page) -> None:
    every = ["subgroups", CONTROL]
    found = page.evaluate(REASONS, [every, (8, 32), (16, 32), (16, 32)])
    assert found == {"sizes": [16, 32, 8], "reasons": [None, None]}


def test_a_gpu_that_cannot_be_asked(page) -> None:
    found = page.evaluate(REASONS, [["subgroups"], (8, 32), (), (8, 16, 64)])
    assert found["sizes"] == [8, 16, 32]
    few, unknown, many = found["reasons"]
    assert few is None
    assert unknown == "needs subgroups of at least 16 lanes; a GPU has 8 to 32, and cannot be asked for a size"
    assert many == "needs subgroups of 64 lanes, a GPU has 8 or 16 or 32"
    found = page.evaluate(REASONS, [["subgroups"], (32, 32), (), (16, 32)])
    assert found == {"sizes": [32], "reasons": [None, None]}
