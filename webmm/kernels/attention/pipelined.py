"""As `blocked`, with the next tiles on their way while these are multiplied, and teams that divide the keys."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.attention.base import FOUR
from webmm.kernels.attention.blocked import Blocked
from webmm.kernels.base import ceil_div, tunable
from webmm.problems.attention import Attention


@dataclass(frozen=True)
class Pipelined(Blocked):
    """Each team has its own maximum, sum and result, and every `teams`-th tile of keys; they combine at the end.

    Dao, FlashAttention-2 (2023), §3.3, divides queries instead, since its weights stay in registers.
    """

    name = "pipelined"
    follows = "blocked"
    summary = "the next tiles are loaded while these are multiplied"

    columns: int = tunable(64, (64, 256), "columns of q and k", most=256)
    values: int = tunable(64, (64, 256), "columns of v and o", most=256)
    bq: int = tunable(32, (16, 32, 64, 128), "queries of a workgroup")
    bk: int = tunable(32, (16, 32, 64), "keys of a team in a step")
    tm: int = tunable(4, (1, 2, 4, 8), "queries of an invocation")
    wx: int = tunable(8, (4, 8, 16), "invocations of a team that share a query")
    span: int = tunable(16, (16, 32, 64, 128, 256), "columns of q and k in workgroup memory at a time")
    combine: str = tunable(
        *("tree", ("tree", "subgroup", "shuffle")),
        "maxima and weights of a query in workgroup memory, or maxima by shuffles, or both",
    )
    direct: str = tunable("v", ("v", "none", "kv"), "operands that are read without tiles in workgroup memory")
    teams: int = tunable(1, (1, 2), "parts of the keys that invocations have")
    unroll: int = tunable(2, (1, 2, 4), "steps of inner loops that are written out")

    @property
    def tiles(self) -> str:
        """The operands of which tiles are in workgroup memory: without k, q only if whole rows of it fit."""
        whole = "q" if self.at_once == self.columns else ""
        return {"none": "qkv", "v": "qk", "kv": whole}[self.direct]

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of invocations, team by team."""
        return (self.parts * self.wy, 1, 1)

    @property
    def parts(self) -> int:
        """Those of all teams."""
        return self.wx * self.teams

    @property
    def handed(self) -> int:
        """The vec4 of a row of weights; teams need some to combine."""
        if self.combine != "shuffle":
            return self.tile_k // FOUR + 1
        return self.parts if self.teams > 1 else 0

    @property
    def tile_k(self) -> int:
        """The keys of a step of all teams."""
        return self.bk * self.teams

    def team(self, key: int, count: int) -> int:
        """Return the team that has a key."""
        del count
        return key // self.bk % self.teams

    def unrolled(self, count: int) -> int:
        """Return a divisor of `count`."""
        return next(n for n in (4, 2, 1) if n <= self.unroll and count % n == 0)

    def iterations(self, problem: Attention) -> int:
        """Return the steps over keys, and in each those over columns and keys."""
        return ceil_div(problem.keys, self.tile_k) * (4 + self.columns // FOUR + self.bk // FOUR)
