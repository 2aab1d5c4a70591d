"""Several rows and columns of C per invocation."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import tunable
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.product import Grid


@dataclass(frozen=True)
class Tile2D(GemmKernel):
    """A (tm, 4) tile of C per invocation."""

    name = "tile_2d"
    follows = "tile_1d"
    summary = "4×4 elements per invocation"

    wy: int = tunable(16, (4, 8, 16), "invocations per workgroup along M, TM rows of C each")
    wx: int = tunable(16, (8, 16, 32), "invocations per workgroup along N, four columns of C each")
    tm: int = tunable(4, (2, 4, 8), "rows of C per invocation")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Invocations along x (columns), y (rows) and z."""
        return (self.wx, self.wy, 1)

    @property
    def grid(self) -> Grid:
        """One workgroup per (tm·wy, 4·wx) tile."""
        return Grid(self.tm * self.wy, 4 * self.wx)

    @property
    def register_tile(self) -> tuple[int, int]:
        """TM rows of four columns."""
        return self.tm, 4
