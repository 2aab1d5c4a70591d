"""The kernels chosen for CPUs whose subgroups have four lanes."""

from __future__ import annotations

import pytest

from webmm.choose.gemm import made_for_cpus
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.problems.gemm import gemm


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
    assert made_for_cpus(gemm(m, n, 99), 4) == [CpuLanes(4, tm, tn)]


def test_none_without_subgroups():
    assert made_for_cpus(gemm(512, 512, 512), 0) == []
