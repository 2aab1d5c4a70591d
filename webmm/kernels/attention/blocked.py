"""Tiles of q, k, v and weights in workgroup memory, and of scores and results in registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from webmm.kernels.attention.base import FOUR, HeldRows, mask_bytes, o_bytes
from webmm.kernels.base import Capabilities, ceil_div, tunable
from webmm.problems.attention import Attention

BYTES = 16  # of a vec4


@dataclass(frozen=True)
class Blocked(HeldRows):
    """A tile of `bq` queries per workgroup, which walks along the keys in tiles of `bk`.

    Dao, Fu, Ermon, Rudra and Ré, FlashAttention (2022); the loop over keys inside, as Dao, FlashAttention-2 (2023).
    """

    name = "blocked"
    follows = "online"
    summary = "tiles in workgroup memory and in registers"
    edges = "qk"

    bq: int = tunable(64, (8, 16, 32, 64, 128), "queries of a workgroup")
    bk: int = tunable(32, (16, 32, 64), "keys of a step")
    tm: int = tunable(4, (1, 2, 4, 8), "queries of an invocation")
    wx: int = tunable(8, (4, 8, 16), "invocations that share a query")
    span: int = tunable(64, (16, 32, 64, 128, 256), "columns of q and k in workgroup memory at a time")
    combine: str = tunable("tree", ("tree", "subgroup"), "maxima of a query in workgroup memory, or by shuffles")

    @classmethod
    def on(cls, device: Capabilities) -> Blocked:
        """Return the stage with half the queries where the device has too little workgroup memory for all of them."""
        made = cls()
        fits = made.workgroup_bytes <= device.limit("max-compute-workgroup-storage-size")
        return made if fits else cls(bq=made.bq // 2)

    @property
    def wy(self) -> int:
        """Invocations along the queries."""
        return self.bq // self.tm

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of invocations; the template lays them out as (wy, wx)."""
        return (self.wx * self.wy, 1, 1)

    @property
    def subgroup(self) -> int:
        """The lanes that exchange maxima."""
        return 0 if self.combine == "tree" else self.wx

    @property
    def tiles(self) -> str:
        """The operands of which tiles are in workgroup memory; others are read directly."""
        return "qkv"

    @property
    def parts(self) -> int:
        """The invocations that have a part of a query's keys."""
        return self.wx

    @property
    def handed(self) -> int:
        """The vec4 of a row of weights in workgroup memory, padded by one; 0 if there are none."""
        return self.tile_k // FOUR + 1

    @property
    def workgroup_bytes(self) -> int:
        """The tiles, rows of all but v padded by a vec4, and partial maxima."""
        sizes = {x: self.tile(x) for x in self.tiles}
        vectors = sum(count * (width + (x != "v")) for x, (count, width) in sizes.items())
        maxima = 4 * self.bq * self.parts if self.combine == "tree" else 0
        return BYTES * (vectors + self.bq * self.handed) + maxima

    def tile(self, x: str) -> tuple[int, int]:
        """Return the rows of a tile of q, k or v, and the vec4 of a row."""
        count = self.bq if x == "q" else self.tile_k
        return count, (self.values if x == "v" else self.at_once) // FOUR

    @property
    def at_once(self) -> int:
        """The columns of q and k in workgroup memory."""
        return min(self.span, self.columns)

    @property
    def tile_q(self) -> int:
        """Its queries."""
        return self.bq

    @property
    def tile_k(self) -> int:
        """The keys of a step."""
        return self.bk

    @property
    def inner_step(self) -> int:
        """The keys after which there are a new maximum and new sums."""
        return self.bk

    def part(self, key: int, count: int) -> int:
        """Return the invocation, of those that share a query, whose sum has a key."""
        return self.team(key, count) * self.wx + key // FOUR % self.wx

    @property
    def tk(self) -> int:
        """Keys of an invocation in a step."""
        return self.bk // self.wx

    @property
    def tn(self) -> int:
        """Columns of v of an invocation."""
        return self.values // self.wx

    def shares(self, x: str) -> int:
        """Return the vec4 that an invocation loads of a tile, at most."""
        count, width = self.tile(x)
        return ceil_div(count * width, self.invocations)

    def moved_for(self, problem: Attention) -> float:
        """Count q again for each step if its rows are not held as a whole; what has no tile, for each invocation."""
        p, tiles = problem, problem.tile_pairs(self.bq)
        k, v = (1 if x in self.tiles else self.wy for x in "kv")
        again = tiles / self.tile_k * self.bq * (1 if "q" in self.tiles else self.parts)
        q = p.queries if "q" in self.tiles and self.at_once == self.columns else again
        loaded = (q * p.width + tiles * (k * p.width + v * p.value_width)) * p.dtype.itemsize
        return o_bytes(p) + mask_bytes(p) + loaded

    def unrolled(self, count: int) -> int:
        """Return how many of `count` steps of an inner loop are written out in each iteration."""
        del count
        return 1

    def iterations(self, problem: Attention) -> int:
        """Return the steps over keys, and in each those over columns and keys."""
        return ceil_div(problem.keys, self.bk) * (3 + self.columns // FOUR + self.bk // FOUR)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require whole vec4, and rows and columns that the invocations can share evenly."""
        yield from super().constraints()
        yield self.bq % self.tm == 0, f"bq = {self.bq} must be a multiple of tm = {self.tm}"
        yield (
            self.columns % self.at_once == 0,
            f"columns = {self.columns} must be a multiple of span = {self.span}, or at most that",
        )
        each = FOUR * self.wx
        for name in ("bk", "values"):
            value = getattr(self, name)
            yield value % each == 0, f"{name} = {value} must be a multiple of {each}: {self.wx} invocations have vec4"
