"""For CPU adapters: lanes broadcast A to each other."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.lane_tiles import LaneTiles
from webmm.problems.gemm import Gemm


@dataclass(frozen=True)
class CpuLanes(LaneTiles[Gemm], GemmKernel):
    """A (tm, lanes·tn) tile of C per workgroup, which is one subgroup, whose lanes broadcast A to each other."""

    name = "cpu_lanes"
    follows = "tile_2d"
    summary = "for CPU adapters: A broadcast within a subgroup"
    a_vector_axis = "k"
    b_vector_axis = "n"
