"""Many rows: weights are unpacked to floats when they are written to workgroup memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from webmm.kernels.base import Binding, Kernel, tunable
from webmm.kernels.splits import PARTIAL, AddsSplits, DividedTiles
from webmm.kernels.traffic import Loads
from webmm.kernels.weights.base import WeightKernel, WeightSpecialisation
from webmm.problems.weights import WeightOnly


@dataclass(frozen=True)
class SumSplits(AddsSplits[WeightOnly], WeightKernel):
    """Add the partial sums of each element of C."""

    def bindings(self, spec: WeightSpecialisation) -> Iterator[Binding]:
        """Yield the partial sums, C, and the operands of the activation."""
        yield Binding(1, PARTIAL, "read-only-storage", "array<vec4f>")
        yield from (replace(x, binding=x.binding - 3) for x in super().bindings(spec) if x.binding > 4)


@dataclass(frozen=True)
class Tiles(DividedTiles[WeightOnly], WeightKernel):
    """As gemm's `pipelined`; optionally, workgroups divide k."""

    name = "tiles"
    follows = "vector"
    summary = "many rows: weights are unpacked into tiles in workgroup memory"
    a_vector_axis = "any"
    b_words = True

    order: str = tunable("serpentine", ("serpentine", "rows"), "order of the FMAs of one inner element")

    @property
    def workgroup_bytes(self) -> int:
        """A (bk, bm) tile of A, with rows padded by a vec4, and a (bk, bn) tile of B, in f32."""
        return (self.bm + 4 + self.bn) * self.bk * 4

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require what all register tiles do, and that no tile extends beyond the last block."""
        yield from super().constraints()
        yield self.bk <= 32, f"bk = {self.bk} must be at most 32, the smallest block"

    def loads(self, problem: WeightOnly) -> tuple[Loads, Loads, bool]:
        """Return how A and B are loaded, and whether C is stored by vec4; B's words have a scale and a zero point."""
        p = problem
        words = self.bn * self.bk * p.bits / 32 / self.sharers
        vec_a = p.a.vectorizable(p.m, p.k)
        a = self._floats(vec_a, p.a.transposed, self.a_loads, self.bm * p.dtype.itemsize)
        return a, Loads(0, words + 2, 4 * self.b_loads, self.bn * self.bk * p.bits / 8), p.vec_c

    @property
    def after(self) -> tuple[Kernel[WeightOnly], ...]:
        """The dispatch that adds the partial sums."""
        return (SumSplits(self.splits),) if self.splits > 1 else ()

    def bindings(self, spec: WeightSpecialisation) -> Iterator[Binding]:
        """Yield A, the words of B, their scales and zero points, and C or the partial sums."""
        bound = list(super().bindings(spec))
        yield from bound if self.splits == 1 else (*bound[:4], Binding(5, PARTIAL, "storage", "array<vec4f>"))
