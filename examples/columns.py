"""A gemm stage from outside the package: each invocation computes a few rows of one column of C.

    webmm bench --plugin examples/columns.py --kernels naive,columns,columns:tm=8

Its WGSL is the template columns.wgsl in the same folder.
"""

from dataclasses import dataclass

import webmm
from webmm.kernels.base import tunable
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.product import Grid


@webmm.register
@dataclass(frozen=True)
class Columns(GemmKernel):
    """TM rows of one column per invocation, so that each loaded element of B is used TM times."""

    name = "columns"
    follows = "naive"
    summary = "a few rows of one column per invocation"

    width: int = tunable(64, (32, 64, 128, 256), "columns of C per workgroup")
    tm: int = tunable(4, (1, 2, 4, 8), "rows of C per invocation")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Invocations along x, y and z."""
        return (self.width, 1, 1)

    @property
    def grid(self) -> Grid:
        """One workgroup per tile of C."""
        return Grid(self.tm, self.width)
