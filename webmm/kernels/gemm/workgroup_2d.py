"""Square workgroups."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import tunable
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.product import Grid


@dataclass(frozen=True)
class Workgroup2D(GemmKernel):
    """A (bm, bn) tile of C per workgroup, one element per invocation."""

    name = "workgroup_2d"
    follows = "workgroup_1d"
    summary = "workgroups of 16×16"

    bm: int = tunable(16, (4, 8, 16), "rows of C per workgroup")
    bn: int = tunable(16, (8, 16, 32), "columns of C per workgroup")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Invocations along x (columns), y (rows) and z."""
        return (self.bn, self.bm, 1)

    @property
    def grid(self) -> Grid:
        """One workgroup per tile."""
        return Grid(self.bm, self.bn)

    @property
    def register_tile(self) -> tuple[int, int]:
        """One element."""
        return 1, 1
