"""A product, the softmax of its rows, and another product, with all scores in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from webmm.dtypes import F32
from webmm.kernels.attention.base import FOUR, AttentionChoices, AttentionKernel, o_bytes, others
from webmm.kernels.base import INDEX_LIMIT, Binding, Kernel, Scratch, Texture, ceil_div, fold, tunable
from webmm.kernels.sizes import folded
from webmm.problems.attention import Attention

SCORES = "scores"


@dataclass(frozen=True)
class Tile(AttentionKernel):
    """A dispatch in which an invocation computes 4 × 4 elements, of a tile of `wy` × `wx` such fragments."""

    wx: int = tunable(8, (8, 16), "fragments of a workgroup along its columns")
    wy: int = tunable(8, (4, 8, 16), "along its rows")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """An invocation per fragment."""
        return (self.wx, self.wy, 1)

    @property
    def tile_q(self) -> int:
        """The rows of its fragments."""
        return FOUR * self.wy

    def dispatch(self, problem: Attention) -> tuple[int, int, int]:
        """Return the workgroup counts (x, y, z): the tiles of each head."""
        p = problem
        down, across = ceil_div(p.queries, self.tile_q), ceil_div(self.across(p), FOUR * self.wx)
        return fold(down * across * p.heads * p.batch)

    def grid_rule(self, spec: Any) -> dict[str, Any] | None:
        """Return the rule of `dispatch`, for hosts in other languages."""
        del spec
        across = f"ceil({self.along} / {FOUR * self.wx})"
        return folded(f"ceil(queries / {self.tile_q}) * {across} * heads * entries")

    @property
    def along(self) -> str:
        """The size of its columns."""
        return "value_width"

    def across(self, problem: Attention) -> int:
        """Return the columns of the result."""
        return problem.value_width


@dataclass(frozen=True)
class ThreeCalls(Tile):
    """The last product, after dispatches for the scores and their softmax."""

    name = "three_calls"
    follows = ""
    summary = "a product, a softmax and a product, with the scores in memory"
    normalised = True

    lanes: int = tunable(64, (1, 32, 64, 256), "invocations that share a row of the softmax")

    @property
    def tile_v(self) -> int:
        """The columns of its fragments."""
        return FOUR * self.wx

    @property
    def before(self) -> tuple[Kernel[Attention], ...]:
        """The scores, and their softmax."""
        return Scores(self.wx, self.wy), Softmax(self.lanes)

    @property
    def inner_step(self) -> int:
        """All keys: a row has its maximum and sum before it is multiplied."""
        return INDEX_LIMIT

    def moved_for(self, problem: Attention) -> float:
        """Count four weights and a vec4 of v of each invocation and key, and o."""
        p = problem
        columns = self.wx * ceil_div(p.value_width, FOUR * self.wx)
        loads = p.tile_pairs(self.tile_q) * self.wy * columns * FOUR * (F32.itemsize + p.dtype.itemsize)
        return loads + o_bytes(p)

    def scratch(self, problem: Attention) -> tuple[Texture | Scratch, ...]:
        """A score for each query and key of every head."""
        p = problem
        return (Scratch(SCORES, 4 * p.queries * p.keys * p.heads * p.batch),)

    def scratch_rule(self, problem: Attention) -> dict[str, Any]:
        """Return the rule of their bytes."""
        del problem
        return {SCORES: "4 * queries * keys * heads * entries"}

    def bindings(self, spec: AttentionChoices) -> Iterator[Binding]:
        """Yield the weights, v, o, and the lengths if there are any."""
        types = {
            SCORES: "array<f32>",
            "v": spec.dtype.array(spec.vec_v),
            "o": spec.out_dtype.array(spec.vec_o, shared=True),
        }
        yield from self.numbered(types | ({"lengths": "array<i32>"} if spec.lengths else {}))


@dataclass(frozen=True)
class Scores(Tile):
    """The first product, with the factor, the bound and the mask of scores."""

    name = "scores"
    summary = "q times k transposed"

    @property
    def along(self) -> str:
        """The size of its columns."""
        return "keys"

    def across(self, problem: Attention) -> int:
        """Return the columns of the result."""
        return problem.keys

    def moved_for(self, problem: Attention) -> float:
        """Count four rows of q and of k of each invocation, the mask, and all scores, also those that nobody sees."""
        p = problem
        down, across = ceil_div(p.queries, self.tile_q) * self.wy, ceil_div(p.keys, self.tile_k) * self.wx
        mask = 0 if p.mask_dtype is None else p.mask_dtype.itemsize
        return down * across * 2 * FOUR * p.width * p.dtype.itemsize + p.queries * p.keys * (F32.itemsize + mask)

    @property
    def tile_k(self) -> int:
        """The columns of its fragments."""
        return FOUR * self.wx

    def iterations(self, problem: Attention) -> int:
        """Return the steps over the columns of q and k."""
        return ceil_div(problem.width, FOUR)

    def bindings(self, spec: AttentionChoices) -> Iterator[Binding]:
        """Yield q, k, the scores, and the mask and lengths if there are any."""
        types = {"q": spec.dtype.array(spec.vec_q), "k": spec.dtype.array(spec.vec_k), SCORES: "array<f32>"}
        yield from self.numbered(types | others(spec), SCORES)


@dataclass(frozen=True)
class Softmax(AttentionKernel):
    """The softmax of each row of the scores, in place, by the invocations of a workgroup."""

    name = "softmax"
    summary = "scores to weights"

    lanes: int = tunable(64, (1, 32, 64, 256), "invocations of a row")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of invocations."""
        return (self.lanes, 1, 1)

    @property
    def workgroup_bytes(self) -> int:
        """The partial results of a row's invocations."""
        return 4 * self.lanes if self.lanes > 1 else 0

    def moved_for(self, problem: Attention) -> float:
        """Count each score that a query sees three times, and its weight."""
        return FOUR * F32.itemsize * problem.pairs

    @property
    def tile_k(self) -> int:
        """A key per invocation."""
        return self.lanes

    def iterations(self, problem: Attention) -> int:
        """Return the steps of three passes over a row."""
        return 3 * ceil_div(problem.keys, self.lanes)

    def bindings(self, spec: AttentionChoices) -> Iterator[Binding]:
        """Yield the scores, and the lengths if there are any."""
        yield from self.numbered({SCORES: "array<f32>"} | ({"lengths": "array<i32>"} if spec.lengths else {}), SCORES)
