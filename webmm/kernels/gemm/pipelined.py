"""Stage 9: fetching overlaps multiplying."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import tunable
from webmm.kernels.gemm.blocked import RegisterTiled


@dataclass(frozen=True)
class Pipelined(RegisterTiled):
    """As `blocked`, with the next tile on its way while this one is multiplied."""

    name = "pipelined"
    follows = "blocked"
    summary = "the next tile is fetched while this one is multiplied"

    prefetch: str = tunable(
        "registers", ("registers", "workgroup"), "where the next tile waits: registers, or a second workgroup buffer"
    )

    @property
    def buffers(self) -> int:
        """Tiles in flight in workgroup memory."""
        return 2 if self.prefetch == "workgroup" else 1
