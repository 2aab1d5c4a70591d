"""The kernels chosen for CPUs."""

from __future__ import annotations

import pytest

from webmm.choose import weights
from webmm.choose.cpu import made_for_lanes
from webmm.dtypes import F32
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.gemm.cpu_texture import CpuTexture
from webmm.kernels.weights.cpu_lanes import CpuLanes as WeightLanes
from webmm.problems.gemm import gemm
from webmm.problems.product import Operand
from webmm.problems.weights import WeightOnly


@pytest.mark.parametrize(
    ("m", "n", "tm", "tn"),
    [
        (512, 512, 32, 8),
        (503, 513, 32, 8),
        (27, 76, 32, 8),
        (48, 1536, 16, 16),  # a second tile of 32 rows would be half empty
        (200, 200, 32, 8),  # so is the last of seven, which costs less
        (23_777, 14, 32, 4),
        (5, 1536, 8, 16),
        (1, 1024, 1, 16),
    ],
)
def test_tiles_with_four_lanes(m, n, tm, tn):
    assert made_for_lanes(gemm(m, n, 99), 4) == [CpuLanes(4, tm, tn)]


@pytest.mark.parametrize(
    ("m", "n", "k", "kernel"),
    [
        (512, 512, 512, CpuTexture(8, 16, 16)),
        (64, 896, 896, CpuLanes(8, 32, 8)),  # copying B to a texture would take longer than it saves
        (64, 64, 64, CpuLanes(8, 32, 4)),  # too little work for a tile that takes long to compile
        (251, 251, 251, CpuTexture(8, 16, 8)),
        (100, 30, 99, CpuLanes(8, 32, 4)),
        (5, 1536, 99, CpuLanes(8, 8, 8)),
    ],
)
def test_tiles_with_eight_lanes(m, n, k, kernel):
    first, *others = made_for_lanes(gemm(m, n, k), 8)
    assert first == kernel
    assert all(type(other) is CpuLanes for other in others), "needs a kernel without a texture"
    assert bool(others) == isinstance(first, CpuTexture)


def test_tiles_with_sixteen_lanes_have_the_same_columns():
    assert made_for_lanes(gemm(512, 512, 512), 16)[0] == CpuTexture(16, 16, 8)


def test_none_without_subgroups():
    assert made_for_lanes(gemm(512, 512, 512), 0) == []


@pytest.mark.parametrize(
    ("m", "n", "lanes", "kernel"),
    [
        (128, 1024, 4, WeightLanes(4, 16, 8)),
        (128, 1024, 8, WeightLanes(8, 16, 8)),
        (5, 1024, 16, WeightLanes(8, 8, 8)),
        (1, 16, 4, WeightLanes(4, 1, 4)),
    ],
)
def test_tiles_of_quantised_weights(m, n, lanes, kernel):
    problem = WeightOnly(m, n, 64, F32, F32, Operand(64), 4, 32)
    assert weights.made_for_cpus(problem, lanes) == [kernel]
    assert weights.made_for_cpus(problem, 0) == []
