"""Byte by byte: the plain statement of what a product of 8-bit integers is."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import tunable
from webmm.kernels.product import Grid
from webmm.kernels.quantized.base import QuantizedKernel


@dataclass(frozen=True)
class Unpacked(QuantizedKernel):
    """Four neighbours of C per invocation: their bytes share a word."""

    name = "unpacked"
    follows = ""
    summary = "byte by byte"

    wy: int = tunable(8, (1, 4, 8, 16), "rows of C per workgroup")
    wx: int = tunable(8, (4, 8, 16, 32), "fours of columns of C per workgroup")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Fours of columns, rows."""
        return (self.wx, self.wy, 1)

    @property
    def grid(self) -> Grid:
        """One workgroup per tile."""
        return Grid(self.wy, 4 * self.wx)
