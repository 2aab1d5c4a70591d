"""Byte by byte: the definition of a product of 8-bit integers."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import tunable
from webmm.kernels.product import Grid
from webmm.kernels.quantized.base import QuantizedKernel


@dataclass(frozen=True)
class Unpacked(QuantizedKernel):
    """Four consecutive elements of C per invocation: as bytes they share a word."""

    name = "unpacked"
    follows = ""
    summary = "byte by byte"

    wy: int = tunable(8, (1, 4, 8, 16), "rows of C per workgroup")
    wx: int = tunable(8, (4, 8, 16, 32), "columns of C per workgroup, in fours")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Invocations along x (four columns each), y (rows) and z."""
        return (self.wx, self.wy, 1)

    @property
    def grid(self) -> Grid:
        """One workgroup per tile."""
        return Grid(self.wy, 4 * self.wx)
