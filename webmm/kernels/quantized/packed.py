"""Four products per instruction, register tiles over workgroup tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from webmm.kernels.base import ceil_div, tunable
from webmm.kernels.gemm.base import Grid
from webmm.kernels.quantized.base import PACKED, QuantizedKernel
from webmm.problem import Quantized


@dataclass(frozen=True)
class Packed(QuantizedKernel):
    """As gemm's `pipelined`, with words of four bytes in place of floats."""

    name = "packed"
    summary = "four products per instruction, register tiles over workgroup tiles"
    packs = True

    bm: int = tunable(64, (32, 64, 128), "rows of C per workgroup")
    bn: int = tunable(128, (32, 64, 128), "columns of C per workgroup")
    bk: int = tunable(16, (8, 16, 32), "words of four inner elements per step")
    tm: int = tunable(8, (4, 8), "rows of C per invocation")
    tn: int = tunable(8, (4, 8, 16), "columns of C per invocation")
    unroll: int = tunable(16, (1, 4, 8, 16), "words multiplied per iteration of the inner loop, at most BK")
    group: int = tunable(8, (1, 8), "tile rows walked together, so that neighbours share tiles of B in cache")
    dot: str = tunable("builtin", ("builtin", "emulated"), "who multiplies four bytes by four: the engine, or WGSL")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of invocations; the template lays them out."""
        return (self.bm // self.tm * (self.bn // self.tn), 1, 1)

    @property
    def workgroup_bytes(self) -> int:
        """A tile of A and one of B, and the sums of their rows and columns."""
        return (self.bm + self.bn) * (self.bk + 1) * 4

    @property
    def grid(self) -> Grid:
        """One workgroup per tile."""
        return Grid(self.bm, self.bn)

    @property
    def inner_step(self) -> int:
        """One tile."""
        return self.bk * PACKED

    @property
    def a_loads(self) -> int:
        """Fours of words of A that each invocation fetches per step."""
        return self.bm * self.bk // 4 // self.invocations

    @property
    def b_loads(self) -> int:
        """Fours of words of B that each invocation fetches per step."""
        return self.bn * self.bk // 4 // self.invocations

    def shares(self, lines: int) -> int:
        """Return how many of so many rows or columns an invocation sums up, at most."""
        return ceil_div(lines, self.invocations)

    def iterations(self, problem: Quantized) -> int:
        """Return how often the loops of an invocation run, over k and over the tile."""
        inner = 0 if self.unroll == self.bk else self.bk // self.unroll + 1
        sums = (self.shares(self.bm) + self.shares(self.bn)) * (self.bk + 1)
        return super().iterations(problem) * (1 + inner + sums)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Whole fours of words everywhere, and the same number of loads for every invocation."""
        for name in ("tm", "tn", "bk"):
            value = getattr(self, name)
            yield value % 4 == 0, f"{name} = {value} must be a multiple of 4: fragments are vec4"
        yield self.bm % self.tm == 0, f"bm = {self.bm} must be a multiple of tm = {self.tm}"
        yield self.bn % self.tn == 0, f"bn = {self.bn} must be a multiple of tn = {self.tn}"
        for name, size in (("A", self.bm), ("B", self.bn)):
            fours = size * self.bk // 4
            yield (
                fours % self.invocations == 0,
                f"the tile of {name} has {fours} vec4, which {self.invocations} invocations cannot share evenly",
            )
        yield self.bk % self.unroll == 0, f"bk = {self.bk} must be a multiple of unroll = {self.unroll}"
