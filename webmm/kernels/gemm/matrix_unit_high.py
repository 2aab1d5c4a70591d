"""Beyond the ladder: products of float32 on matrix units, each operand as two of float16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

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
from webmm.kernels.matrix_tiles import HalfTiles
from webmm.problems.gemm import Gemm

LINES, DOUBTS, SUMS = "lines", "doubts", "sums"  # what the dispatches leave each other, and the product itself
RUNS = (1, 2, 4, 6, 8)  # with 3, an H200 read 81 TFLOP/s at 4096³ in place of 96 and 93 with 2 and 4
LINES_PER_WORKGROUP, WORDS_PER_WORKGROUP = 8, 256


@dataclass(frozen=True)
class HighSpecialisation(Specialisation):
    """As of any stage, with the type that is multiplied beside those that are stored."""

    @property
    def types(self) -> tuple[DType, ...]:
        """What is stored, and what is multiplied."""
        return tuple(dict.fromkeys((*super().types, F16)))


def lines(problem: Gemm) -> Scratch:
    """Return the buffer of what is known of each row of A and column of B: (batch, m + n), two f32 each."""
    return Scratch(LINES, 8 * (problem.m + problem.n) * problem.batch)


def doubts(problem: Gemm) -> Scratch:
    """Return the buffer of a bit for each element of C, (batch, m, n), rows of whole words."""
    return Scratch(DOUBTS, 4 * problem.batch * problem.m * ceil_div(problem.n, 32))


def numbered(known: Iterator[Binding], names: Mapping[str, tuple[str, str]]) -> Iterator[Binding]:
    """Yield the bindings that every stage has, then those of `names`: WebGPU type and WGSL type of each."""
    every = [*known, *(Binding(0, name, *types) for name, types in names.items())]
    yield from (Binding(number, x.name, x.type, x.wgsl_type) for number, x in enumerate(every, 1))


@dataclass(frozen=True)
class LineScales(GemmKernel):
    """Find the power of two by which each row of A and column of B is scaled, and how small its elements are."""

    name = "line_scales"
    summary = "scales of rows of A and columns of B"
    a_vector_axis = "any"
    b_vector_axis = "any"
    binds = ("a", "b")

    @property
    def lines(self) -> int:
        """Rows or columns of a workgroup."""
        return LINES_PER_WORKGROUP

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Invocations share the lines."""
        return (256, 1, 1)

    @property
    def workgroup_bytes(self) -> int:
        """Of each line the largest element, what is special, and how many are small, as found by each invocation."""
        return (8 + 4 * 128) * self.lines

    def dispatch(self, problem: Gemm) -> tuple[int, int, int]:
        """Workgroups for the rows of A, then for the columns of B."""
        return fold(ceil_div(problem.m, self.lines) + ceil_div(problem.n, self.lines), problem.batch)

    def iterations(self, problem: Gemm) -> int:
        """Return how often its loops run: over the inner dimension, the doubts, and what was found."""
        return ceil_div(problem.k, 32) + ceil_div(problem.n, 8 * self.invocations) + 1 + 128

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield A and B, and what is found."""
        found = {LINES: ("storage", "array<vec2f>"), DOUBTS: ("storage", "array<u32>")}
        yield from numbered(super().bindings(spec), found)


@dataclass(frozen=True)
class Mend(GemmKernel):
    """Compute the elements of C that are in doubt, in float32."""

    name = "mend"
    summary = "elements of C that float16 could not hold, in float32"

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Invocations look at a word of doubts each, then share the columns and the inner dimension of one."""
        return (256, 1, 1)

    @property
    def workgroup_bytes(self) -> int:
        """Whether there is any doubt, and partial sums."""
        return 8 + 4 * self.invocations

    def dispatch(self, problem: Gemm) -> tuple[int, int, int]:
        """As many workgroups as there are words for."""
        return fold(ceil_div(problem.m * ceil_div(problem.n, 32), WORDS_PER_WORKGROUP), problem.batch)

    def iterations(self, problem: Gemm) -> int:
        """Return how often its loops run where words have all elements in doubt, or two, whichever is more."""
        lanes = self.invocations
        many, few = (
            n * (ceil_div(problem.k * columns, lanes) + (lanes // columns).bit_length())
            for n, columns in ((1, 32), (2, 1))
        )
        return WORDS_PER_WORKGROUP * (1 + max(many, few))

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield what every stage has, and the doubts."""
        yield from numbered(super().bindings(spec), {DOUBTS: ("read-only-storage", "array<u32>")})


@dataclass(frozen=True)
class MatrixUnitHigh(HalfTiles[Gemm], GemmKernel):
    """As `matrix_unit`; float32 operands become two of float16 on their way into workgroup memory."""

    name = "matrix_unit_high"
    follows = "matrix_unit"
    summary = "float32 as two float16 each, three products on matrix units"
    a_vector_axis = "any"
    b_vector_axis = "any"
    not_in: ClassVar[Mapping[str, str]] = {"naga": "its fragments take no numbers"}
    spelling: ClassVar[str] = "current"

    bk: int = tunable(16, (16, 32, 64), "inner elements per step")
    runs: int = tunable(1, RUNS, "parts of k: fragments sum up no further, as matrix units truncate sums")

    @property
    def workgroup_bytes(self) -> int:
        """Panels of both halves, in the layout that needs the most."""
        return 2 * max(self.tile_bytes(a, b) for a in (False, True) for b in (False, True))

    @property
    def fragments(self) -> int:
        """Fragments of C of a subgroup."""
        return self.sm // self.fm * (self.sn // self.fn)

    @property
    def before(self) -> tuple[Kernel[Gemm], ...]:
        """The scales are found."""
        return (LineScales(),)

    @property
    def after(self) -> tuple[Kernel[Gemm], ...]:
        """What is in doubt is mended."""
        return (Mend(),)

    def scratch(self, problem: Gemm) -> tuple[Texture | Scratch, ...]:
        """Return what is known of rows and columns, the doubts, and the sums of all parts of k but the last."""
        elements = self.grid.tiles(problem) * problem.batch * self.subgroups * self.sm * self.sn
        sums = [Scratch(SUMS, 4 * (self.runs - 1) * elements)] if self.runs > 1 else []
        return (lines(problem), doubts(problem), *sums)

    def unsuited(self, problem: Gemm) -> str | None:
        """Return why no device computes `problem` so: it splits float32, where that was asked for."""
        if problem.dtype != F32:
            return f"splits {F32.name}, not {problem.dtype.name}"
        if problem.precision != "high":
            return "is for precision=high"
        return f"writes no {problem.out_dtype.name}" if problem.out_dtype.packed else None

    def specialise(self, problem: Gemm) -> HighSpecialisation:
        """Return the template choices that fit `problem`."""
        return HighSpecialisation(**vars(super().specialise(problem)))

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield what every stage has, and what the dispatches leave each other."""
        more = {LINES: ("read-only-storage", "array<vec2f>"), DOUBTS: ("storage", "array<atomic<u32>>")}
        if self.runs > 1:
            more[SUMS] = ("storage", "array<vec4<u32>>")
        yield from numbered(super().bindings(spec), more)
