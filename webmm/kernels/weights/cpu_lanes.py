"""For CPU adapters: weights are unpacked into registers, and lanes broadcast A to each other."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.lane_tiles import INNER, LaneTiles
from webmm.kernels.weights.base import WeightKernel, WeightSpecialisation
from webmm.problems.weights import WeightOnly


@dataclass(frozen=True)
class CpuLanes(LaneTiles[WeightOnly], WeightKernel):
    """As gemm's `cpu_lanes`; each lane unpacks the weights of its columns."""

    name = "cpu_lanes"
    follows = "tiles"
    summary = "for CPU adapters: weights unpacked in registers, A broadcast within a subgroup"

    def of_b(self, problem: WeightOnly) -> tuple[float, float]:
        """Return how many words of B, and halves of their scales, an invocation loads in a step."""
        return 0, INNER * self.tn * problem.bits / 32 + self.tn / 2

    def iterations(self, problem: WeightOnly) -> int:
        """Return how many iterations the loops run: over blocks, and over the words of each."""
        return problem.blocks * (2 + problem.block * problem.bits // 32)

    def whole_k(self, choices: WeightSpecialisation) -> int:
        """Return the weights of a word, which an iteration multiplies."""
        return choices.per_word
