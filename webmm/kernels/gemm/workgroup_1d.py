"""Full workgroups, in a line along the rows of C."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import tunable
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.product import Grid


@dataclass(frozen=True)
class Workgroup1D(GemmKernel):
    """`size` consecutive elements of the flattened C per workgroup."""

    name = "workgroup_1d"
    follows = "naive"
    summary = "workgroups of 256 in a line"

    size: int = tunable(256, (64, 128, 256), "invocations, and elements of C, per workgroup")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Invocations along x, y and z."""
        return (self.size, 1, 1)

    @property
    def grid(self) -> Grid:
        """One workgroup per `size` elements."""
        return Grid(elements=self.size)

    @property
    def register_tile(self) -> tuple[int, int]:
        """One element."""
        return 1, 1
