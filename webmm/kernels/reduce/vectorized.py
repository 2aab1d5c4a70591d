"""Stage 3: as stage 2, with loads of 16 bytes."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import tunable
from webmm.kernels.reduce.per_row import PerRow


@dataclass(frozen=True)
class Vectorized(PerRow):
    """As `per_row`; each iteration takes `unroll` vec4."""

    name = "vectorized"
    follows = "per_row"
    summary = "loads of 16 bytes"
    vectorizes = "k"

    unroll: int = tunable(4, (1, 2, 4, 8), "vec4 that an invocation loads before it adds them up")

    @property
    def step(self) -> int:
        """Elements of an iteration."""
        return 4 * self.unroll
