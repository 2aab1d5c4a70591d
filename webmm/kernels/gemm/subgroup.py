"""Register tiles that lanes fill by shuffles within a subgroup, not from workgroup memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from webmm.kernels.base import Capabilities, tunable
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.one_subgroup import OneSubgroup
from webmm.kernels.product import Grid
from webmm.problems.gemm import Gemm

INNER = 4  # inner elements per step: a vec4 of A


@dataclass(frozen=True)
class Subgroup(OneSubgroup[Gemm], GemmKernel):
    """A (tm, tn) tile of C per lane, with the lanes in `ly` rows; a workgroup is one subgroup."""

    name = "subgroup"
    follows = "blocked"
    summary = "register tiles filled by shuffles within a subgroup, not from workgroup memory"
    a_vector_axis = "k"
    b_vector_axis = "n"

    lanes: int = tunable(8, (4, 8, 16, 32, 64, 128), "lanes of a workgroup, which is one subgroup")
    ly: int = tunable(2, (1, 2, 4, 8), "rows of lanes")
    tm: int = tunable(8, (4, 8), "rows of C per lane")
    tn: int = tunable(8, (4, 8, 16), "columns of C per lane")
    group: int = tunable(8, (1, 8), "rows of tiles in a group; workgroups of a group share tiles of B in cache")

    @classmethod
    def on(cls, device: Capabilities) -> Subgroup:
        """Return the stage with all lanes of the device's subgroups, in a tile that is about square."""
        lanes = device.subgroup_size or cls().lanes
        return cls(lanes=lanes, ly=max(ly for ly in (1, 2, 4, 8) if ly * ly <= lanes))

    @property
    def lx(self) -> int:
        """Columns of lanes."""
        return self.lanes // self.ly

    @property
    def grid(self) -> Grid:
        """One workgroup per tile."""
        return Grid(self.ly * self.tm, self.lx * self.tn)

    @property
    def inner_step(self) -> int:
        """One vec4 of A."""
        return INNER

    @property
    def a_loads(self) -> int:
        """vec4 of A, one row each, that a lane loads per step."""
        return -(-self.grid.tile_m // self.lanes)

    @property
    def b_loads(self) -> int:
        """vec4 of B that a lane loads per step, which has four rows of B."""
        return -(-self.grid.tile_n // self.lanes)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require whole vec4 of C, and rows of A and vec4 of B that the lanes can share evenly."""
        yield self.tn % 4 == 0, f"tn = {self.tn} must be a multiple of 4: fragments are vec4"
        yield self.lanes % self.ly == 0, f"{self.lanes} lanes do not make {self.ly} rows"
        for what, count in (("rows of A", self.grid.tile_m), ("vec4 of B", self.grid.tile_n)):
            yield (
                count % self.lanes == 0 or self.lanes % count == 0,
                f"{count} {what} cannot be loaded evenly by {self.lanes} lanes",
            )
