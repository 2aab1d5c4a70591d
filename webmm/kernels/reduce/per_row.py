"""An invocation per row."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import ceil_div, tunable
from webmm.kernels.reduce.base import ReduceKernel
from webmm.problems.reduce import Reduction


@dataclass(frozen=True)
class PerRow(ReduceKernel):
    """`size` rows per workgroup, one per invocation."""

    name = "per_row"
    follows = "serial"
    summary = "an invocation per row"

    size: int = tunable(64, (8, 32, 64, 128, 256), "invocations per workgroup, with a row each")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Rows along x."""
        return (self.size, 1, 1)

    @property
    def share(self) -> int:
        """The elements of a step."""
        return self.step

    @property
    def abreast(self) -> int:
        """One, if rows lie apart."""
        return 1

    def line(self, problem: Reduction) -> int:
        """Return the contiguous elements of a step of an invocation, or of all along j."""
        return self.step if problem.inner == 1 else min(self.size, problem.inner)

    def stored(self, problem: Reduction) -> float:
        """Return its result."""
        del problem
        return 1

    @property
    def count_rule(self) -> str:
        """The rule of `workgroups` in words."""
        return f"ceil(outer*inner / {self.size})"

    def workgroups(self, problem: Reduction) -> int:
        """Rows divided by `size`."""
        return ceil_div(problem.results, self.size)
