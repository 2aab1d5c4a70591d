"""Register tiles over workgroup tiles, for any op: the tunables of `shaders/common/register_tiles.wgsl`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from webmm.kernels.base import P, tunable
from webmm.kernels.product import Tiled


@dataclass(frozen=True)
class RegisterTiles(Tiled[P]):
    """A (tm, tn) tile of C per invocation in a (bm, bn) tile per workgroup, with bk inner elements per step."""

    bm: int = tunable(64, (32, 64, 128), "rows of C per workgroup")
    bn: int = tunable(128, (32, 64, 128), "columns of C per workgroup")
    bk: int = tunable(16, (8, 16, 32), "inner elements per step")
    tm: int = tunable(8, (4, 8), "rows of C per invocation")
    tn: int = tunable(8, (4, 8, 16), "columns of C per invocation")
    unroll: int = tunable(16, (1, 4, 8, 16), "inner elements multiplied per iteration of the inner loop, at most BK")
    group: int = tunable(8, (1, 8), "rows of tiles in a group; workgroups of a group share tiles of B in cache")

    @cached_property
    def wx(self) -> int:
        """Invocations along N."""
        return self.bn // self.tn

    @cached_property
    def wy(self) -> int:
        """Invocations along M."""
        return self.bm // self.tm

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of invocations; the template lays them out as (wy, wx)."""
        return (self.sharers, 1, 1)

    @cached_property
    def sharers(self) -> int:
        """Invocations that share a tile."""
        return self.wx * self.wy

    @cached_property
    def a_loads(self) -> int:
        """vec4 of A that each invocation loads per step."""
        return self.bm * self.bk // 4 // self.sharers

    @cached_property
    def b_loads(self) -> int:
        """vec4 of B that each invocation loads per step."""
        return self.bn * self.bk // 4 // self.sharers

    def iterations(self, problem: P) -> int:
        """Return how many iterations an invocation's loops run: over k, and over the tile if that is not unrolled."""
        inner = 0 if self.unroll == self.bk else self.bk // self.unroll + 1
        return super().iterations(problem) * (1 + inner)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require whole vec4, and the same number of loads for every invocation."""
        for name in ("tm", "tn", "bk"):
            value = getattr(self, name)
            yield value % 4 == 0, f"{name} = {value} must be a multiple of 4: fragments are vec4"
        yield self.bm % self.tm == 0, f"bm = {self.bm} must be a multiple of tm = {self.tm}"
        yield self.bn % self.tn == 0, f"bn = {self.bn} must be a multiple of tn = {self.tn}"
        for name, size in (("A", self.bm), ("B", self.bn)):
            vectors = size * self.bk // 4
            yield (
                vectors % self.sharers == 0,
                f"the tile of {name} has {vectors} vec4, which {self.sharers} invocations cannot share evenly",
            )
        for name in ("bm", "bn", "bk"):
            size = getattr(self, name)
            yield (
                max(size, self.sharers) % min(size, self.sharers) == 0,
                f"{self.sharers} invocations do not fill lines of {name} = {size} evenly",
            )
        yield self.bk % self.unroll == 0, f"bk = {self.bk} must be a multiple of unroll = {self.unroll}"
