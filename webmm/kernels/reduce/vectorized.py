"""An invocation per row, with loads of 16 bytes."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import tunable
from webmm.kernels.reduce.per_row import PerRow


@dataclass(frozen=True)
class Vectorized(PerRow):
    """Like `per_row`, with `unroll` vec4 per iteration."""

    name = "vectorized"
    follows = "per_row"
    summary = "loads of 16 bytes"
    vectorizes = "k"

    unroll: int = tunable(4, (1, 2, 4, 8), "vec4 that an invocation loads before it reduces them")

    @property
    def step(self) -> int:
        """Elements per iteration."""
        return 4 * self.unroll
