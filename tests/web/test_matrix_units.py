"""Float products on matrix units, in Tint's dialect: right in node on Dawn if the GPU has them, otherwise refused.

Products of whole numbers must be exact for every layout and epilogue, and nothing outside C may be written.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.gpu.products import UNTOUCHED, describe, indices, lay_out, view, whole_numbers
from tests.web.dispatches import case, in_chromium, in_node, result
from tests.web.page_steps import wait_text
from webmm.choose import candidates, tuned
from webmm.kernels.base import Capabilities, MatrixShape
from webmm.kernels.gemm.matrix_unit import MatrixUnit, MatrixUnitF32
from webmm.page import ladders
from webmm.problems.gemm import Gemm, gemm
from webmm.wgsl import tint
from webmm.wgsl.epilogues import BIASES
from webmm.wgsl.render import MATRIX_UNITS

FEATURE = MATRIX_UNITS["tint"]
SHAPES: dict[str, tuple[tuple[int, int, int], dict[str, Any]]] = {
    "aligned": ((256, 128, 64), {}),
    "by eights": ((136, 264, 40), {"pads": (8, 8, 8), "offsets": (8, 16, 8)}),
    "by fours": ((132, 68, 36), {}),
    "ragged": ((67, 131, 33), {"batch": 2, "pads": (1, 0, 2), "offsets": (1, 3, 1)}),
}


def problems() -> Iterator[Gemm]:
    """Yield every layout and dtype of C in every alignment, then every bias with all other epilogue terms."""
    for shape, options in SHAPES.values():
        for layout in ("nn", "nt", "tn", "tt"):
            ta, tb = (letter == "t" for letter in layout)
            for out in ("float16", "float32"):
                yield view(*shape, "float16", ta=ta, tb=tb, out_dtype=out, **options)
    for shape, options in SHAPES.values():
        plain = view(*shape, "float16", **options)
        for bias in BIASES if plain.batch == 1 else BIASES[:-1]:
            yield dataclasses.replace(plain, alpha=2.0, beta=-3.0, bias=bias, bias_offset=3, activation="relu")


def given(kernel: MatrixUnit, p: Gemm) -> tuple[dict[str, Any], np.ndarray]:
    """Return the case, and the expected contents of C's buffer."""
    rng, a, b = np.random.default_rng(2), *whole_numbers(p)
    c = rng.integers(-9, 9, (p.batch, p.m, p.n)).astype(p.out_dtype.numpy)
    size = {"": (1,), "row": (p.m, 1), "column": (p.n,), "matrix": (p.m, p.n)}[p.bias]
    bias = rng.integers(-50, 50, size).astype(np.float32 if p.bias == "matrix" else p.dtype.numpy)
    expected = p.alpha * (a.astype(np.float64) @ b) + (bias if p.bias else 0)
    if p.activation:
        expected = np.maximum(expected, 0)
    before = lay_out(c, p.c, UNTOUCHED)
    after = before.copy()
    after[indices(p.c, p.m, p.n, p.batch)] = expected + p.beta * c
    inputs = {"a": lay_out(a.astype(np.float16), p.a, np.nan), "b": lay_out(b.astype(np.float16), p.b, np.nan)}
    if p.bias:
        inputs["bias"] = np.concatenate([np.full(p.bias_offset, np.nan, bias.dtype), bias.ravel()])
    return case(kernel, p, c=before, **inputs), after


def judge(run: Any) -> None:
    usual = given(MatrixUnit(), next(problems()))[0]
    found = run([usual])
    if FEATURE not in found["features"]:
        assert "is not allowed in the current environment" in found["results"][0]["error"]
        return
    shapes = [tuple(sizes) for operands, sums, *sizes in found["fragments"] if (operands, sums) == ("f16", "f32")]
    there = (MatrixUnit(fm=m, fn=n, fk=k, lanes=found["lanes"]) for m, n, k in sorted(set(shapes), reverse=True))
    first, *others = (kernel for kernel in there if kernel.invalid() is None)
    others += [dataclasses.replace(first, **each) for each in ({"spelling": "deprecated"}, {"bm": 64, "sm": 32})]
    few = [p for p in problems() if p.bias == "column"]
    pairs = [*((first, p) for p in problems()), *itertools.product(others, few)]
    asked = [given(kernel, p) for kernel, p in pairs]
    results = run([each for each, _ in asked])["results"]
    for (kernel, p), (_, expected), got in zip(pairs, asked, results, strict=True):
        label = f"{describe(kernel, p)}, bias {p.bias!r}"
        np.testing.assert_array_equal(result(got, expected.dtype, expected.shape, label), expected, err_msg=label)


def test_matrix_units_in_node(node_modules: Path, node, tmp_path: Path) -> None:
    judge(lambda cases: in_node(node, node_modules, tmp_path, cases))


def test_matrix_units_in_chromium(page) -> None:
    judge(lambda cases: in_chromium(page, cases))


# The page's choice for the matrix units that an adapter reports

