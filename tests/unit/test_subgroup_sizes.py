"""Sizes of subgroups: which kernels ask for theirs, which compare it, and what a shader that is taken home says."""

import dataclasses

import pytest

from webmm.errors import ConfigError, ShaderError
from webmm.kernels.base import Capabilities
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.kernels.gemm.subgroup import Subgroup
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.kernels.reduce.row_tiles import RowTiles
from webmm.kernels.reduce.tree import Alone
from webmm.kernels.reduce.tree import Subgroup as InSubgroups
from webmm.kernels.subgroups import SIZE_CONTROL, assured, pinned
from webmm.problems.gemm import gemm
from webmm.problems.reduce import reduction
from webmm.wgsl import export, naga, tint
from webmm.wgsl.render import render
from webmm.wgsl.subgroups import sized

FIXED = Capabilities("fixed", {}, frozenset(), subgroup_size=32)
FREE = dataclasses.replace(FIXED, name="free", other_sizes=(16, 64, 8, 4))
ASKED = dataclasses.replace(FREE, name="asked", features=frozenset({SIZE_CONTROL}))
ROWS = RowTiles(lanes=128, per_row=16, combine="subgroup")


@pytest.mark.parametrize(
    ("kernel", "on_fixed", "on_free", "on_asked", "asks"),
    [
        (MatrixUnit(lanes=32), True, False, True, True),
        (Subgroup(lanes=32, ly=4), True, False, True, True),
        (Subgroup(lanes=4), True, True, True, True),  # a workgroup of one subgroup, whose other lanes would be idle
        (Alone(16), True, False, True, True),
        (ROWS, True, False, True, True),
        (dataclasses.replace(ROWS, per_row=4), True, True, True, False),  # any size will do
        (InSubgroups(), True, True, True, False),
        (Tile2D(), True, True, True, False),
    ],
)
def test_what_is_certain_and_who_asks(kernel, on_fixed, on_free, on_asked, asks):
    assert [assured(kernel, each) for each in (FIXED, FREE, ASKED)] == [on_fixed, on_free, on_asked]
    assert [pinned(kernel, each) for each in (FIXED, FREE, ASKED)] == [False, False, asks]


def test_sizes_that_no_shader_has():
    few = dataclasses.replace(FREE, name="it", subgroup_size=16, other_sizes=(8, 32))
    assert Subgroup(lanes=64, ly=8).check(gemm(8, 8, 8), few) == "needs subgroups of 64 lanes, it has 8 or 16 or 32"
    assert not pinned(MatrixUnit(lanes=64), dataclasses.replace(few, features=ASKED.features))


@pytest.mark.parametrize("lanes", [4, 8, 16, 32, 64])
@pytest.mark.parametrize("asks", [True, False])
def test_a_rendering_for_each_size(lanes, asks):
    product, sums = gemm(512, 512, 512, dtype="f16"), reduction(64, 32)
    unit = MatrixUnit(lanes=lanes, bm=64, bn=64, sm=32, sn=32)
    row_tiles = RowTiles(lanes=128, per_row=min(lanes, 32), combine="subgroup")
    subgroup = Subgroup(lanes=lanes, ly=2)
    kernels = [(subgroup, product), (CpuLanes(min(lanes, 16)), product), (Alone(lanes), sums), (row_tiles, sums)]
    for kernel, problem in [*kernels, *([(unit, product)] if unit.invalid() is None else [])]:
        shader = render(kernel, problem, "tint", pinned=asks)
        tint.validate(shader.wgsl, str(kernel))
        assert (SIZE_CONTROL in shader.features) == asks
        assert (f"@subgroup_size({kernel.subgroup}) @workgroup_size(" in shader.wgsl) == asks
        sign = "!=" if kernel.exact else "<"
        compared = f"if (subgroup_size {sign} {kernel.subgroup}u) {{" in shader.wgsl
        assert compared == (not asks and (kernel.exact or kernel.subgroup > 4))
        naga.translate(render(kernel, problem).wgsl, str(kernel))


def test_nothing_is_exchanged_before_the_comparison():
    for kernel, problem in ((Subgroup(), gemm(64, 64, 64)), (MatrixUnit(), gemm(64, 64, 64, dtype="f16"))):
        for dialect in ("naga", "tint"):
            body = render(kernel, problem, dialect).wgsl.partition("fn main(")[2].partition(") {")[2]
            first = body.strip().splitlines()
            assert first[0].startswith(("if (subgroup_size", "lanes_found = subgroup_size;"))


@pytest.mark.parametrize(("kernel", "dialect"), [(Subgroup(), "naga"), (Tile2D(), "tint")])
def test_who_cannot_ask(kernel, dialect):
    with pytest.raises(ConfigError, match=r"cannot ask for its size of subgroups in naga|uses no subgroups"):
        render(kernel, gemm(8, 8, 8), dialect, pinned=True)


@pytest.mark.parametrize(
    ("kernel", "asks", "words"),
    [
        (Subgroup(lanes=32), True, "Subgroups: at least 32 lanes, asked for by @subgroup_size."),
        (MatrixUnit(), False, "Subgroups: exactly 32 lanes; not asked for, but compared with subgroup_size: if they "),
        (Subgroup(lanes=4), False, "Subgroups: at least 4 lanes, as all have in WebGPU."),
        (Tile2D(), False, ""),
    ],
)
def test_a_shader_says_what_it_needs(kernel, asks, words):
    problem = gemm(64, 64, 64, dtype="f16")
    text = export.stage(kernel, problem, "tint", pinned=asks)["wgsl"]
    assert f"// {words}" in text if words else "Subgroups:" not in text


@pytest.mark.parametrize("pinned", [True, False])
def test_an_entry_point_that_cannot_be_told_is_refused(pinned):
    kernel = Alone(32)
    text = render(kernel, reduction(3, 64), "tint").wgsl.replace("@workgroup_size(", "@workgroup_size (")
    with pytest.raises(ShaderError, match="must have one entry point"):
        sized(text, kernel, "tint", pinned)
