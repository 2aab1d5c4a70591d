"""Many short rows per workgroup, which go through workgroup memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from webmm.kernels.base import Binding, Params
from webmm.kernels.normalise.base import RowsParams, RowsSpecialisation, bindings_of, doubles, specialised
from webmm.kernels.reduce.base import Specialisation
from webmm.kernels.reduce.row_tiles import RowTiles as ReducedRowTiles
from webmm.problems.normalise import Normalisation
from webmm.problems.reduce import Reduction


@dataclass(frozen=True)
class RowTiles(ReducedRowTiles):
    """As the stage of reductions; results go back through the tile, so that they, too, are written as they lie."""

    name = "row_tiles"
    follows = "rows"
    op = "normalise"
    params: ClassVar[type[Params]] = RowsParams
    integer = False

    def unsuited(self, problem: Reduction) -> str | None:
        """Rows must fit, and be of shorter types."""
        return super().unsuited(problem) or doubles(problem)

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield x, y, and the vectors that there are."""
        return bindings_of(spec)

    def specialise(self, problem: Normalisation) -> RowsSpecialisation:  # type: ignore[override]
        """Return the template choices that fit `problem`; a row stays in registers."""
        return specialised(super().specialise(problem), problem, False, True)
