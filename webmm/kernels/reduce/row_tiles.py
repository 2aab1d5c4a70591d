"""Many short rows per workgroup."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from webmm.kernels.base import ceil_div, tunable
from webmm.kernels.reduce.base import ReduceKernel
from webmm.kernels.reduce.work import PARTIAL_BYTES, Combination
from webmm.kernels.sizes import Condition
from webmm.problems.reduce import Reduction


@dataclass(frozen=True)
class RowTiles(ReduceKernel):
    """`per_row` neighbouring invocations share a row and combine their partial results without a barrier."""

    name = "row_tiles"
    follows = "subgroup"
    summary = "many short rows per workgroup"

    lanes: int = tunable(128, (32, 64, 128, 256), "invocations per workgroup")
    per_row: int = tunable(4, (1, 2, 4, 8, 16, 32), "invocations that share a row")
    unroll: int = tunable(2, (1, 2, 3, 4, 5, 6, 8), "vec4 of a row per invocation", most=8)
    combine: str = tunable("tree", ("tree", "subgroup"), "how the invocations of a row combine their partial results")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """`lanes` along x."""
        return (self.lanes, 1, 1)

    @property
    def rows(self) -> int:
        """Rows of a workgroup."""
        return self.lanes // self.per_row

    @property
    def step(self) -> int:
        """Largest number of elements of a row."""
        return 4 * self.unroll * self.per_row

    @property
    def block(self) -> int:
        """Elements of a row per vec4 of its invocations."""
        return 4 * self.per_row

    @property
    def share(self) -> int:
        """Elements of an invocation."""
        return 4 * self.unroll

    @property
    def abreast(self) -> int:
        """The invocations of a row."""
        return self.per_row

    def line(self, problem: Reduction) -> int:
        """Return the elements of all rows."""
        return self.rows * problem.length

    @property
    def combination(self) -> Combination:
        """How the invocations of a row combine their partial results."""
        return Combination.of(self.combine, self.per_row)

    def stored(self, problem: Reduction) -> float:
        """Return the results per invocation."""
        del problem
        return 1 / self.per_row

    @property
    def shared_parts(self) -> int:
        """Partial results in workgroup memory."""
        return self.lanes if self.combine == "tree" and self.per_row > 1 else 0

    @property
    def workgroup_bytes(self) -> int:
        """Workgroup memory of these partial results, in bytes."""
        return PARTIAL_BYTES * self.shared_parts

    @property
    def subgroup(self) -> int:
        """Lanes that a subgroup must have: the invocations of a row, if they combine in registers."""
        return self.per_row if self.combine == "subgroup" and self.per_row > 1 else 0

    @property
    def count_rule(self) -> str:
        """The rule of `workgroups` in words."""
        return f"ceil(outer*inner / {self.rows})"

    def workgroups(self, problem: Reduction) -> int:
        """Rows divided by rows per workgroup."""
        return ceil_div(problem.results, self.rows)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Yield that rows must divide the workgroup, in powers of two."""
        yield (
            self.per_row & (self.per_row - 1) == 0,
            f"per_row = {self.per_row} must be a power of two: a tree halves them",
        )
        yield self.lanes % self.per_row == 0, f"lanes = {self.lanes} must be a multiple of per_row = {self.per_row}"

    def needs(self) -> Iterator[Condition]:
        """Yield that rows must be short, and the last axis."""
        yield Condition("length", at_most=self.step)
        yield Condition("inner", equals=1)

    def unsuited(self, problem: Reduction) -> str | None:
        """Rows must be short, and the last axis."""
        p = problem
        if p.length > self.step:
            return f"takes rows of at most {self.step} elements, not of {p.length}"
        return None if p.inner == 1 else "reduces the last axis only"