PRETENDED = """
([features, shapes, lanes, spelling, vendor, given]) => import("./webmm.js").then(async ({ Device }) => {
  const [subgroupMinSize, subgroupMaxSize] = lanes;
  const subgroupMatrixConfigs = shapes.map(([componentType, resultComponentType, M, N, K]) =>
    ({ componentType, resultComponentType, M, N, K }));
  const info = { description: "a GPU", vendor, subgroupMinSize, subgroupMaxSize, subgroupMatrixConfigs };
  const limits = new Proxy({}, { get: () => 2 ** 31 });
  const engine = { features: new Set(features), limits, lost: new Promise(() => {}) };
  const device = new Device({}, { info }, engine, webmm.device.bundle);
  device.spelling = spelling;
  const data = ({ name, config }) => ({ name, config });
  BODY
})
"""
OPEN = """
  const stages = ["matrix_unit", "matrix_unit_f32"].map((name) => device.stage(name));
  return given.map(([m, n, k, dtype]) => {
    const p = { m, n, k, dtype };
    return { ...data(device.choose(p)), reasons: stages.map((stage) => device.reason(stage, p)) };
  });
"""
# The kernels for matrix units that are offered, those of the prepared ladders, and the text of the probe of spellings.
OFFERED = """
  const offered = [...device.kernels.values()].flat().filter(({ matrix }) => matrix).map(data);
  const { PreparedCase } = await import("./prepared.js");
  const ladders = (await device.bundle.module("ladders.js")).default.flatMap(({ gpu }) => gpu.slice(-1));
  const rungs = ladders.map((known) => new PreparedCase(device, known, []).rungs.filter(({ matrix }) => matrix));
  const probes = [];
  device.pipelines.compiles = async (code) => probes.push(code);
  device.choices.findSizes = async () => {};
  await device.prepare();
  return { offered, ladders: rungs.flat().map(data), probes };
"""
EVERY = ["shader-f16", "subgroups", FEATURE]
CHOSEN_AT = (
    *((64, 64, 64), (256, 256, 256), (1024, 1024, 1024), (4096, 4096, 4096), (4100, 4096, 4096), (4096, 4096, 4100)),
    *((1, 8, 16), (8, 4096, 4096), (32, 4096, 4096)),
)
SIXTEEN, EIGHT = ["f16", "f32", 16, 16, 16], ["f16", "f32", 8, 8, 8]
BYTES = [["i8", "i32", 16, 16, 32], ["u8", "u32", 16, 16, 32]]
NVIDIA = [SIXTEEN, ["f16", "f32", 16, 8, 16], ["f16", "f32", 16, 8, 8], *BYTES, ["i8", "i32", 16, 8, 32]]
INTEL = [["f16", "f32", 8, 8, 16], ["i8", "i32", 8, 8, 32], ["u8", "u32", 8, 8, 32]]
AMD = [SIXTEEN, ["i8", "i32", 16, 16, 16], ["u8", "i32", 16, 16, 16]]
APPLE = [["f32", "f32", 8, 8, 8], ["f16", "f16", 8, 8, 8]]
LISTED = ((NVIDIA, 32), (INTEL, 8), ([["f16", "f32", 8, 16, 16]], 16), (AMD, 64), (APPLE, 32), ([SIXTEEN, EIGHT], 32))


FLOAT16 = (4096, 4096, 4096, "float16")


def choose_on(page, shapes=(SIXTEEN,), lanes=(32, 32), features=EVERY, spelling="current", size=FLOAT16, vendor=""):
    """Return the choice for a product of `size` on such an adapter, and why each stage of matrix units cannot run."""
    return pretended(page, OPEN, shapes, lanes, features, spelling, vendor, [size])[0]


def pretended(page, body: str, shapes, lanes, features=EVERY, spelling="current", vendor="", given=()) -> Any:
    """Return what `body` returns on an adapter with these matrix units."""
    return page.evaluate(
        PRETENDED.replace("BODY", body), [features, list(shapes), lanes, spelling, vendor, list(given)]
    )


def in_python(shapes, lanes: int) -> Any:
    """Return such a device in Python."""
    there = frozenset(MatrixShape(*shape) for shape in shapes)
    limits: dict[str, int] = defaultdict(lambda: 2**31)
    able = Capabilities("a GPU", limits, frozenset(EVERY), subgroup_size=lanes, matrix_shapes=there)
    info = SimpleNamespace(name="a GPU", kind="other", driver="")
    return SimpleNamespace(info=info, engine=SimpleNamespace(name="dawn"), capabilities=able)


def test_the_page_chooses_like_python(page) -> None:
    for shapes, lanes in LISTED:
        device = in_python(shapes, lanes)
        sizes = [(*size, dtype) for size in CHOSEN_AT for dtype in ("float16", "float32")]
        found = pretended(page, OPEN, shapes, (lanes, lanes), given=sizes)
        for (m, n, k, dtype), chosen in zip(sizes, found, strict=True):
            kernel = next(iter(candidates(gemm(m, n, k, dtype=dtype), device, "off")))
            assert (chosen["name"], chosen["config"]) == (kernel.name, kernel.config), (m, n, k, dtype)
            halves, singles = (reason is None for reason in chosen["reasons"])
            assert halves == (dtype == "float16" and shapes is not APPLE)
            assert singles == (shapes is APPLE)


