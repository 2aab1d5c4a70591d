"""Float16 products on the matrix units of a GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from webmm.dtypes import F16
from webmm.kernels.base import Binding, Kernel, tunable
from webmm.kernels.gemm.base import GemmKernel, Specialisation
from webmm.kernels.gemm.split_k import SumSplits
from webmm.kernels.matrix_tiles import HalfTiles
from webmm.kernels.splits import MOST_SPLITS, PARTIAL, SPLITS_DOC, Divided
from webmm.problems.gemm import Gemm


@dataclass(frozen=True)
class MatrixUnit(Divided[Gemm], HalfTiles[Gemm], GemmKernel):
    """As `pipelined`, with fragments of float16 in place of register tiles."""

    name = "matrix_unit"
    follows = "pipelined"
    summary = "float16 fragments on matrix units, tiles in workgroup memory"
    a_vector_axis = "any"
    b_vector_axis = "any"
    vector = HalfTiles.chunk

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
        """Return why no device can compute `problem`: operands must be float16, and C not packed."""
        if problem.dtype != F16:
            return f"multiplies {F16.name}, not {problem.dtype.name}"
        return f"cannot write {problem.out_dtype.name}" if problem.out_dtype.packed else None

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield the bindings of all stages; A and B are bound by chunks, vec4<u32>, or else by words."""
        for binding in super().bindings(spec):
            if self.splits > 1 and binding.name not in ("a", "b"):
                continue
            if binding.name in ("a", "b"):
                aligned = spec.vec_a if binding.name == "a" else spec.vec_b
                binding = dataclasses.replace(binding, wgsl_type="array<vec4<u32>>" if aligned else "array<u32>")
            yield binding
        if self.splits > 1:
            yield Binding(3, PARTIAL, "storage", "array<vec4f>")
