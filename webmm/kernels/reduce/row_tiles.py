"""Stage 11: many short rows per workgroup, which go through workgroup memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from webmm.kernels.base import ceil_div, tunable
from webmm.kernels.reduce.base import PARTIAL_BYTES, ReduceKernel
from webmm.problems.reduce import Reduction


@dataclass(frozen=True)
class RowTiles(ReduceKernel):
    """A workgroup fetches a tile of whole rows as they lie in memory; `per_row` invocations then share a row."""

    name = "row_tiles"
    follows = "columns_two_pass"
    summary = "a tile of short rows in workgroup memory"

    lanes: int = tunable(128, (64, 128, 256), "invocations per workgroup")
    per_row: int = tunable(4, (1, 2, 4, 8, 16, 32), "invocations that share a row")
    unroll: int = tunable(2, (1, 2, 3, 4), "vec4 of a row that an invocation takes")
    combine: str = tunable("tree", ("tree", "subgroup"), "how the invocations of a row bring their parts together")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """`lanes` along x."""
        return (self.lanes, 1, 1)

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return self.lanes // self.per_row

    @property
    def step(self) -> int:
        """Elements that a row may have."""
        return 4 * self.unroll * self.per_row

    @property
    def pad(self) -> int:
        """Elements of the gap after every 32: lanes of neighbouring rows find theirs in other banks."""
        return self.per_row if self.per_row <= 8 else 0

    @property
    def tile(self) -> int:
        """Elements of a tile, and of its gaps."""
        return self.lanes // 32 * 4 * self.unroll * (32 + self.pad)

    @property
    def shared_parts(self) -> int:
        """Parts in workgroup memory."""
        return self.lanes if self.combine == "tree" and self.per_row > 1 else 0

    @property
    def workgroup_bytes(self) -> int:
        """Bytes of a tile and of these parts."""
        return 4 * self.tile + PARTIAL_BYTES * self.shared_parts

    @property
    def subgroup(self) -> int:
        """Lanes that a subgroup must have: those that share a row, where they meet in registers."""
        return self.per_row if self.combine == "subgroup" and self.per_row > 1 else 0

    @property
    def count_rule(self) -> str:
        """Workgroups in words."""
        return f"ceil(outer*inner / {self.rows})"

    def workgroups(self, problem: Reduction) -> int:
        """Rows divided by those of a tile."""
        return ceil_div(problem.results, self.rows)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Halves of halves."""
        yield (
            self.per_row & (self.per_row - 1) == 0,
            f"per_row = {self.per_row} must be a power of two: lanes meet in pairs",
        )
        yield self.lanes % self.per_row == 0, f"lanes = {self.lanes} must be a multiple of per_row = {self.per_row}"

    def unsuited(self, problem: Reduction) -> str | None:
        """Rows must fit, and lie one after the other."""
        p = problem
        if p.length > self.step:
            return f"takes rows of at most {self.step} elements, not of {p.length}"
        dense = p.inner == 1 and (p.x.stride == 1 or p.length == 1) and (p.x.outer_stride == p.length or p.outer == 1)
        return None if dense else "takes rows that lie one after the other"
