"""Products of float16 with quantised weights on the matrix units of a GPU, for many rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from webmm.dtypes import F16
from webmm.kernels.base import Binding, Kernel, Scratch, Texture, ceil_div, fold
from webmm.kernels.matrix_tiles import FloatTiles
from webmm.kernels.sizes import Assumption, folded
from webmm.kernels.traffic import Loads, Traffic
from webmm.kernels.weights.base import WeightKernel, WeightSpecialisation
from webmm.problems.weights import WeightOnly

FACTORS = "factors"


MOST_OPERANDS = 2  # of an epilogue; every device binds eight buffers


@dataclass(frozen=True)
class ColumnFactors(WeightKernel):
    """Compute the power of two that scales the weights of each column to the range of float16."""

    name = "column_factors"
    summary = "a power of two for each column of weights"

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """32 invocations for each of 8 columns."""
        return (256, 1, 1)

    @property
    def workgroup_bytes(self) -> int:
        """A word per invocation."""
        return 4 * self.invocations

    def dispatch(self, problem: WeightOnly) -> tuple[int, int, int]:
        """Return workgroup counts: eight columns per workgroup."""
        return fold(ceil_div(problem.n, 8))

    def grid_rule(self, spec: WeightSpecialisation) -> dict[str, Any]:
        """Return the rule of `dispatch`."""
        del spec
        return folded("ceil(n / 8)")

    def traffic(self, problem: WeightOnly) -> Traffic:
        """Count an invocation: its share of the scales of a column."""
        p, nbytes = problem, 4 * problem.blocks
        return Traffic(
            workgroups=ceil_div(p.n, 8),
            invocations=256,
            steps=1,
            fmas=0,
            vector_loads=0,
            scalar_loads=p.blocks / 32,
            loaded=8 * nbytes,
            read=p.n * nbytes,
            written=4 * p.n,
            scalar_stores=1 / 32,
            exchanged=1,
        )

    def iterations(self, problem: WeightOnly) -> int:
        """Return how many iterations the loops run: over blocks, and over the invocations' results."""
        return ceil_div(problem.blocks, 32) + 32

    def assumptions(self, choices: WeightSpecialisation) -> Iterator[Assumption]:
        """Yield nothing: it only reads scales."""
        del choices
        yield from ()

    def bindings(self, spec: WeightSpecialisation) -> Iterator[Binding]:
        """Yield scales and factors."""
        yield Binding(1, "scales", "read-only-storage", "array<f32>")
        yield Binding(2, FACTORS, "storage", "array<f32>")


@dataclass(frozen=True)
class MatrixUnit(FloatTiles[WeightOnly], WeightKernel):
    """As gemm's `matrix_unit`; weights are unpacked to float16 when they are written to workgroup memory."""

    name = "matrix_unit"
    follows = "tiles"
    summary = "many rows of float16: weights are unpacked into fragments on matrix units"
    a_vector_axis = "any"
    vector = FloatTiles.chunk
    not_in: ClassVar[Mapping[str, str]] = {"naga": "wgpu does not enable matrix units"}
    spelling: ClassVar[str] = "current"

    @property
    def workgroup_bytes(self) -> int:
        """Panels in the layout that needs the most; C reuses A's panels."""
        return max(self.tile_bytes(along_k, True) for along_k in (False, True))

    def loads(self, problem: WeightOnly) -> tuple[Loads, Loads, bool]:
        """Return how A and the words of B are loaded, and whether C is stored by vec4."""
        p, b = problem, self.bn * self.bk * problem.bits // 8
        a = self._chunks(p.a.aligned(p.m, p.k, self.chunk), self.a_loads, self.bm)
        return a, Loads(0, b / 4 / self.invocations + 2, self.b_loads, b), p.vec_c

    @property
    def before(self) -> tuple[Kernel[WeightOnly], ...]:
        """The dispatch that computes the columns' factors."""
        return (ColumnFactors(),)

    def scratch(self, problem: WeightOnly) -> tuple[Texture | Scratch, ...]:
        """Return the buffer of the columns' factors."""
        return (Scratch(FACTORS, 4 * problem.n),)

    def scratch_rule(self, problem: WeightOnly) -> dict[str, Any]:
        """Return the rule of the factors' bytes."""
        del problem
        return {FACTORS: "4 * n"}

    def unsuited(self, problem: WeightOnly) -> str | None:
        """Return why no device can compute `problem`: A and C must be float16, to which weights are rounded."""
        if (problem.dtype, problem.out_dtype) != (F16, F16):
            return f"reads and writes {F16.name}, not {problem.dtype.name} and {problem.out_dtype.name}"
        if len(problem.spreads) > MOST_OPERANDS:
            return f"can bind {MOST_OPERANDS} operands of an epilogue, not {len(problem.spreads)}"
        return None

    def bindings(self, spec: WeightSpecialisation) -> Iterator[Binding]:
        """Yield the bindings of all stages, and the factors; A is bound by chunks, vec4<u32>, or else by words."""
        bound = list(super().bindings(spec))
        chunks = dataclasses.replace(bound[0], wgsl_type="array<vec4<u32>>" if spec.vec_a else "array<u32>")
        yield from (chunks, *bound[1:], Binding(len(bound) + 1, FACTORS, "read-only-storage", "array<f32>"))
