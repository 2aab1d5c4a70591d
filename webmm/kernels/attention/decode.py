"""For few queries: the keys are divided among workgroups, whose results a second dispatch combines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from webmm.dtypes import F32
from webmm.kernels.attention.base import (
    FOUR,
    AttentionChoices,
    AttentionKernel,
    HeldRows,
    mask_bytes,
    o_bytes,
    q_bytes,
)
from webmm.kernels.base import Binding, Capabilities, Kernel, Scratch, Texture, ceil_div, fold, tunable
from webmm.kernels.sizes import folded
from webmm.problems.attention import Attention

PARTIAL = "partial"
CHUNK = 8  # columns of two bytes that a lane loads at once
SPLITS = (1, 2, 4, 8, 16, 32, 64)
SPLITS_DOC = "workgroups among which the keys are divided"
MOST_COMBINED = 256  # invocations that combine the parts of a query


def adders(values: int, splits: int) -> int:
    """Return how many invocations combine the parts of a vec4, of rows of `values`."""
    most = min(splits, MOST_COMBINED * FOUR // values)
    return 1 << (most.bit_length() - 1)


def partial_bytes(values: int, splits: int, problem: Attention) -> int:
    """Return the bytes of the partial results of a head: rows of so many values, with a maximum and a sum."""
    return F32.itemsize * (values + FOUR) * splits * problem.queries


def whole_parts(values: int, splits: int) -> tuple[bool, str]:
    """Return the constraint that each of them has as many parts."""
    each = adders(values, splits)
    return splits % each == 0, f"splits = {splits} must be a multiple of {each}: each adder combines as many"


@dataclass(frozen=True)
class Decode(HeldRows):
    """Each group of `sharers` lanes reads keys of its own, once for `tm` queries of all heads that share them.

    Dao et al., Flash-Decoding for long-context inference (2023).
    """

    name = "decode"
    follows = "online"
    summary = "for few queries: keys divided among lanes and workgroups"
    exact = True

    size: int = tunable(128, (64, 128, 256), "invocations of a workgroup")
    lanes: int = tunable(32, (8, 16, 32, 64), "lanes of a subgroup", most=128)
    sharers: int = tunable(8, (2, 4, 8, 16), "lanes that share a key", most=64)
    tm: int = tunable(4, (1, 2, 4, 8), "queries, of all heads that share keys, of a workgroup")
    unroll: int = tunable(2, (1, 2, 3, 4), "keys that these lanes load at once")
    splits: int = tunable(1, SPLITS, SPLITS_DOC)
    chunk: int = tunable(FOUR, (FOUR, CHUNK), "adjacent columns of k and v that a lane loads, if these have two bytes")
    prefetch: str = tunable("none", ("none", "k"), "rows of the next step that it loads during this one")

    @classmethod
    def on(cls, device: Capabilities) -> Decode:
        """Return the stage for the device's subgroups."""
        lanes = device.subgroup_size or cls().lanes
        return cls(lanes=lanes, sharers=min(cls().sharers, lanes))

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of subgroups."""
        return (self.size, 1, 1)

    @property
    def subgroup(self) -> int:
        """Lanes of a subgroup."""
        return self.lanes

    @property
    def workgroup_bytes(self) -> int:
        """A row of the result for each query and subgroup, its largest score and its sum."""
        return self.tm * self.size // self.lanes * (4 * self.values + 8)

    @property
    def owners(self) -> int:
        """The lanes that have scores of different queries, of those that share a key."""
        return min(self.tm, self.sharers)

    @property
    def halvings(self) -> int:
        """The exchanges after each of which a lane has half of the scores."""
        return self.owners.bit_length() - 1

    @property
    def tile_k(self) -> int:
        """The keys of all lanes in a step."""
        return self.size // self.sharers * self.unroll

    @property
    def inner_step(self) -> int:
        """The keys that a group of lanes loads at once."""
        return self.unroll

    def together(self, query: int, queries: int) -> range:
        """Return all queries: they share the keys that any of them sees."""
        del query
        return range(queries)

    def team(self, key: int, count: int) -> int:
        """Return the group of lanes, of those of all splits, that has a key."""
        groups, share = self.size // self.sharers, ceil_div(count, self.splits)
        return key // share * groups + key % share % groups

    def moved_for(self, problem: Attention) -> float:
        """Count keys once for all queries of a workgroup, and partial results."""
        p = problem
        tiles = ceil_div(p.group * p.queries, self.tm) / p.group * p.tile_pairs(p.queries)
        keys = tiles * (p.width + p.value_width) * p.dtype.itemsize
        return self.splits * q_bytes(p) + mask_bytes(p) + keys + (self.partial_bytes(p) or o_bytes(p))

    def chunked(self, spec: AttentionChoices, x: str) -> bool:
        """Tell whether k, or v, is bound by chunks of words."""
        return self.chunk == CHUNK and spec.dtype.itemsize == 2 and (spec.vec_k if x == "k" else spec.vec_v)

    def ahead(self, x: str) -> bool:
        """Tell whether the next step's rows of k, or v, are loaded during a step."""
        return self.prefetch == x

    def vector(self, x: str) -> int:
        """Return a chunk for k and v, and a vec4 for the others."""
        return self.chunk if x in ("k", "v") else super().vector(x)

    def partial_bytes(self, problem: Attention) -> int:
        """Return the bytes of the partial results of a head, if there are any."""
        return partial_bytes(self.values, self.splits, problem) if self.splits > 1 else 0

    @property
    def after(self) -> tuple[Kernel[Attention], ...]:
        """The dispatch that combines the results, if keys are divided."""
        return (Combine(self.values, self.splits),) if self.splits > 1 else ()

    def scratch(self, problem: Attention) -> tuple[Texture | Scratch, ...]:
        """A row of the result of each query and split, with its largest score and its sum."""
        nbytes = self.partial_bytes(problem) * problem.heads * problem.batch
        return (Scratch(PARTIAL, nbytes),) if self.splits > 1 else ()

    def scratch_rule(self, problem: Attention) -> dict[str, Any]:
        """Return the rule of their bytes."""
        del problem
        each = 4 * (self.values + FOUR) * self.splits
        return {PARTIAL: f"{each} * queries * heads * entries"} if self.splits > 1 else {}

    def dispatch(self, problem: Attention) -> tuple[int, int, int]:
        """Return the workgroup counts (x, y, z): for each head of k, the tiles of its queries, in `splits` parts."""
        p = problem
        return fold(ceil_div(p.group * p.queries, self.tm) * p.kv_heads * p.batch * self.splits)

    def grid_rule(self, spec: Any) -> dict[str, Any] | None:
        """Return the rule of `dispatch`, for hosts in other languages."""
        del spec
        return folded(f"ceil(group * queries / {self.tm}) * heads / group * entries * {self.splits}")

    def bindings(self, spec: AttentionChoices) -> Iterator[Binding]:
        """Yield the bindings of any stage; with several splits, partial results take the place of o."""
        for each in super().bindings(spec):
            if each.name == "o" and self.splits > 1:
                yield replace(each, name=PARTIAL, wgsl_type="array<vec4f>")
            elif each.name in ("k", "v") and self.chunked(spec, each.name):
                yield replace(each, wgsl_type="array<vec4<u32>>")
            else:
                yield each

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require whole subgroups of whole groups, and whole rows for a group."""
        yield from super().constraints()
        yield self.size % self.lanes == 0, f"size = {self.size} must be a multiple of lanes = {self.lanes}"
        yield self.lanes % self.sharers == 0, f"lanes = {self.lanes} must be a multiple of sharers = {self.sharers}"
        yield whole_parts(self.values, self.splits)
        for name in ("columns", "values"):
            value, least = getattr(self, name), self.chunk * self.sharers
            yield value % least == 0, f"{name} = {value} must be a multiple of {least}: {self.chunk} for each sharer"

    def iterations(self, problem: Attention) -> int:
        """Return the steps over the keys of a split."""
        return ceil_div(ceil_div(problem.keys, self.splits), self.tile_k)


@dataclass(frozen=True)
class Combine(AttentionKernel):
    """The second dispatch: the results of all parts of the keys, weighted by their largest scores."""

    name = "combine"
    summary = "results of parts of the keys to results"

    values: int = tunable(64, (32, 64, 96, 128, 256), "columns of v and o", most=256)
    splits: int = tunable(2, SPLITS, SPLITS_DOC)

    @property
    def adders(self) -> int:
        """Invocations that share a vec4 of a result."""
        return adders(self.values, self.splits)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require as many parts for each adder."""
        yield from super().constraints()
        yield whole_parts(self.values, self.splits)

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A row of the result, by the adders of each of its vec4."""
        return (self.values // FOUR, self.adders, 1)

    @property
    def workgroup_bytes(self) -> int:
        """A result of each adder, with its largest score and its sum."""
        return self.adders * (4 * self.values + 8)

    def moved_for(self, problem: Attention) -> float:
        """Return the bytes of the partial results and of o."""
        return partial_bytes(self.values, self.splits, problem) + o_bytes(problem)

    @property
    def tile_v(self) -> int:
        """All columns."""
        return self.values

    def bindings(self, spec: AttentionChoices) -> Iterator[Binding]:
        """Yield the partial results, and o."""
        yield from self.numbered({PARTIAL: "array<vec4f>", "o": spec.out_dtype.array(spec.vec_o, shared=True)})
