"""Many short rows per workgroup, loaded and stored through workgroup memory."""

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
    """Like the reduction kernel; results are stored through the tile, so that writes are coalesced, too."""

    name = "row_tiles"
    follows = "rows"
    op = "normalise"
    params: ClassVar[type[Params]] = RowsParams
    integer = False

    def unsuited(self, problem: Reduction) -> str | None:
        """Rows must be short, contiguous and not float64."""
        return super().unsuited(problem) or doubles(problem)

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield x, y, and weight and bias if the problem has them."""
        return bindings_of(spec)

    def specialise(self, problem: Normalisation) -> RowsSpecialisation:  # type: ignore[override]
        """Return the template choices for `problem`; rows stay in registers."""
        return specialised(super().specialise(problem), problem, False, True)
