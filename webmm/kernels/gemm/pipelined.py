"""Software pipelining: loading the next tiles overlaps multiplying the current ones."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import tunable
from webmm.kernels.gemm.blocked import RegisterTiled


@dataclass(frozen=True)
class Pipelined(RegisterTiled):
    """As `blocked`; loading the next tiles overlaps multiplying the current ones."""

    name = "pipelined"
    follows = "blocked"
    summary = "the next tile is loaded while this one is multiplied"

    prefetch: str = tunable(
        "registers", ("registers", "workgroup"), "where the next tile is held: registers, or a second workgroup buffer"
    )

    @property
    def buffers(self) -> int:
        """Copies of the tiles in workgroup memory."""
        return 2 if self.prefetch == "workgroup" else 1
