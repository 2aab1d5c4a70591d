"""Tiles of A and B in workgroup memory."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import tunable
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.product import Grid
from webmm.kernels.traffic import Traffic
from webmm.problems.gemm import Gemm


@dataclass(frozen=True)
class Shared(GemmKernel):
    """A square tile of C per workgroup, one element per invocation, from tiles of A and B in workgroup memory."""

    name = "shared"
    follows = "workgroup_2d"
    summary = "square tiles in workgroup memory"

    tile: int = tunable(16, (8, 16, 32), "rows and columns of the tiles of A, B and C")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Invocations along x (columns), y (rows) and z."""
        return (self.tile, self.tile, 1)

    @property
    def workgroup_bytes(self) -> int:
        """One tile of A and one of B, in f32."""
        return 2 * self.tile * self.tile * 4

    @property
    def grid(self) -> Grid:
        """One workgroup per tile."""
        return Grid(self.tile, self.tile)

    @property
    def inner_step(self) -> int:
        """One tile."""
        return self.tile

    def traffic(self, problem: Gemm) -> Traffic:
        """Count a step: an element of A and one of B from storage, and a row and a column from workgroup memory."""
        loads = self._traffic(problem, fmas=self.tile, vector_loads=0, scalar_loads=2)
        return loads._replace(workgroup_loads=2 * self.tile, workgroup_stores=2, barriers=2)
