"""Many rows: weights become floats on their way into workgroup memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from webmm.kernels.base import tunable
from webmm.kernels.register_tiles import RegisterTiles
from webmm.kernels.weights.base import WeightKernel
from webmm.problems.weights import WeightOnly


@dataclass(frozen=True)
class Tiles(RegisterTiles[WeightOnly], WeightKernel):
    """As gemm's `pipelined`."""

    name = "tiles"
    follows = "vector"
    summary = "many rows: weights become floats on their way into workgroup memory"
    a_vector_axis = "any"

    order: str = tunable("serpentine", ("serpentine", "rows"), "in which order the FMAs of one inner element stand")

    @property
    def workgroup_bytes(self) -> int:
        """A (bk, bm) tile of A, whose rows are a vec4 longer where none fits A, and a (bk, bn) tile of B, in f32."""
        return (self.bm + 4 + self.bn) * self.bk * 4

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """As of all register tiles, and no tile beyond the last block."""
        yield from super().constraints()
        yield self.bk <= 32, f"bk = {self.bk} must be at most 32, the smallest block"
