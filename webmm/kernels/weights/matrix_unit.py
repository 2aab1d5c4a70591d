"""Many rows of float16, on the matrix units of a GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from webmm.dtypes import F16
from webmm.kernels.base import Binding, Kernel, Scratch, Texture, ceil_div, fold
from webmm.kernels.matrix_tiles import HalfTiles
from webmm.kernels.weights.base import WeightKernel, WeightSpecialisation
from webmm.problems.weights import WeightOnly

FACTORS = "factors"


@dataclass(frozen=True)
class ColumnFactors(WeightKernel):
    """Find the power of two that brings the weights of a column into the range of float16."""

    name = "column_factors"
    summary = "a power of two for each column of weights"

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """32 invocations for each of 8 columns."""
        return (256, 1, 1)

    @property
    def workgroup_bytes(self) -> int:
        """A number for each invocation."""
        return 4 * self.invocations

    def dispatch(self, problem: WeightOnly) -> tuple[int, int, int]:
        """Eight columns per workgroup."""
        return fold(ceil_div(problem.n, 8))

    def iterations(self, problem: WeightOnly) -> int:
        """Return how often the loops over blocks, and over what was found, run."""
        return ceil_div(problem.blocks, 32) + 32

    def bindings(self, spec: WeightSpecialisation) -> Iterator[Binding]:
        """Yield scales and factors."""
        yield Binding(1, "scales", "read-only-storage", "array<f32>")
        yield Binding(2, FACTORS, "storage", "array<f32>")


@dataclass(frozen=True)
class MatrixUnit(HalfTiles[WeightOnly], WeightKernel):
    """As gemm's stage of that name; weights become float16 on their way into workgroup memory."""

    name = "matrix_unit"
    follows = "tiles"
    summary = "many rows of float16: weights become fragments for matrix units"
    a_vector_axis = "any"
    not_in: ClassVar[Mapping[str, str]] = {"naga": "wgpu enables no matrix units"}
    spelling: ClassVar[str] = "current"

    @property
    def workgroup_bytes(self) -> int:
        """Panels of the layout that needs the most; C takes A's place."""
        return max(self.tile_bytes(along_k, True) for along_k in (False, True))

    @property
    def before(self) -> tuple[Kernel[WeightOnly], ...]:
        """The columns' factors are found."""
        return (ColumnFactors(),)

    def scratch(self, problem: WeightOnly) -> tuple[Texture | Scratch, ...]:
        """Return the columns' factors."""
        return (Scratch(FACTORS, 4 * problem.n),)

    def unsuited(self, problem: WeightOnly) -> str | None:
        """Return why no device computes `problem` so: weights are rounded as float16 is."""
        if (problem.dtype, problem.out_dtype) != (F16, F16):
            return f"reads and writes {F16.name}, not {problem.dtype.name} and {problem.out_dtype.name}"
        return None

    def bindings(self, spec: WeightSpecialisation) -> Iterator[Binding]:
        """Yield as other stages do, and the factors; a chunk of A is a vec4<u32>, elsewhere it is bound by words."""
        bound = list(super().bindings(spec))
        chunks = dataclasses.replace(bound[0], wgsl_type="array<vec4<u32>>" if spec.vec_a else "array<u32>")
        yield from (chunks, *bound[1:], Binding(len(bound) + 1, FACTORS, "read-only-storage", "array<f32>"))

    def specialise(self, problem: WeightOnly) -> WeightSpecialisation:
        """Return the template choices that fit `problem`."""
        aligned = problem.a.aligned(problem.m, problem.k, self.chunk)
        return dataclasses.replace(super().specialise(problem), vec_a=aligned)
