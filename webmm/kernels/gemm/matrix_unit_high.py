"""Float32 products on the matrix units of a GPU, with each operand split into two of float16."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from webmm.dtypes import F16, F32, DType
from webmm.kernels.base import (
    Binding,
    Kernel,
    Scratch,
    Texture,
    ceil_div,
    fold,
    tunable,
)
from webmm.kernels.gemm.base import GemmKernel, Specialisation
from webmm.kernels.matrix_tiles import FloatTiles
from webmm.kernels.sizes import folded
from webmm.problems.gemm import Gemm

LINES, DOUBTS, SUMS = "lines", "doubts", "sums"  # buffers that the dispatches pass to each other
LINES_PER_WORKGROUP = 16


@dataclass(frozen=True)
class HighSpecialisation(Specialisation):
    """As of any stage; its types include float16, which is multiplied."""

    @property
    def types(self) -> tuple[DType, ...]:
        """The types that are stored, and the one that is multiplied."""
        return tuple(dict.fromkeys((*super().types, F16)))


def lines(problem: Gemm) -> Scratch:
    """Return the buffer of the scale and least magnitude of each row of A and column of B: (batch, m + n), vec2f."""
    return Scratch(LINES, 8 * (problem.m + problem.n) * problem.batch)


def doubts(problem: Gemm) -> Scratch:
    """Return the buffer of a bit per element of C, (batch, m, n), with rows padded to whole words."""
    return Scratch(DOUBTS, 4 * problem.batch * problem.m * ceil_div(problem.n, 32))


def numbered(known: Iterator[Binding], names: Mapping[str, tuple[str, str]]) -> Iterator[Binding]:
    """Yield the bindings `known`, then those of `names` (WebGPU type, WGSL type), numbered from 1."""
    every = [*known, *(Binding(0, name, *types) for name, types in names.items())]
    yield from (Binding(number, x.name, x.type, x.wgsl_type) for number, x in enumerate(every, 1))


@dataclass(frozen=True)
class LineScales(GemmKernel):
    """Compute the scale of each row of A and column of B, and the least magnitude of C for which it is accurate."""

    name = "line_scales"
    summary = "scales of rows of A and columns of B"
    single_k = False
    a_vector_axis = "any"
    b_vector_axis = "any"
    binds = ("a", "b")

    @property
    def lines(self) -> int:
        """Rows or columns per workgroup."""
        return LINES_PER_WORKGROUP

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of invocations: 32 for each line along k. Of lines across k, they read 64 bytes at each k."""
        return (32 * self.lines, 1, 1)

    @property
    def workgroup_bytes(self) -> int:
        """Three words per line, and a sum for each invocation that shares it."""
        return (12 + 4 * 128) * self.lines

    def dispatch(self, problem: Gemm) -> tuple[int, int, int]:
        """Return workgroup counts: workgroups for the rows of A, then for the columns of B."""
        return fold(ceil_div(problem.m, self.lines) + ceil_div(problem.n, self.lines), problem.batch)

    def grid_rule(self, spec: Specialisation) -> dict[str, Any]:
        """Return the rule of `dispatch`."""
        del spec
        return folded(f"ceil(m / {self.lines}) + ceil(n / {self.lines})", "batch")

    def iterations(self, problem: Gemm) -> int:
        """Return how many iterations its loops run: over k, the doubts, and the invocations' sums."""
        return ceil_div(problem.k, 32) + ceil_div(problem.n, 8 * self.invocations) + 1 + 128

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield A, B, lines and doubts."""
        found = {LINES: ("storage", "array<vec2f>"), DOUBTS: ("storage", "array<u32>")}
        yield from numbered(super().bindings(spec), found)


@dataclass(frozen=True)
class Mend(GemmKernel):
    """Compute the elements of C that are in doubt, in float32."""

    name = "mend"
    summary = "elements of C in doubt, computed in float32"
    single_k = False
    loads: ClassVar[int] = 4  # elements of A and of B in flight per invocation
    few: ClassVar[int] = 8  # bits of a word up to which its columns are computed one at a time

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of invocations: each reads a word of doubts, then all share the columns and k of one word."""
        return (256, 1, 1)

    @property
    def workgroup_bytes(self) -> int:
        """Two words for the number of words with doubts, these words, and a partial sum per invocation."""
        return 8 + 8 * self.invocations

    def dispatch(self, problem: Gemm) -> tuple[int, int, int]:
        """Return workgroup counts: an invocation per word of doubts."""
        return fold(ceil_div(problem.m * ceil_div(problem.n, 32), self.invocations), problem.batch)

    def grid_rule(self, spec: Specialisation) -> dict[str, Any]:
        """Return the rule of `dispatch`."""
        del spec
        return folded(f"ceil(m * ceil(n / 32) / {self.invocations})", "batch")

    def iterations(self, problem: Gemm) -> int:
        """Return how many iterations its loops run, at most: if all elements of each word are in doubt, or `few`."""
        lanes = self.invocations
        many, few = (
            n * (problem.k * columns // (self.loads * lanes) + self.loads + (lanes // columns).bit_length())
            for n, columns in ((1, 32), (self.few, 1))
        )
        return lanes * (1 + max(many, few))

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield the bindings of all stages, and the doubts."""
        yield from numbered(super().bindings(spec), {DOUBTS: ("read-only-storage", "array<u32>")})


@dataclass(frozen=True)
class MatrixUnitHigh(FloatTiles[Gemm], GemmKernel):
    """As `matrix_unit`; float32 operands are split into two of float16 when written to workgroup memory."""

    name = "matrix_unit_high"
    follows = "matrix_unit"
    summary = "float32 split into two float16, three products on matrix units"
    a_vector_axis = "any"
    b_vector_axis = "any"
    not_in: ClassVar[Mapping[str, str]] = {"naga": "its fragments take no numbers"}
    spelling: ClassVar[str] = "current"

    bk: int = tunable(16, (16, 32, 64), "inner elements per step")
    phases: int = tunable(1, (1, 2), "with 2, sums change sign between even and odd steps, to cancel truncation")

    @property
    def workgroup_bytes(self) -> int:
        """Panels of high and low parts, in the layout that needs the most."""
        return 2 * max(self.tile_bytes(a, b) for a in (False, True) for b in (False, True))

    @property
    def at_once(self) -> int:
        """Adjacent fragments of C that a subgroup stores at once: one in each panel of A, and of B if it fits."""
        b = min(self.panel_bytes(self.sn, along_k) for along_k in (False, True))
        panels = 4 if b // (self.bm // self.sm) >= 4 * self.fm * self.fn else 2
        return max(n for n in range(1, panels + 1) if self.sn // self.fn % n == 0)

    @property
    def fragments(self) -> int:
        """Fragments of C per subgroup."""
        return self.sm // self.fm * (self.sn // self.fn)

    @property
    def before(self) -> tuple[Kernel[Gemm], ...]:
        """The dispatch that computes the scales."""
        return (LineScales(),)

    @property
    def after(self) -> tuple[Kernel[Gemm], ...]:
        """The dispatch that computes elements in doubt."""
        return (Mend(),)

    def traffic(self, problem: Gemm) -> None:
        """Return None: its time is not modelled."""
        del problem

    def kept_sums(self, problem: Gemm) -> int:
        """Return the bytes of the sums of even steps, or 0 if there is one phase."""
        return 4 * (self.phases - 1) * math.prod(self.dispatch(problem)) * self.bm * self.bn * self.slices

    def scratch(self, problem: Gemm) -> tuple[Texture | Scratch, ...]:
        """Return the buffers of lines, doubts, and sums of even steps."""
        sums = [Scratch(SUMS, self.kept_sums(problem))] if self.phases > 1 else []
        return (lines(problem), doubts(problem), *sums)

    def scratch_rule(self, problem: Gemm) -> dict[str, Any]:
        """Return the rules of the buffers' bytes."""
        rules = {LINES: "8 * (m + n) * batch", DOUBTS: "4 * batch * m * ceil(n / 32)"}
        if self.phases > 1:
            each = 4 * (self.phases - 1) * self.bm * self.bn * self.slices
            rules[SUMS] = f"{each} * x * y * z"  # workgroups of this dispatch
        return rules

    def unsuited(self, problem: Gemm) -> str | None:
        """Return why no device can compute `problem`: it must be float32 with precision=high."""
        if problem.dtype != F32:
            return f"splits {F32.name}, not {problem.dtype.name}"
        if problem.precision != "high":
            return "is for precision=high"
        return f"cannot write {problem.out_dtype.name}" if problem.out_dtype.packed else None

    def choices(self, problem: Gemm) -> HighSpecialisation:
        """Return the template choices for problems like `problem` that assume nothing of sizes."""
        return HighSpecialisation(**vars(super().choices(problem)))

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield the bindings of all stages, and those that the dispatches share."""
        more = {LINES: ("read-only-storage", "array<vec2f>"), DOUBTS: ("storage", "array<atomic<u32>>")}
        if self.phases > 1:
            more[SUMS] = ("storage", "array<vec4<u32>>")
        yield from numbered(super().bindings(spec), more)
