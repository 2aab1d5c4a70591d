"""Four products per instruction, with register tiles over workgroup tiles."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import ceil_div, tunable
from webmm.kernels.quantized.base import PACKED, QuantizedKernel
from webmm.kernels.register_tiles import RegisterTiles
from webmm.problems.quantized import Quantized


@dataclass(frozen=True)
class Packed(RegisterTiles[Quantized], QuantizedKernel):
    """As gemm's `pipelined`, with words of four bytes in place of floats."""

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

    def iterations(self, problem: Quantized) -> int:
        """Return how many iterations an invocation's loops run: over k, over the tile, and to clear the sums."""
        return super().iterations(problem) + ceil_div(self.bm, self.sharers) + ceil_div(self.bn, self.sharers)
