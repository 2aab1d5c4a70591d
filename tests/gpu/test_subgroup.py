"""The stage that distributes fragments by subgroup shuffles: any arrangement of lanes, both dialects, refusals."""

import dataclasses

import pytest
from products import check_exactly, runs

from webmm.kernels.gemm.subgroup import Subgroup
from webmm.problems.gemm import gemm
from webmm.wgsl import naga
from webmm.wgsl.render import render

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


@pytest.mark.parametrize("lanes", [4, 8])
@pytest.mark.parametrize("ly", [1, 2, 4, 8])
def test_every_arrangement_of_lanes(device, lanes, ly):
    # More rows of A than lanes, equally many, and fewer; likewise vec4 of B.
    for tm, tn in ((4, 4), (8, 8), (4, 16)):
        kernel = Subgroup(lanes=lanes, ly=ly, tm=tm, tn=tn, group=1)
        problem = gemm(kernel.grid.tile_m + 3, kernel.grid.tile_n + 5, 10)
        if kernel.invalid() is None and runs(device, kernel, problem):
            check_exactly(device, kernel, problem)


@pytest.mark.parametrize("size", SIZES)
def test_the_stage_adapts_to_the_subgroup_size(device, size):
    it = dataclasses.replace(device.capabilities, name="it", subgroup_size=size)
    kernel = Subgroup.on(it)
    assert kernel.lanes == size
    assert kernel.check(gemm(100, 100, 100), it) is None
    fewer = dataclasses.replace(it, subgroup_size=size // 2)
    assert kernel.check(gemm(1, 1, 1), fewer) == f"needs subgroups of {size} lanes, it has {size // 2 or 'none'}"


@pytest.mark.parametrize("size", SIZES)
def test_the_shader_is_valid_for_every_subgroup_size(size, device):
    kernel = Subgroup.on(dataclasses.replace(device.capabilities, subgroup_size=size))
    for problem in (gemm(512, 512, 512), gemm(33, 35, 37, dtype="f16", transpose_a=True)):
        naga.translate(render(kernel, problem).wgsl, str(kernel))
        assert "workgroupBarrier" not in render(kernel, problem).wgsl


def test_each_dialect_enables_subgroups():
    tint, wgpu = (render(Subgroup(), gemm(8, 8, 8), dialect) for dialect in ("tint", "naga"))
    assert "enable subgroups;" in tint.wgsl
    assert "enable subgroups;" not in wgpu.wgsl
    assert (tint.features, wgpu.features) == ({"subgroups"}, {"subgroup"})
