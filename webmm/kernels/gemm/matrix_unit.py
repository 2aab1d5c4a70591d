"""Float16 and float32 products on the matrix units of a GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from webmm.dtypes import F16, F32, DType
from webmm.kernels.base import Binding, Kernel, tunable
from webmm.kernels.gemm.base import GemmKernel, Specialisation
from webmm.kernels.gemm.split_k import SumSplits
from webmm.kernels.matrix_tiles import CHUNK_BYTES, FloatTiles
from webmm.kernels.splits import MOST_SPLITS, PARTIAL, SPLITS_DOC, Divided
from webmm.problems.gemm import Gemm


@dataclass(frozen=True)
class MatrixUnit(Divided[Gemm], FloatTiles[Gemm], GemmKernel):
    """As `pipelined`, with fragments of float16 in place of register tiles."""

    name = "matrix_unit"
    follows = "pipelined"
    summary = "float16 fragments on matrix units, tiles in workgroup memory"
    a_vector_axis = "any"
    b_vector_axis = "any"
    vector = FloatTiles.chunk
    multiplies: ClassVar[tuple[DType, ...]] = (F16,)  # the element types of A and B in storage

    splits: int = tunable(1, (1,), SPLITS_DOC, most=MOST_SPLITS)  # a sample by a tuner would rarely fit
    spelling: str = tunable("current", ("current", "deprecated"), "Tint's syntax for loads and stores of fragments")

    @property
    def after(self) -> tuple[Kernel[Gemm], ...]:
        """The dispatch that adds the partial sums, if k is divided."""
        return (SumSplits(self.splits),) if self.splits > 1 else ()

    @property
    def workgroup_bytes(self) -> int:
        """Panels in the layout that needs the most, and a fragment of C per subgroup, for which Tint reuses panels."""
        return self.c_bytes + max(self.tile_bytes(a, b) for a in (False, True) for b in (False, True))

    @property
    def c_bytes(self) -> int:
        """Bytes of one fragment of C for each subgroup."""
        return 4 * self.subgroups * self.fm * self.fn

    def unsuited(self, problem: Gemm) -> str | None:
        """Return why no device can compute `problem`: operands of another type, or a packed C."""
        if problem.dtype not in self.multiplies:
            return f"multiplies {' and '.join(x.name for x in self.multiplies)}, not {problem.dtype.name}"
        return f"cannot write {problem.out_dtype.name}" if problem.out_dtype.packed else None

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield the bindings of all stages; A and B are bound by chunks, vectors of words, or else by words."""
        chunk = f"array<vec{self.chunk * spec.dtype.itemsize // 4}<u32>>"
        for binding in super().bindings(spec):
            if self.splits > 1 and binding.name not in ("a", "b"):
                continue
            if binding.name in ("a", "b"):
                aligned = spec.vec_a if binding.name == "a" else spec.vec_b
                binding = dataclasses.replace(binding, wgsl_type=chunk if aligned else "array<u32>")
            yield binding
        if self.splits > 1:
            yield Binding(3, PARTIAL, "storage", "array<vec4f>")


@dataclass(frozen=True)
class MatrixUnitF32(MatrixUnit):
    """As `matrix_unit`, with fragments of float32, which Apple's GPUs have; float16 is converted to it.

    They also have fragments of float16, but with sums in float16, whose error grows with k·2⁻¹¹.
    """

    name = "matrix_unit_f32"
    follows = MatrixUnit.name
    summary = "float32 fragments on matrix units, tiles in workgroup memory"
    operands = "f32"
    features = frozenset[str]()
    chunk = CHUNK_BYTES // F32.itemsize
    vector = chunk
    multiplies: ClassVar[tuple[DType, ...]] = (F32, F16)

    bm: int = tunable(64, (32, 64, 128), "rows of C per workgroup")
    bn: int = tunable(64, (32, 64, 128), "columns of C per workgroup")
    bk: int = tunable(32, (8, 16, 32), "inner elements per step")
    sm: int = tunable(32, (16, 32, 64), "rows of C per subgroup")
    sn: int = tunable(32, (16, 32, 64), "columns of C per subgroup")
    fm: int = tunable(8, (8, 16), "rows of a fragment of A and C, as the adapter reports", most=64)
    fn: int = tunable(8, (8, 16), "columns of a fragment of B and C, likewise", most=64)
    fk: int = tunable(8, (8, 16), "inner elements of a fragment, likewise", most=64)

    @property
    def template(self) -> str:
        """The template of `matrix_unit`."""
        return f"{self.op}/{MatrixUnit.name}.wgsl"
