"""Tiles for CPU adapters, which run the lanes of a subgroup as the elements of a vector register."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from webmm.kernels.base import Kernel, P, tunable
from webmm.kernels.product import Grid

INNER = 4  # inner elements per step: a vec4 of A


@dataclass(frozen=True)
class LaneTiles(Kernel[P]):
    """A (tm, lanes·tn) tile of C per workgroup: the tunables of `shaders/common/lanes.wgsl`."""

    lanes: int = tunable(8, (4, 8), "lanes of a workgroup, which is one subgroup", most=16)
    tm: int = tunable(32, (1, 4, 16, 32), "rows of C per workgroup", most=32)
    tn: int = tunable(8, (4, 8, 16), "columns of C per invocation")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """One subgroup."""
        return (self.lanes, 1, 1)

    @property
    def subgroup(self) -> int:
        """Lanes that a subgroup must have at least."""
        return self.lanes

    @property
    def grid(self) -> Grid:
        """One workgroup per tile."""
        return Grid(self.tm, self.lanes * self.tn)

    @property
    def inner_step(self) -> int:
        """One vec4 of A."""
        return INNER

    @property
    def a_loads(self) -> int:
        """vec4 of A that each lane loads per step."""
        return -(-self.tm // self.lanes)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require whole vec4 of C, and rows of A that the lanes can share evenly."""
        yield self.tn % 4 == 0, f"tn = {self.tn} must be a multiple of 4: fragments are vec4"
        yield (
            self.tm < self.lanes or self.tm % self.lanes == 0,
            f"tm = {self.tm} rows cannot be loaded evenly by {self.lanes} lanes",
        )
