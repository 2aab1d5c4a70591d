"""A query per invocation, with a running maximum and sum: no scores in memory."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.attention.base import HeldRows, mask_bytes, o_bytes, q_bytes
from webmm.kernels.base import tunable
from webmm.problems.attention import Attention


@dataclass(frozen=True)
class Online(HeldRows):
    """Each invocation reads all keys one by one, and corrects its result whenever the largest score grows.

    Milakov and Gimelshein, Online normalizer calculation for softmax (2018).
    """

    name = "online"
    follows = "three_calls"
    summary = "a running maximum and sum instead of scores in memory"
    edges = "q"

    size: int = tunable(32, (8, 32, 64, 128), "queries of a workgroup, one per invocation")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of invocations."""
        return (self.size, 1, 1)

    @property
    def tile_q(self) -> int:
        """One per invocation."""
        return self.size

    def moved_for(self, problem: Attention) -> float:
        """Count keys for each query: each invocation reads its own."""
        p = problem
        keys = p.pairs * (p.width + p.value_width) * p.dtype.itemsize
        return q_bytes(p) + o_bytes(p) + mask_bytes(p) + keys
