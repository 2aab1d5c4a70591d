"""Four products per instruction, with register tiles over workgroup tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from webmm.dtypes import I32
from webmm.kernels.base import Binding, Kernel, ceil_div, tunable
from webmm.kernels.quantized.base import PACKED, WIDE, QuantizedKernel, Specialisation
from webmm.kernels.splits import PARTIAL, AddsSplits, DividedTiles
from webmm.kernels.traffic import Loads
from webmm.problems.quantized import Quantized


@dataclass(frozen=True)
class SumSplits(AddsSplits[Quantized], QuantizedKernel):
    """Add the partial sums of each element of C, and scale, round and store it."""

    def choices(self, problem: Quantized) -> Specialisation:
        """Return the template choices for problems like `problem`, whose zero points the partial sums include."""
        return super().choices(replace(problem, zero_a=0, zero_b=0))

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield the partial sums, C, and the terms by row and by column."""
        yield Binding(1, PARTIAL, "read-only-storage", "array<vec4i>")
        rest = [x for x in super().bindings(spec) if x.name not in ("a", "b")]
        yield from (replace(x, binding=number) for number, x in enumerate(rest, 2))


@dataclass(frozen=True)
class Packed(DividedTiles[Quantized], QuantizedKernel):
    """As gemm's `pipelined`, with words of four bytes in place of floats; optionally, workgroups divide k."""

    name = "packed"
    follows = "unpacked"
    summary = "four products per instruction, register tiles over workgroup tiles"
    packs = True

    tm: int = tunable(4, (4, 8), "rows of C per invocation")
    bk: int = tunable(16, (8, 16, 32), "words of four inner elements per step")
    unroll: int = tunable(16, (1, 4, 8, 16), "words multiplied per iteration of the inner loop, at most BK")
    dot: str = tunable("builtin", ("builtin", "emulated"), "dot products of bytes: builtin, or emulated in WGSL")

    @property
    def workgroup_bytes(self) -> int:
        """A tile of A and one of B, and the sums of their rows and columns."""
        return (self.bm + self.bn) * (self.bk + 1) * 4

    @property
    def inner_step(self) -> int:
        """One tile."""
        return self.bk * PACKED

    def loads(self, problem: Quantized) -> tuple[Loads, Loads, bool]:
        """Return how A and B are loaded, and whether C is stored by vec4."""
        p, spec = problem, self.specialise(problem)
        a = self._words(spec.align_a, p.a.transposed, self.a_loads, self.bm)
        b = self._words(spec.align_b, not p.b.transposed, self.b_loads, self.bn)
        return a, b, spec.vec_c

    def _words(self, align: int, across_k: bool, loads: int, length: int) -> Loads:
        """Return the loads of a tile; words that are not aligned, or are across k, are put together from others."""
        words = 0 if align == WIDE and not across_k else 4 if align >= PACKED else 8
        return Loads(0 if words else loads, words * loads, 4 * loads * (1 if across_k else 2), length * 4 * self.bk)

    def iterations(self, problem: Quantized) -> int:
        """Return how many iterations an invocation's loops run: over k, over the tile, and to clear the sums."""
        return super().iterations(problem) + ceil_div(self.bm, self.sharers) + ceil_div(self.bn, self.sharers)

    @property
    def after(self) -> tuple[Kernel[Quantized], ...]:
        """The dispatch that adds the partial sums."""
        return (SumSplits(self.splits),) if self.splits > 1 else ()

    def choices(self, problem: Quantized) -> Specialisation:
        """Return the template choices for problems like `problem`; partial sums are neither scaled nor rounded."""
        if self.splits == 1:
            return super().choices(problem)
        sums = replace(problem, out_dtype=I32, scaled_rows=False, scaled_columns=False, bias=False)
        return super().choices(sums)

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield A, B, C or the partial sums, and the terms by row and by column."""
        for x in super().bindings(spec):
            divided = x.name == "c" and self.splits > 1
            yield Binding(x.binding, PARTIAL, "storage", "array<vec4i>") if divided else x
