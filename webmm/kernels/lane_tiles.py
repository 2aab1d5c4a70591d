"""Tiles for CPU adapters, which run the lanes of a subgroup as the elements of a vector register."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from webmm.kernels.base import P, ceil_div, tunable
from webmm.kernels.one_subgroup import OneSubgroup
from webmm.kernels.product import Grid
from webmm.kernels.traffic import Traffic

INNER = 4  # inner elements per step: a vec4 of A


@dataclass(frozen=True)
class LaneTiles(OneSubgroup[P]):
    """A (tm, lanes·tn) tile of C per workgroup: the tunables of `shaders/common/lanes.wgsl`."""

    tm: int = tunable(32, (1, 4, 16, 32), "rows of C per workgroup", most=32)
    tn: int = tunable(8, (4, 8, 16), "columns of C per invocation")

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

    def traffic(self, problem: P) -> Traffic:
        """Count a step: each lane loads its rows of A, which all lanes get, and a vec4 of each row of B."""
        p: Any = problem
        s: Any = self.specialise(problem)
        tiles, sums = self.grid.tiles(p) * p.batch, self.tm * self.tn
        texels, of_b = self.of_b(problem)
        result = p.m * p.n * p.batch * p.out_dtype.itemsize
        return Traffic(
            workgroups=tiles,
            invocations=self.lanes,
            steps=ceil_div(p.k, INNER),
            fmas=INNER * sums,
            vector_loads=(self.a_loads if s.vec_a else 0) + (of_b / 4 if s.vec_b else 0),
            scalar_loads=(0 if s.vec_a else INNER * self.a_loads) + (0 if s.vec_b and of_b else of_b),
            registers=sums + self.tn + INNER * self.a_loads,
            loaded=(self.tm + self.lanes * self.tn) * INNER * p.dtype.itemsize,
            read=p.bytes - result,
            written=result,
            waste=self.grid.tiles(p) * sums * self.lanes / (p.m * p.n),
            vector_stores=sums / 4 if s.vec_c else 0,
            scalar_stores=0 if s.vec_c else sums,
            texels=texels,
            shuffles=self.tm,
        )

    def of_b(self, problem: P) -> tuple[float, float]:
        """Return how many vec4 of B an invocation loads from a texture in a step, and how many elements from B."""
        del problem
        return 0, INNER * self.tn

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require whole vec4 of C, and rows of A that the lanes can share evenly."""
        yield self.tn % 4 == 0, f"tn = {self.tn} must be a multiple of 4: fragments are vec4"
        yield (
            self.tm < self.lanes or self.tm % self.lanes == 0,
            f"tm = {self.tm} rows cannot be loaded evenly by {self.lanes} lanes",
        )
