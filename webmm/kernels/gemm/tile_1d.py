"""Several columns of C per invocation."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import tunable
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.product import Grid


@dataclass(frozen=True)
class Tile1D(GemmKernel):
    """A (1, 4) tile of C per invocation."""

    name = "tile_1d"
    follows = "workgroup_2d"
    summary = "1×4 elements per invocation"

    wy: int = tunable(16, (4, 8, 16), "invocations per workgroup along M, one row of C each")
    wx: int = tunable(16, (8, 16, 32), "invocations per workgroup along N, four columns of C each")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Invocations along x (columns), y (rows) and z."""
        return (self.wx, self.wy, 1)

    @property
    def grid(self) -> Grid:
        """One workgroup per (wy, 4·wx) tile."""
        return Grid(self.wy, 4 * self.wx)

    @property
    def register_tile(self) -> tuple[int, int]:
        """One row of four columns."""
        return 1, 4
