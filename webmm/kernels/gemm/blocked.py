"""Register tiles over workgroup tiles."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import tunable
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.register_tiles import RegisterTiles
from webmm.problems.gemm import Gemm


@dataclass(frozen=True)
class RegisterTiled(RegisterTiles[Gemm], GemmKernel):
    """Base class of the register-tiled stages of the ladder."""

    a_vector_axis = "any"
    b_vector_axis = "any"

    order: str = tunable("serpentine", ("serpentine", "rows"), "order of the FMAs of one inner element")

    @property
    def buffers(self) -> int:
        """Copies of the tiles in workgroup memory."""
        return 1

    @property
    def workgroup_bytes(self) -> int:
        """A (bk, bm) tile of A and a (bk, bn) tile of B per buffer, in f32, with rows padded by a vec4."""
        return self.buffers * (self.bm + 4 + self.bn + 4) * self.bk * 4


@dataclass(frozen=True)
class Blocked(RegisterTiled):
    """In each step: load a tile, wait, multiply it, wait."""

    name = "blocked"
    follows = "vectorized"
    summary = "register tiles over workgroup tiles"
