"""For an axis other than the last: consecutive invocations read along the kept axis, which is contiguous."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from webmm.kernels.base import ceil_div, tunable
from webmm.kernels.reduce.base import ReduceKernel
from webmm.kernels.reduce.work import PARTIAL_BYTES, Combination
from webmm.problems.reduce import Reduction

WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 32, 64)


@dataclass(frozen=True)
class Columns(ReduceKernel):
    """Four consecutive j per invocation; `wx` × `wy` invocations share a strip of 4·wx columns."""

    name = "columns"
    follows = "tree"
    summary = "invocations along the kept axis"
    vectorizes = "j"

    wx: int = tunable(16, WIDTHS, "invocations of a workgroup along j, with four columns each", most=64)
    wy: int = tunable(16, (1, 2, 4, 8, 16, 32, 64, 128, 256), "invocations of a workgroup along k")
    unroll: int = tunable(2, (1, 2, 3, 4, 5, 6, 7, 8, 12, 16), "vec4 that an invocation loads before it reduces them")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Invocations along j and k."""
        return (self.wx, self.wy, 1)

    @property
    def workgroup_bytes(self) -> int:
        """Four partial results per invocation, none if wy is 1."""
        return 4 * PARTIAL_BYTES * self.wx * self.wy if self.wy > 1 else 0

    @property
    def step(self) -> int:
        """Elements along k per iteration."""
        return self.unroll * self.wy

    @property
    def columns(self) -> int:
        """Columns of a workgroup."""
        return 4 * self.wx

    def line(self, problem: Reduction) -> int:
        """Return the elements of a row of the strip."""
        return min(self.columns, problem.inner)

    @property
    def abreast(self) -> int:
        """Invocations along j."""
        return self.wx

    @property
    def combination(self) -> Combination:
        """How the invocations along k combine partial results of four columns each."""
        return Combination.of("tree", self.wy, 4)

    @property
    def count_rule(self) -> str:
        """The rule of `workgroups` in words."""
        return f"outer * ceil(inner / {self.columns})"

    def workgroups(self, problem: Reduction) -> int:
        """Strips of each i."""
        return problem.outer * ceil_div(problem.inner, self.columns)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Yield that the tree needs a power of two."""
        yield self.wy & (self.wy - 1) == 0, f"wy = {self.wy} must be a power of two: a tree halves them"
