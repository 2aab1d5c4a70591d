"""Many short rows per workgroup, the shortest loaded and stored through workgroup memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from webmm.kernels.base import Binding, Params, tunable
from webmm.kernels.normalise.base import (
    RowsParams,
    RowsSpecialisation,
    arithmetic,
    bindings_of,
    doubles,
    normalising,
)
from webmm.kernels.reduce.base import Specialisation
from webmm.kernels.reduce.row_tiles import RowTiles as ReducedRowTiles
from webmm.kernels.sizes import Condition
from webmm.kernels.traffic import Traffic
from webmm.problems.normalise import Normalisation
from webmm.problems.reduce import Reduction


@dataclass(frozen=True)
class RowTiles(ReducedRowTiles):
    """Like the reduction kernel. The shortest rows are loaded and stored as a contiguous tile of whole rows."""

    name = "row_tiles"
    follows = "rows"
    op = "normalise"
    params: ClassVar[type[Params]] = RowsParams

    load: str = tunable("direct", ("direct", "tile"), "direct, or through workgroup memory in memory order")

    @property
    def pad(self) -> int:
        """Elements of padding after every 32, so that invocations of neighbouring rows access different banks."""
        return self.per_row if self.per_row <= 8 else 0

    @property
    def tile(self) -> int:
        """Elements of a tile with its padding."""
        return self.lanes // 32 * 4 * self.unroll * (32 + self.pad)

    @property
    def workgroup_bytes(self) -> int:
        """Workgroup memory of the tile and the partial results, in bytes."""
        return super().workgroup_bytes + 4 * self.tile * (self.load == "tile")

    @property
    def abreast(self) -> int:
        """The invocations of a row, or all."""
        return self.per_row if self.load == "direct" else self.lanes

    def arithmetic(self, problem: Reduction) -> float:
        """Return the instructions per element."""
        return sum(arithmetic(problem))

    def stored(self, problem: Reduction) -> float:
        """Return the elements of an invocation."""
        del problem
        return self.share

    def traffic(self, problem: Reduction) -> Traffic:
        """Count the exchanges through a tile, too: elements are stored, read, and stored and read again as results."""
        counted = super().traffic(problem)
        if self.load == "direct":
            return counted
        each = self.share / counted.steps
        return counted._replace(workgroup_stores=2 * each, workgroup_loads=2 * each, barriers=counted.barriers + 3 / 2)

    def unsuited(self, problem: Reduction) -> str | None:
        """Rows must be short and not float64; those of a tile must be contiguous."""
        p = problem
        if reason := super().unsuited(p) or doubles(p):
            return reason
        dense = (p.x.stride == 1 or p.length == 1) and (p.x.outer_stride == p.length or p.outer == 1)
        return None if dense or self.load == "direct" else "takes contiguous rows without gaps"

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield x, y, and weight and bias if the problem has them."""
        return bindings_of(spec)

    def choices(self, problem: Normalisation) -> RowsSpecialisation:  # type: ignore[override]
        """Return the template choices for problems like `problem`; rows stay in registers."""
        return normalising(super().choices(problem), problem, held=True)

    def needs(self) -> Iterator[Condition]:
        """Yield that rows must be short and the last axis, and those of a tile contiguous."""
        yield from super().needs()
        if self.load == "tile":
            yield Condition("stride", equals=1, where="length")
            yield Condition("outer_stride", equals="length", where="outer")
