"""The page runs what Python runs: the same template, tile and parameters, dialect aside."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webmm.cases.quantized import scheme_of
from webmm.choose import gemm as choose
from webmm.dtypes import F16, U8, dtype_of
from webmm.engine import timing
from webmm.errors import ConfigError
from webmm.kernels import KERNELS, STAGES
from webmm.kernels.base import Capabilities
from webmm.kernels.gemm.base import GemmParams
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.page import bundle, exact, ladders, stages
from webmm.params import layout
from webmm.problems.gemm import gemm
from webmm.problems.scheme import limits
from webmm.render import params_bytes, render

SHAPES = ((1, 1, 1), (64, 64, 64), (1024, 1024, 1024), (333, 257, 129), (100, 100, 100), (7, 512, 33), (2, 3, 70_000))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("bundle") / "page"
    bundle.build(folder)
    return folder


@pytest.fixture(scope="module")
def index(page: Path) -> dict[str, Any]:
    return json.loads((page / bundle.MARKER).read_text())


def served(index: dict[str, Any], row: dict[str, Any], dtype: str, flags: int) -> str:
    """Return the file of exactly these flags; the recommended configurations carry every specialisation."""
    return row["shaders"][dtype][str(flags)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [dtype.name for dtype in stages.DTYPES])
def test_recommended_kernels_are_what_python_runs(
    page: Path, index: dict[str, Any], shape: tuple[int, int, int], dtype: str
) -> None:
    problem = gemm(*shape, dtype=dtype)
    for cls, stage in zip(stages.offered(), index["kernels"], strict=True):
        assert stage["name"] == cls.name
        names = [tunable["name"] for tunable in stage["tunables"]]
        assert [row["config"] for row in stage["configs"][: len(stages.recommended(cls))]] == [
            list(kernel.config.values()) for kernel in stages.recommended(cls)
        ]
        for kernel, row in zip(stages.chosen(cls), stage["configs"], strict=False):
            assert dict(zip(names, row["config"], strict=True)) == kernel.config
            if reason := kernel.unsuited(problem):
                assert dtype not in row["shaders"], reason
                continue
            name = served(index, row, dtype, stages.flags(kernel.specialise(problem)))
            text = (page / "bundle" / "shaders" / f"{name}.wgsl").read_text()
            assert text == render(kernel, problem, "tint").wgsl
            assert name == hashlib.sha256(text.encode()).hexdigest()[:10]
            if not kernel.matrix_shape:  # whose fragments have other names in each dialect
                assert body(text) == body(render(kernel, problem, "naga").wgsl)


def body(text: str) -> list[str]:
    """Return the text without what sets the dialects apart: directives."""
    return [line for line in text.splitlines() if line and not line.startswith(("enable ", "requires ", "diagnostic("))]


def test_every_configuration_says_what_it_needs(index: dict[str, Any]) -> None:
    for stage in index["kernels"]:
        cls = KERNELS[stage["name"]]
        names = [tunable["name"] for tunable in stage["tunables"]]
        assert stage["changed"].startswith(("Changed from", "First stage", "Made for")) or not stage["changed"]
        for row in stage["configs"]:
            kernel = cls(**dict(zip(names, row["config"], strict=True)))
            assert kernel.invalid() is None
            assert tuple(row["workgroup_size"]) == kernel.workgroup_size
            assert row["workgroup_bytes"] == kernel.workgroup_bytes
            assert row["inner_step"] == kernel.inner_step
            assert row["subgroup"] == kernel.subgroup
            if shape := kernel.matrix_shape:
                wanted = {**asdict(shape), "lanes": kernel.lanes, "spelling": kernel.spelling}
                assert row["matrix"] == wanted
            else:
                assert row["matrix"] is None
            grid = kernel.grid
            assert row["grid"] == {
                "tile_m": grid.tile_m,
                "tile_n": grid.tile_n,
                "elements": grid.elements,
                "at_most": grid.at_most,
            }


def test_some_shader_covers_every_problem(index: dict[str, Any]) -> None:
    vectors = sum(1 << i for i, name in enumerate(index["flags"]) if name.startswith("vec"))
    for stage in index["kernels"]:
        cls = KERNELS[stage["name"]]
        names = [tunable["name"] for tunable in stage["tunables"]]
        for row, shape in itertools.product(stage["configs"], SHAPES):
            kernel = cls(**dict(zip(names, row["config"], strict=True)))
            needed = stages.flags(kernel.specialise(stages.some_problem(kernel, *shape)))
            for dtype, files in row["shaders"].items():
                assert any(
                    not (has & ~needed & vectors) and not (needed & ~has & ~vectors) for has in map(int, files)
                ), (stage["name"], row["config"], shape, dtype)


def test_matrix_units_are_carried_in_every_spelling_with_every_kind_of_fragments(index: dict[str, Any]) -> None:
    rows = next(stage for stage in index["kernels"] if stage["name"] == MatrixUnit.name)["configs"]
    assert {tuple(row["shaders"]) for row in rows} == {("float16",)}
    assert len(rows[0]["shaders"]["float16"]) == 2 * 4 * 3  # m and n at the edge; A, B and C in vectors or not
    found = [tuple(row["matrix"][name] for name in ("spelling", "m", "n", "k", "lanes")) for row in rows]
    for spelling, fragment in itertools.product(stages.SPELLINGS, stages.FRAGMENTS):
        assert found.count((spelling, *fragment.values())) >= len(choose.MATRIX_TILES)


def test_params_timing_and_choices_are_pythons(index: dict[str, Any]) -> None:
    assert index["params"]["members"] == {member.name: member.offset for member in layout(GemmParams).members}
    assert index["timing"]["warm_up"] == timing.WARM_UP
    for where, kernels in (("gpu", choose.GPU), ("cpu", choose.CPU)):
        listed = [(choice["kernel"], choice["config"]) for choice in index["choices"][where]]
        assert [(kernel.name, kernel.config) for kernel in kernels] == listed[-len(kernels) :]


def test_cases_hold_numpys_products(page: Path, index: dict[str, Any]) -> None:
    for case in index["cases"]:
        files = [page / "bundle" / "cases" / f"{case['m']}x{case['n']}x{case['k']}.{x}.npy" for x in "abc"]
        a, b, c = (np.load(file, allow_pickle=False) for file in files)
        np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64))


# Ladders of other ops

ANY_DEVICE = Capabilities(
    "any", defaultdict(lambda: 2**31), frozenset({"subgroup", "subgroups", "shader-f16"}), subgroup_size=128
)


@pytest.fixture(scope="module")
def written(page: Path) -> dict[str, Any]:
    return json.loads((page / bundle.PREPARED).read_text())


def test_prepared_steps_are_what_python_dispatches(page: Path, written: dict[str, Any]) -> None:
    for ladder, row, dtype, size, kind in prepared_rows(written):
        problem = ladder.case(size, dtype_of(dtype)).problem
        assert (row["m"], row["n"], row["k"]) == problem.sizes[:3]
        for stage in row["stages"]:
            kernel = STAGES[row["op"]][stage["name"]](**stage["config"])
            assert kernel in ladder.stages(kind, problem)
            shape = kernel.matrix_shape
            made_for = {"subgroup_size": kernel.subgroup, "matrix_shapes": frozenset({shape})} if shape else {}
            assert kernel.check(problem, dataclasses.replace(ANY_DEVICE, **made_for)) is None
            assert len(stage["steps"]) == len(kernel.dispatches)
            for part, step in zip(kernel.dispatches, stage["steps"], strict=True):
                shader = render(part, problem, "tint")
                assert (page / "bundle" / "shaders" / f"{step['shader']}.wgsl").read_text() == shader.wgsl
                assert tuple(step["grid"]) == part.dispatch(problem)
                assert np.array(step["params"], "<u4").tobytes() == params_bytes(part, problem)
                bound = {binding["name"] for binding in written["bindings"][step["shader"]]}
                inputs = {each["name"] for each in row["inputs"]}
                assert bound <= {"params", row["result"]["name"], *inputs, *stage["scratch"]}


def prepared_rows(written: dict[str, Any]) -> Iterator[tuple[ladders.Ladder, dict[str, Any], str, Any, str]]:
    for ladder, found in zip(ladders.LADDERS, written["ladders"], strict=True):
        for kind in ("gpu", "cpu"):
            asked = itertools.product(ladder.dtypes, ladder.sizes[kind])
            for (dtype, size), row in zip(asked, found[kind], strict=True):
                yield ladder, row, dtype.name, size, kind


def test_every_stage_and_device_kind_is_prepared(written: dict[str, Any]) -> None:
    for _, row, _, _, _ in prepared_rows(written):
        there = {stage["name"] for stage in row["stages"]}
        if row["op"] != "gemm":  # whose stages have a ladder of their own
            halves = {"matrix_unit"} if row["op"] == "weights" else set()  # of float16; the ladder is of float32
            assert set(STAGES[row["op"]]) - there <= {"columns", "columns_two_pass", *halves}
        labels = [(stage["label"], stage["subgroup"], str(stage["matrix"])) for stage in row["stages"]]
        assert len(labels) == len(set(labels))


@pytest.mark.parametrize("ladder", ladders.LADDERS, ids=lambda ladder: ladder.title)
def test_gpus_run_a_stage_with_the_settings_that_python_chooses(ladder: ladders.Ladder) -> None:
    settings = set()
    for size in ladder.sizes["gpu"]:
        problem = ladder.case(size, ladder.dtypes[0]).problem
        best, *_ = ladders.made_for_gpus(problem)
        stages = ladder.stages("gpu", problem)
        assert best in stages
        assert [stage.name for stage in stages] == [kernel.name for kernel in ladder.kernels["gpu"]]
        settings.add(tuple(stages))
        assert ladder.stages("cpu", problem) == list(ladder.kernels["cpu"])
    assert len(settings) > 1, "the shape makes no difference"


def test_prepared_inputs_are_a_known_hash() -> None:
    drawn = exact.Input("x", U8, 6, 1, 0, 255)
    assert drawn.start == drawn.to_json()["start"] == exact.SEED_STEP
    assert exact.mix(np.arange(3, dtype=np.uint32)).tolist() == [0, 1753845952, 3507691905]
    values = []
    for i in range(6):  # in plain integers
        x = (i + drawn.start) % 2**32
        x = (x ^ x >> 16) * 0x7FEB352D % 2**32
        x = (x ^ x >> 15) * 0x846CA68B % 2**32
        values.append((x ^ x >> 16) % 256)
    assert drawn.integers.tolist() == values


@pytest.mark.parametrize("ladder", ladders.LADDERS, ids=lambda ladder: ladder.title)
def test_prepared_results_are_numpys(ladder: ladders.Ladder) -> None:
    for dtype in ladder.dtypes:
        size = ladder.sizes["cpu"][0]
        case = ladder.case(size, dtype)
        if case.problem.op == "reduce":
            x = case.inputs[0].integers.reshape(size).astype(np.float64)
            expected = {"sum": x.sum(1), "max": x.max(1), "argmax": x.argmax(1)}[case.problem.operation]
        elif case.problem.op == "gemm":
            (m, n, k), (a, b) = size, (each.integers for each in case.inputs)
            expected = np.einsum("ik,kj->ij", a.reshape(m, k), b.reshape(k, n))
        elif case.problem.op == "weights":
            expected = product_with_weights(size, *(each.integers for each in case.inputs))
        else:
            a, b = (each.integers.reshape(size * 2).astype(np.int64) for each in case.inputs)
            scheme = scheme_of(1, size[0], dtype, dtype, dtype)
            sums = (a - int(scheme.zero_a)) @ (b - int(scheme.zero_b))
            real = sums / scheme.scale_c + scheme.zero_c
            expected = np.clip(np.floor(real + 0.5), *limits(dtype))
            assert np.ptp(expected) > 100, "the scale leaves nothing to compare"
        np.testing.assert_array_equal(case.expected, expected)
        assert ladder.fingerprint(size, dtype) == exact.fingerprint(case.expected)


def product_with_weights(size: tuple[int, int, int], *parts: Any) -> Any:
    """Return the product by the words of `WeightOnly`: columns of blocks of 32, the first of two in a byte lowest."""
    (m, n, k), (a, b, _, zeros) = size, parts
    whole = -(-k // 32) * 32
    q = np.stack([b % 16, b // 16], axis=-1).reshape(n, whole) - np.repeat(zeros.reshape(n, -1), 32, axis=1)
    return a.reshape(m, k) @ q[:, :k].T


def test_fingerprints_tell_values_and_places_apart() -> None:
    result = np.arange(100, dtype=np.float32)
    swapped, off = result.copy(), result.copy()
    swapped[[3, 4]] = swapped[[4, 3]]
    off[99] += 1
    assert len({exact.fingerprint(x) for x in (result, swapped, off, result[:99])}) == 4


def test_results_that_would_be_rounded_are_refused() -> None:
    case = exact.reduced("sum", (1, 2**20), F16)
    with pytest.raises(ConfigError, match="is no float16"):
        _ = replace(case, compute=lambda x: np.array([4097])).expected


def test_building_again_gives_the_same(page: Path, tmp_path: Path) -> None:
    bundle.build(tmp_path)
    for path in (bundle.MARKER, bundle.PREPARED):
        assert (tmp_path / path).read_bytes() == (page / path).read_bytes()
    bundle.build(tmp_path)  # over a bundle of one's own


def test_other_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds other files"):
        bundle.build(tmp_path)
    with pytest.raises(ConfigError, match="is a file"):
        bundle.build(tmp_path / "thesis.txt")


@pytest.mark.parametrize("largest", [1_000, 100_000])  # bytes of a file: some of the page's are larger, or its index is
def test_what_cannot_be_written_leaves_the_folder_as_it_was(tmp_path: Path, page: Path, largest: int) -> None:
    resource = pytest.importorskip("resource")
    empty, earlier = tmp_path / "empty", tmp_path / "earlier"
    empty.mkdir()
    shutil.copytree(page, earlier)
    (earlier / "mine.txt").write_text("mine")
    before = {path: path.is_file() and path.read_bytes() for path in earlier.rglob("*")}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, hard))
    try:
        for out in (tmp_path / "new", empty, earlier):
            with pytest.raises(ConfigError, match=r"^cannot write the page to .*: [^\n]*too large[^\n]*$"):
                bundle.build(out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "new").exists()
    assert list(empty.iterdir()) == []
    assert {path: path.is_file() and path.read_bytes() for path in earlier.rglob("*")} == before
