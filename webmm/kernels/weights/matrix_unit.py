"""Many rows of float16, on the matrix units of a GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from webmm.dtypes import F16
from webmm.kernels.base import Binding, Capabilities, Kernel, MatrixShape, Scratch, Texture, ceil_div
from webmm.kernels.gemm.matrix_unit import MatrixUnit as Halves
from webmm.kernels.matrix_tiles import CHUNK_BYTES, MatrixTiles
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
        count = ceil_div(problem.n, 8)
        y = ceil_div(count, 2**15)
        return ceil_div(count, y), y, 1

    def iterations(self, problem: WeightOnly) -> int:
        """Return how often the loops over blocks, and over what was found, run."""
        return ceil_div(problem.blocks, 32) + 32

    def bindings(self, spec: WeightSpecialisation) -> Iterator[Binding]:
        """Yield scales and factors."""
        yield Binding(1, "scales", "read-only-storage", "array<f32>")
        yield Binding(2, FACTORS, "storage", "array<f32>")


@dataclass(frozen=True)
class MatrixUnit(MatrixTiles[WeightOnly], WeightKernel):
    """As gemm's stage of that name; weights become float16 on their way into workgroup memory."""

    name = "matrix_unit"
    follows = "tiles"
    summary = "many rows of float16: weights become fragments for matrix units"
    a_vector_axis = "any"
    chunk = CHUNK_BYTES // F16.itemsize
    not_in: ClassVar[Mapping[str, str]] = {"naga": "wgpu enables no matrix units"}
    spelling: ClassVar[str] = "current"

    @classmethod
    def on(cls, device: Capabilities) -> MatrixUnit:
        """Return the stage with the largest fragments that the device multiplies, and its subgroups."""
        halves = Halves.on(device)
        return cls(fm=halves.fm, fn=halves.fn, fk=halves.fk, lanes=halves.lanes)

    @property
    def matrix_shape(self) -> MatrixShape:
        """What the matrix units must multiply."""
        return MatrixShape("f16", "f32", self.fm, self.fn, self.fk)

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

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Fragments of whole chunks, and room for those of C where A was."""
        yield from super().constraints()
        for name in ("fm", "fn", "fk"):
            value = getattr(self, name)
            yield value % self.chunk == 0, f"{name} = {value} must be a multiple of {self.chunk}, which lanes move"
        across, panel = self.bn // self.sn, min(self.panel_bytes(self.sm, along_k) for along_k in (False, True))
        yield (
            panel >= 4 * across * self.fm * self.fn,
            f"{across} fragments of C do not fit where {self.sm} rows of A were, {panel} bytes",
        )

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
