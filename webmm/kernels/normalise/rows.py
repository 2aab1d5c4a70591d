"""A workgroup for each row, or several for each of a few long ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from webmm.kernels.base import Binding, Kernel, Params, Scratch, Texture, tunable
from webmm.kernels.normalise.base import RowsParams, RowsSpecialisation, bindings_of, doubles, parts_of, specialised
from webmm.kernels.reduce.base import PARTIALS, WAYS, MeetingKernel, Specialisation
from webmm.kernels.reduce.two_pass import SPLITS
from webmm.problems.normalise import Normalisation
from webmm.problems.reduce import Reduction


@dataclass(frozen=True)
class Rows(MeetingKernel):
    """A workgroup per row: it reduces the row, and goes over it again; what one step covers it keeps in registers.

    Where `splits` workgroups share a row, a first dispatch reduces their parts.
    """

    name = "rows"
    follows = ""
    summary = "a workgroup per row"
    op = "normalise"
    params: ClassVar[type[Params]] = RowsParams
    integer = False
    vectorizes = "k"

    lanes: int = tunable(256, (1, 4, 8, 32, 64, 128, 256, 512, 1024), "invocations per workgroup, which share a row")
    unroll: int = tunable(4, (1, 2, 4, 8, 16), "vec4 that an invocation loads before it adds them up")
    combine: str = tunable("tree", WAYS, "how the invocations of a workgroup bring their parts together")
    splits: int = tunable(1, (1, *SPLITS), "workgroups per row")

    @property
    def step(self) -> int:
        """Elements of an iteration."""
        return 4 * self.unroll * self.lanes

    @property
    def before(self) -> tuple[Kernel[Reduction], ...]:
        """The parts of the rows, if there are several."""
        return (RowParts(self.lanes, self.unroll, self.combine, self.splits),) if self.splits > 1 else ()

    def unsuited(self, problem: Reduction) -> str | None:
        """Parts of rows are float32."""
        return doubles(problem) if self.splits > 1 else None

    def scratch(self, problem: Reduction) -> tuple[Texture | Scratch, ...]:
        """A part for each workgroup."""
        return parts_of(problem, self.splits)

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield x, y, the vectors that there are, and the parts."""
        return bindings_of(spec, self.splits)

    def specialise(self, problem: Normalisation) -> RowsSpecialisation:  # type: ignore[override]
        """Return the template choices that fit `problem`; y can only be written by vec4 where its rows are dense."""
        held = self.splits == 1 and self.steps(problem) == 1
        return specialised(super().specialise(problem), problem, problem.inner == 1, held)


@dataclass(frozen=True)
class RowParts(Rows):
    """The first pass where several workgroups share a row: what each finds in its part."""

    name = "row_parts"
    summary = "parts of rows"

    @property
    def before(self) -> tuple[Kernel[Reduction], ...]:
        """Nothing."""
        return ()

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield x and the parts."""
        yield Binding(1, "x", "read-only-storage", spec.dtype.array(spec.vec))
        yield Binding(2, PARTIALS, "storage", "array<vec2u>")
