"""A fixed number of workgroups that loop over tiles."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import MAX_WORKGROUPS, Capabilities, tunable
from webmm.kernels.gemm.blocked import RegisterTiled
from webmm.kernels.product import Grid
from webmm.problems.gemm import Gemm

RESIDENT = 3  # workgroups per multiprocessor at a time; an H200 has 132 multiprocessors


@dataclass(frozen=True)
class Persistent(RegisterTiled):
    """As `pipelined` with prefetch=registers; each workgroup computes tiles until none is left."""

    name = "persistent"
    follows = "pipelined"
    summary = "a fixed number of workgroups loop over the tiles"

    workgroups: int = tunable(RESIDENT * 132, (132, 264, 396, 528, 792), "workgroups per matrix", most=MAX_WORKGROUPS)

    @classmethod
    def on(cls, device: Capabilities) -> Persistent:
        """Return the stage with as many workgroups as run at once, if a probe measured that."""
        return cls(workgroups=RESIDENT * device.workgroups) if device.workgroups else cls()

    @property
    def grid(self) -> Grid:
        """At most `workgroups`, each of which computes every workgroups-th tile."""
        return Grid(self.bm, self.bn, at_most=self.workgroups)

    def iterations(self, problem: Gemm) -> int:
        """Return how many iterations the loops of an invocation run: over its tiles, and over k for each."""
        tiles = -(-self.grid.tiles(problem) // min(self.workgroups, self.grid.tiles(problem)))
        return tiles * (2 + super().iterations(problem))
