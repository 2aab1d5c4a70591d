"""A workgroup per row, or several workgroups per row if there are few long rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from webmm.kernels.base import Binding, Kernel, Params, Scratch, Texture, tunable
from webmm.kernels.normalise.base import (
    RowsParams,
    RowsSpecialisation,
    Scaling,
    arithmetic,
    bindings_of,
    doubles,
    normalising,
    parts_of,
    parts_rule,
)
from webmm.kernels.reduce.base import WAYS, CombiningKernel, Specialisation
from webmm.kernels.reduce.two_pass import SPLITS
from webmm.kernels.reduce.work import PARTIALS
from webmm.kernels.sizes import Assumption, Condition, multiples
from webmm.problems.normalise import Normalisation
from webmm.problems.reduce import Reduction


@dataclass(frozen=True)
class Rows(Scaling, CombiningKernel):
    """A workgroup per row reduces the row and then scales it; a row that one step covers stays in registers.

    If `splits` workgroups share a row, a first dispatch reduces their parts.
    """

    name = "rows"
    follows = ""
    summary = "a workgroup per row"
    op = "normalise"
    params: ClassVar[type[Params]] = RowsParams
    vectorizes = "k"

    lanes: int = tunable(
        256, (1, 4, 8, 32, 64, 128, 256, 512, 1024), "invocations per workgroup, which share a row", most=1024
    )
    unroll: int = tunable(4, (1, 2, 3, 4, 5, 6, 7, 8, 12, 16), "vec4 that an invocation loads before it reduces them")
    combine: str = tunable("tree", WAYS, "how the invocations of a workgroup combine their partial results")
    splits: int = tunable(1, (1, *SPLITS), "workgroups per row")

    @property
    def step(self) -> int:
        """Elements per iteration."""
        return 4 * self.unroll * self.lanes

    @property
    def block(self) -> int:
        """Elements of a row per vec4 of its invocations."""
        return 4 * self.lanes

    @property
    def before(self) -> tuple[Kernel[Reduction], ...]:
        """The first dispatch, if rows are split."""
        return (RowParts(self.lanes, self.unroll, self.combine, self.splits),) if self.splits > 1 else ()

    def unsuited(self, problem: Reduction) -> str | None:
        """Partial results of split rows are float32."""
        return doubles(problem) if self.splits > 1 else None

    def scratch(self, problem: Reduction) -> tuple[Texture | Scratch, ...]:
        """A partial result for each workgroup."""
        return parts_of(problem, self.splits)

    def scratch_rule(self, problem: Reduction) -> dict[str, Any]:
        """The rule of their bytes."""
        return parts_rule(self.splits)

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield x, y, weight and bias if the problem has them, and the partial results."""
        return bindings_of(spec, self.splits)

    def choices(self, problem: Normalisation) -> RowsSpecialisation:  # type: ignore[override]
        """Return the template choices for problems like `problem` that assume nothing of sizes."""
        return normalising(super().choices(problem), problem)

    def vector_needs(self) -> Iterator[Condition]:
        """Yield that y, which is dense, can be written as vec4, too: its rows are contiguous."""
        yield Condition("inner", equals=1)
        yield from multiples(4, "y_offset")

    def assumptions(self, choices: Specialisation) -> Iterator[Assumption]:
        """Yield those of a reduction, and rows that a step covers."""
        covered = Condition("length", at_most=self.step)
        for each in super().assumptions(choices):
            if each.choice != "full":
                yield each
            elif self.splits == 1:
                yield Assumption("full", True, (*each.conditions, covered))
        if self.splits == 1:
            yield Assumption("held", True, (covered,))


@dataclass(frozen=True)
class RowParts(Rows):
    """The first pass over split rows: a partial result for each workgroup."""

    name = "row_parts"
    summary = "parts of rows"
    writes = PARTIALS

    @property
    def before(self) -> tuple[Kernel[Reduction], ...]:
        """No dispatches."""
        return ()

    def loads(self, problem: Reduction) -> int:
        """Return how many times an element is loaded."""
        del problem
        return 1

    def arithmetic(self, problem: Reduction) -> float:
        """Return the instructions per element."""
        return arithmetic(problem)[0]

    def stored(self, problem: Reduction) -> float:
        """Return the partial results per invocation."""
        del problem
        return 1 / self.invocations

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield x and the partial results."""
        yield Binding(1, "x", "read-only-storage", spec.dtype.array(spec.vec))
        yield Binding(2, PARTIALS, "storage", "array<vec2u>")
