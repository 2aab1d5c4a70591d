"""A gemm stage made of webmm's building blocks: register tiles over two copies of the workgroup tiles.

    webmm bench --plugin examples/two_buffers.py --kernels blocked,two_buffers

Its WGSL is the template two_buffers.wgsl in the same folder. docs/building-blocks.md describes the blocks.
"""

from dataclasses import dataclass

import webmm
from webmm.kernels.gemm.blocked import RegisterTiled
from webmm.problems.gemm import Gemm


@webmm.register
@dataclass(frozen=True)
class TwoBuffers(RegisterTiled):
    """The next tiles are written to one copy while those in the other are multiplied: one barrier per step."""

    name = "two_buffers"
    follows = "blocked"
    summary = "register tiles over two copies of the workgroup tiles"

    @property
    def buffers(self) -> int:
        """Copies of the tiles in workgroup memory."""
        return 2

    @property
    def inner_step(self) -> int:
        """Two tiles: an iteration multiplies those of both copies."""
        return 2 * self.bk

    def iterations(self, problem: Gemm) -> int:
        """Return how many iterations an invocation's loops run, at most: the loop over a tile is there twice."""
        return 2 * super().iterations(problem)
