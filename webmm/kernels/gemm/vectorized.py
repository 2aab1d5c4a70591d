"""Loads and stores of four elements at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from webmm.kernels.base import tunable
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.product import Tiled
from webmm.kernels.traffic import Traffic
from webmm.problems.gemm import Gemm


@dataclass(frozen=True)
class Vectorized(Tiled[Gemm], GemmKernel):
    """A (bm, bn) tile of C per workgroup, (1, 4) per invocation; storage and workgroup memory hold vec4."""

    name = "vectorized"
    follows = "shared"
    summary = "vec4 storage and vec4 tiles"
    a_vector_axis = "k"
    b_vector_axis = "n"

    bm: int = tunable(16, (8, 16, 32), "rows of C per workgroup")
    bn: int = tunable(64, (32, 64, 128), "columns of C per workgroup")
    bk: int = tunable(32, (16, 32), "inner elements per step")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Invocations along x (columns), y (rows) and z."""
        return (self.bn // 4, self.bm, 1)

    @property
    def workgroup_bytes(self) -> int:
        """A (bm, bk) tile of A and a (bk, bn) tile of B, in f32."""
        return (self.bm + self.bn) * self.bk * 4

    def iterations(self, problem: Gemm) -> int:
        """Return how many iterations an invocation's loops run: over k, and per step over loads of A and of B."""
        loads = sum(-(-size * self.bk // 4 // self.invocations) + 1 for size in (self.bm, self.bn))
        return super().iterations(problem) * (1 + loads)

    def traffic(self, problem: Gemm) -> Traffic:
        """Count a step: a share of A and B from storage, and a vec4 of A for four vec4 of B from workgroup memory."""
        spec = self.specialise(problem)
        a, b = (size * self.bk / 4 / self.invocations for size in (self.bm, self.bn))
        vectors = a * spec.vec_a + b * spec.vec_b
        counted = self._traffic(problem, fmas=4 * self.bk, vector_loads=vectors, scalar_loads=4 * (a + b - vectors))
        return counted._replace(
            workgroup_loads=5 * self.bk / 4,
            workgroup_stores=4 * (a + b),
            barriers=2,
            vector_stores=spec.vec_c,
            scalar_stores=0 if spec.vec_c else 4,
        )

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require whole vec4 along every axis of the tiles."""
        for name in ("bm", "bn", "bk"):
            value = getattr(self, name)
            yield value % 4 == 0, f"{name} = {value} must be a multiple of 4: tiles hold vec4"
