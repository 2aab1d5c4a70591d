"""The page runs what Python runs: the same template, tile and parameters, dialect aside."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webmm import bundle, choose, timing
from webmm.errors import ConfigError
from webmm.kernels import KERNELS
from webmm.kernels.gemm.base import GemmParams
from webmm.params import layout
from webmm.problem import gemm
from webmm.render import render

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
@pytest.mark.parametrize("dtype", [dtype.name for dtype in bundle.DTYPES])
def test_recommended_kernels_are_what_python_runs(
    page: Path, index: dict[str, Any], shape: tuple[int, int, int], dtype: str
) -> None:
    problem = gemm(*shape, dtype=dtype)
    for cls, stage in zip(bundle.stages(), index["kernels"], strict=True):
        assert stage["name"] == cls.name
        names = [tunable["name"] for tunable in stage["tunables"]]
        for kernel, row in zip(bundle.recommended(cls), stage["configs"], strict=False):
            assert dict(zip(names, row["config"], strict=True)) == kernel.config
            name = served(index, row, dtype, bundle.flags(kernel.specialise(problem)))
            text = (page / "bundle" / "shaders" / f"{name}.wgsl").read_text()
            assert text == render(kernel, problem, "tint").wgsl
            assert name == hashlib.sha256(text.encode()).hexdigest()[:10]
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
            needed = bundle.flags(cls(**dict(zip(names, row["config"], strict=True))).specialise(gemm(*shape)))
            assert any(
                not (has & ~needed & vectors) and not (needed & ~has & ~vectors)
                for has in map(int, row["shaders"]["float32"])
            ), (stage["name"], row["config"], shape)


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


def test_building_again_gives_the_same(page: Path, tmp_path: Path) -> None:
    bundle.build(tmp_path)
    assert (tmp_path / bundle.MARKER).read_bytes() == (page / bundle.MARKER).read_bytes()
    bundle.build(tmp_path)  # over a bundle of one's own


def test_other_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds other files"):
        bundle.build(tmp_path)
    with pytest.raises(ConfigError, match="is a file"):
        bundle.build(tmp_path / "thesis.txt")
