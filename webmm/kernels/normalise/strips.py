"""A workgroup per strip of columns, or several workgroups per strip if there are few long strips."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from webmm.kernels.base import Binding, Kernel, Params, Scratch, Texture, tunable
from webmm.kernels.normalise.base import (
    RowsParams,
    RowsSpecialisation,
    Scaling,
    bindings_of,
    doubles,
    normalising,
    parts_of,
    parts_rule,
)
from webmm.kernels.reduce.base import Specialisation
from webmm.kernels.reduce.columns import Columns
from webmm.kernels.reduce.two_pass import SPLITS, ColumnParts
from webmm.kernels.sizes import Assumption, Condition, multiples
from webmm.problems.normalise import Normalisation
from webmm.problems.reduce import Reduction


@dataclass(frozen=True)
class Strips(Scaling, Columns):
    """A workgroup per strip of columns, for an axis other than the last; strips of a single step stay in registers.

    If `splits` workgroups share a strip, a first dispatch reduces their parts.
    """

    name = "strips"
    follows = "rows"
    summary = "invocations along the kept axis"
    op = "normalise"
    params: ClassVar[type[Params]] = RowsParams

    splits: int = tunable(1, (1, *SPLITS), "workgroups per strip")

    @property
    def gathered(self) -> int:
        """Partial results of the first dispatch that an invocation loads before it combines them."""
        return next((n for n in (8, 4, 2) if self.splits % (n * self.wy) == 0), 1)

    @property
    def before(self) -> tuple[Kernel[Reduction], ...]:
        """The first dispatch, if columns are split."""
        return (ColumnParts(self.wx, self.wy, self.unroll, self.splits),) if self.splits > 1 else ()

    def scratch(self, problem: Reduction) -> tuple[Texture | Scratch, ...]:
        """A partial result for each split and column."""
        return parts_of(problem, self.splits)

    def scratch_rule(self, problem: Reduction) -> dict[str, Any]:
        """The rule of their bytes."""
        return parts_rule(self.splits)

    def unsuited(self, problem: Reduction) -> str | None:
        """Only softmax runs along axes other than the last."""
        made = isinstance(problem, Normalisation) and problem.function == "softmax"
        return doubles(problem) if made else "is made for softmax"

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield x, y, and the partial results."""
        return bindings_of(spec, self.splits)

    def choices(self, problem: Normalisation) -> RowsSpecialisation:  # type: ignore[override]
        """Return the template choices for problems like `problem` that assume nothing of sizes."""
        return normalising(super().choices(problem), problem)

    def vector_needs(self) -> Iterator[Condition]:
        """Yield that y, which is dense, can be written as vec4, too."""
        yield from multiples(4, "y_offset")

    def assumptions(self, choices: Specialisation) -> Iterator[Assumption]:
        """Yield those of a reduction, and strips that a step covers."""
        yield from super().assumptions(choices)
        if self.splits == 1:
            yield Assumption("held", True, (Condition("length", at_most=self.step),))
