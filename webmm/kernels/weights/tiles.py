"""Many rows: weights are unpacked to floats when they are written to workgroup memory."""

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
    summary = "many rows: weights are unpacked into tiles in workgroup memory"
    a_vector_axis = "any"

    order: str = tunable("serpentine", ("serpentine", "rows"), "order of the FMAs of one inner element")

    @property
    def workgroup_bytes(self) -> int:
        """A (bk, bm) tile of A, with rows padded by a vec4, and a (bk, bn) tile of B, in f32."""
        return (self.bm + 4 + self.bn) * self.bk * 4

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require what all register tiles do, and that no tile extends beyond the last block."""
        yield from super().constraints()
        yield self.bk <= 32, f"bk = {self.bk} must be at most 32, the smallest block"
