"""A workgroup for each strip of columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from webmm.kernels.base import Binding, Params
from webmm.kernels.normalise.base import RowsParams, RowsSpecialisation, bindings_of, specialised
from webmm.kernels.reduce.base import Specialisation
from webmm.kernels.reduce.columns import Columns
from webmm.problems.normalise import Normalisation
from webmm.problems.reduce import Reduction


@dataclass(frozen=True)
class Strips(Columns):
    """A workgroup per strip of columns, for an axis that is not the last."""

    name = "strips"
    follows = "rows"
    summary = "lanes along the kept axis"
    op = "normalise"
    params: ClassVar[type[Params]] = RowsParams

    def unsuited(self, problem: Reduction) -> str | None:
        """Softmax is all that runs over other axes than the last."""
        made = isinstance(problem, Normalisation) and problem.function == "softmax"
        return None if made else "is made for softmax"

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield x and y."""
        return bindings_of(spec)

    def specialise(self, problem: Normalisation) -> RowsSpecialisation:  # type: ignore[override]
        """Return the template choices that fit `problem`."""
        return specialised(super().specialise(problem), problem, True, False)
