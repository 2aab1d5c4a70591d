"""Stage 8: register tiles over workgroup tiles."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import tunable
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.register_tiles import RegisterTiles
from webmm.problems.gemm import Gemm


@dataclass(frozen=True)
class RegisterTiled(RegisterTiles[Gemm], GemmKernel):
    """What the register-tiled stages of the ladder share."""

    a_vector_axis = "any"
    b_vector_axis = "any"

    order: str = tunable("serpentine", ("serpentine", "rows"), "in which order the FMAs of one inner element stand")

    @property
    def buffers(self) -> int:
        """Tiles in flight in workgroup memory."""
        return 1

    @property
    def workgroup_bytes(self) -> int:
        """A (bk, bm) tile of A and a (bk, bn) tile of B per buffer, in f32."""
        return self.buffers * (self.bm + self.bn) * self.bk * 4


@dataclass(frozen=True)
class Blocked(RegisterTiled):
    """Fetch a tile, wait, multiply it, wait."""

    name = "blocked"
    follows = "vectorized"
    summary = "register tiles over workgroup tiles"
