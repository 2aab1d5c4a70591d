"""Many short rows per workgroup, loaded through workgroup memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from webmm.kernels.base import ceil_div, tunable
from webmm.kernels.reduce.base import PARTIAL_BYTES, ReduceKernel
from webmm.problems.reduce import Reduction


@dataclass(frozen=True)
class RowTiles(ReduceKernel):
    """A workgroup loads a contiguous tile of whole rows; then `per_row` invocations share a row."""

    name = "row_tiles"
    follows = "columns_two_pass"
    summary = "a tile of short rows in workgroup memory"

    lanes: int = tunable(128, (64, 128, 256), "invocations per workgroup")
    per_row: int = tunable(4, (1, 2, 4, 8, 16, 32), "invocations that share a row")
    unroll: int = tunable(2, (1, 2, 3, 4), "vec4 of a row per invocation")
    combine: str = tunable("tree", ("tree", "subgroup"), "how the invocations of a row combine their partial results")

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
        """Largest number of elements of a row."""
        return 4 * self.unroll * self.per_row

    @property
    def pad(self) -> int:
        """Elements of padding after every 32, so that invocations of neighbouring rows access different banks."""
        return self.per_row if self.per_row <= 8 else 0

    @property
    def tile(self) -> int:
        """Elements of a tile with its padding."""
        return self.lanes // 32 * 4 * self.unroll * (32 + self.pad)

    @property
    def shared_parts(self) -> int:
        """Partial results in workgroup memory."""
        return self.lanes if self.combine == "tree" and self.per_row > 1 else 0

    @property
    def workgroup_bytes(self) -> int:
        """Workgroup memory of the tile and these partial results, in bytes."""
        return 4 * self.tile + PARTIAL_BYTES * self.shared_parts

    @property
    def subgroup(self) -> int:
        """Lanes that a subgroup must have: the invocations of a row, if they combine in registers."""
        return self.per_row if self.combine == "subgroup" and self.per_row > 1 else 0

    @property
    def count_rule(self) -> str:
        """The rule of `workgroups` in words."""
        return f"ceil(outer*inner / {self.rows})"

    def workgroups(self, problem: Reduction) -> int:
        """Rows divided by rows per tile."""
        return ceil_div(problem.results, self.rows)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Yield that rows must divide the workgroup, in powers of two."""
        yield (
            self.per_row & (self.per_row - 1) == 0,
            f"per_row = {self.per_row} must be a power of two: a tree halves them",
        )
        yield self.lanes % self.per_row == 0, f"lanes = {self.lanes} must be a multiple of per_row = {self.per_row}"

    def unsuited(self, problem: Reduction) -> str | None:
        """Rows must be short and contiguous."""
        p = problem
        if p.length > self.step:
            return f"takes rows of at most {self.step} elements, not of {p.length}"
        dense = p.inner == 1 and (p.x.stride == 1 or p.length == 1) and (p.x.outer_stride == p.length or p.outer == 1)
        return None if dense else "takes contiguous rows without gaps"
