"""A workgroup for each row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from webmm.kernels.base import Binding, Params, tunable
from webmm.kernels.normalise.base import RowsParams, RowsSpecialisation, bindings_of, specialised
from webmm.kernels.reduce.base import WAYS, MeetingKernel, Specialisation
from webmm.problems.normalise import Normalisation


@dataclass(frozen=True)
class Rows(MeetingKernel):
    """A workgroup per row: it reduces the row, and goes over it again; what one step covers it keeps in registers."""

    name = "rows"
    follows = ""
    summary = "a workgroup per row"
    op = "normalise"
    params: ClassVar[type[Params]] = RowsParams
    vectorizes = "k"

    lanes: int = tunable(256, (1, 4, 8, 32, 64, 128, 256, 512, 1024), "invocations per workgroup, which share a row")
    unroll: int = tunable(4, (1, 2, 4, 8, 16), "vec4 that an invocation loads before it adds them up")
    combine: str = tunable("tree", WAYS, "how the invocations of a workgroup bring their parts together")

    @property
    def step(self) -> int:
        """Elements of an iteration."""
        return 4 * self.unroll * self.lanes

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield x, y, and the vectors that there are."""
        return bindings_of(spec)

    def specialise(self, problem: Normalisation) -> RowsSpecialisation:  # type: ignore[override]
        """Return the template choices that fit `problem`; y can only be written by vec4 where its rows are dense."""
        return specialised(super().specialise(problem), problem, problem.inner == 1, self.steps(problem) == 1)
