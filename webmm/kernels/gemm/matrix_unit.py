"""Beyond the ladder: products of whole fragments, on the matrix units of a GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from webmm.dtypes import F16
from webmm.kernels.base import Binding, tunable
from webmm.kernels.gemm.base import GemmKernel, Specialisation
from webmm.kernels.matrix_tiles import HalfTiles
from webmm.problems.gemm import Gemm


@dataclass(frozen=True)
class MatrixUnit(HalfTiles[Gemm], GemmKernel):
    """As `pipelined`, with fragments of float16 in place of registers."""

    name = "matrix_unit"
    follows = "pipelined"
    summary = "float16 fragments on matrix units, tiles staged in workgroup memory"
    a_vector_axis = "any"
    b_vector_axis = "any"
    vector = HalfTiles.chunk

    spelling: str = tunable("current", ("current", "deprecated"), "how Tint writes loads and stores of fragments")

    @property
    def workgroup_bytes(self) -> int:
        """Panels of the layout that needs the most, and a fragment of C per subgroup, for which Tint needs no room."""
        return self.c_bytes + max(self.tile_bytes(a, b) for a in (False, True) for b in (False, True))

    @property
    def c_bytes(self) -> int:
        """Bytes of a fragment of C per subgroup."""
        return 4 * self.subgroups * self.fm * self.fn

    def unsuited(self, problem: Gemm) -> str | None:
        """Return why no device computes `problem` so: matrix units take float16, lanes write no packed words."""
        if problem.dtype != F16:
            return f"multiplies {F16.name}, not {problem.dtype.name}"
        return f"writes no {problem.out_dtype.name}" if problem.out_dtype.packed else None

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield as other stages do; a chunk of A or B is a vec4<u32>, elsewhere they are bound by words."""
        for binding in super().bindings(spec):
            if binding.name in ("a", "b"):
                aligned = spec.vec_a if binding.name == "a" else spec.vec_b
                binding = dataclasses.replace(binding, wgsl_type="array<vec4<u32>>" if aligned else "array<u32>")
            yield binding
