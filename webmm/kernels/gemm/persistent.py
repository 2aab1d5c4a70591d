"""Stage 10: a fixed number of workgroups."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import Capabilities, tunable
from webmm.kernels.gemm.blocked import RegisterTiled
from webmm.kernels.product import Grid
from webmm.problems.gemm import Gemm

HELD = 3  # workgroups that share a multiprocessor at a time: 132 of these on an H200


@dataclass(frozen=True)
class Persistent(RegisterTiled):
    """As `pipelined` with registers; each workgroup walks over tiles until none is left."""

    name = "persistent"
    follows = "pipelined"
    summary = "a fixed number of workgroups walk over the tiles"

    workgroups: int = tunable(HELD * 132, (132, 264, 396, 528, 792), "workgroups per matrix")

    @classmethod
    def on(cls, device: Capabilities) -> Persistent:
        """Return the stage with as many workgroups as run at once, where a probe showed it."""
        return cls(workgroups=HELD * device.workgroups) if device.workgroups else cls()

    @property
    def grid(self) -> Grid:
        """At most `workgroups`, each taking every workgroups-th tile."""
        return Grid(self.bm, self.bn, at_most=self.workgroups)

    def iterations(self, problem: Gemm) -> int:
        """Return how often the loops of an invocation run: over its tiles, and over k in each."""
        tiles = -(-self.grid.tiles(problem) // min(self.workgroups, self.grid.tiles(problem)))
        return tiles * (2 + super().iterations(problem))