def shapes_of(kernels: list[dict[str, Any]]) -> set[tuple[str, int, int, int]]:
    return {(each["name"], *(each["config"][size] for size in ("fm", "fn", "fk"))) for each in kernels}


def test_every_shape_of_floats_that_the_adapter_lists_is_offered(page) -> None:
    names = {"f16": MatrixUnit.name, "f32": MatrixUnitF32.name}
    for shapes, lanes in LISTED:
        found = pretended(page, OFFERED, shapes, (lanes, lanes), spelling="deprecated")["offered"]
        listed = {(names[operands], *sizes) for operands, sums, *sizes in shapes if sums == "f32"}
        stages = {name for name, *_ in listed}
        assert {each for each in shapes_of(found) if each[0] in stages} == listed
        there = [each["config"] for each in found if each["name"] in stages]
        assert {(config["lanes"], config["spelling"]) for config in there} == {(lanes, "deprecated")}


def test_ladders_of_integers_use_the_fragments_that_the_choice_takes(page) -> None:
    for shapes, lanes in LISTED:
        device = in_python(shapes, lanes)
        bytes_listed = [shape for shape in shapes if shape[0] in ("i8", "u8")]
        found = pretended(page, OFFERED, shapes, (lanes, lanes))["ladders"]
        expected = []
        for ladder in ladders.every():
            (unit,) = [kernel for kernel in ladder.kernels["gpu"] if kernel.matrix_shape] or [None]
            problem = ladder.case(ladder.sizes["gpu"][-1], ladder.dtypes[-1]).problem
            made = unit and [k for k in candidates(problem, device, "off") if type(k) is type(unit)]
            expected += [(each.name, each.config) for each in made[:1]] if made else [unit.name] if unit else []
        assert len(found) == len(expected) == 2
        for each, kernel in zip(found, expected, strict=True):
            assert kernel in (each["name"], (each["name"], each["config"]))
            assert isinstance(kernel, tuple) == bool(bytes_listed)


def test_the_spelling_is_probed_with_a_shape_that_stages_use(page) -> None:
    for shapes, lanes in LISTED:
        for features in (EVERY, [name for name in EVERY if name != "shader-f16"]):
            probes = pretended(page, OFFERED, shapes, (lanes, lanes), features)["probes"]
            usable = any(operands != "f16" or "shader-f16" in features for operands, *_ in shapes)
            assert len(probes) == usable
            for code in probes:
                tint.validate(code, "the probe")
                assert ("enable f16;" not in code) or "shader-f16" in features


def test_matrix_units_precede_records_of_the_vendors_other_gpus(page) -> None:
    shipped = next(r for r in tuned.shipped() if (r.dtype, r.m) == ("float16", 4096) and tuned.family(r) == "dawn")
    assert choose_on(page, vendor="nvidia")["name"] == MatrixUnit.name
    chosen = choose_on(page, vendor="nvidia", features=EVERY[:2])
    assert [chosen["name"], chosen["config"]] == [shipped.kernel, shipped.config]


def test_the_spelling_is_that_of_the_engine(page) -> None:
    chosen = choose_on(page, spelling="deprecated")
    assert (chosen["name"], chosen["config"]["spelling"]) == (MatrixUnit.name, "deprecated")


def test_reasons_without_matrix_units(page) -> None:
    halves = ["f16", "f16", 8, 8, 8]
    for asked, words in (
        ({"features": EVERY[:2]}, f"needs the feature {FEATURE}: Chromium offers it with --enable-unsafe-webgpu"),
        ({"shapes": ()}, "needs matrix units, a GPU has none for shaders"),
        ({"shapes": (halves,)}, "those of a GPU multiply 8×8×8 f16 into f16"),
        (
            {"lanes": (32, 64)},
            "needs subgroups of exactly 32 lanes; a GPU has 32 to 64, and cannot be asked for a size",
        ),
        ({"spelling": ""}, "this engine compiles none"),
        ({"size": (4096, 4096, 4096, "float32")}, "multiplies float16, not float32"),
    ):
        chosen = choose_on(page, **asked)
        assert chosen["name"] != MatrixUnit.name
        assert words in chosen["reasons"][0]


def test_explain_shows_the_float16_shader_and_a_subgroups_tile(page) -> None:
    page.click("#tab-explain")
    page.check(f"#explain input[value={MatrixUnit.name}]", force=True)
    wait_text(page, "#explain .code-head", "matrix_unit for float16")
    share = "64 × 64 of C in fragments of 16 × 16 per subgroup"
    assert share in page.inner_text(".tile-picture")
    label = page.locator(".tile-picture svg").get_attribute("aria-label")
    assert share.replace("per subgroup", "for each subgroup") in label
    assert page.locator(".tile-picture .mine").count() == 1
    assert page.is_disabled("#explain-run")
