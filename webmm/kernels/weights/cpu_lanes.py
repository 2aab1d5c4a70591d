"""For CPU adapters: weights are unpacked into registers, and lanes broadcast A to each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

from webmm.kernels.lane_tiles import LaneTiles
from webmm.kernels.weights.base import WeightKernel, WeightSpecialisation
from webmm.problems.weights import WeightOnly


@dataclass(frozen=True)
class CpuLanes(LaneTiles[WeightOnly], WeightKernel):
    """As gemm's `cpu_lanes`; each lane unpacks the weights of its columns."""

    name = "cpu_lanes"
    follows = "tiles"
    summary = "for CPU adapters: weights unpacked in registers, A broadcast within a subgroup"

    def iterations(self, problem: WeightOnly) -> int:
        """Return how many iterations the loops run: over blocks, and over the words of each."""
        return problem.blocks * (2 + problem.block * problem.bits // 32)

    def specialise(self, problem: WeightOnly) -> WeightSpecialisation:
        """Return the template choices for `problem`; an iteration multiplies a whole word of weights."""
        return replace(super().specialise(problem), edge_k=problem.k * problem.bits % 32 != 0)
