"""For CPU adapters: the lanes of a subgroup hold keys, then columns of v, for a tile of queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from webmm.dtypes import F32
from webmm.kernels.attention.base import (
    FOUR,
    READ,
    AttentionChoices,
    AttentionKernel,
    mask_bytes,
    o_bytes,
    others,
    q_bytes,
)
from webmm.kernels.attention.packed import DEPTH, K_TEXTURE, V_TEXTURE, PackK, PackV
from webmm.kernels.base import Binding, Kernel, Scratch, Texture, ceil_div, tunable
from webmm.kernels.one_subgroup import OneSubgroup
from webmm.kernels.sizes import Condition
from webmm.problems.attention import Attention


@dataclass(frozen=True)
class CpuLanes(OneSubgroup[Attention], AttentionKernel):
    """A tile of `tm` queries per workgroup: one subgroup, whose lanes broadcast q and weights to each other."""

    name = "cpu_lanes"
    follows = "online"
    summary = "for CPU adapters: rows broadcast within a subgroup"
    edges = "qk"

    tm: int = tunable(16, (1, 4, 8, 16, 32), "queries of a workgroup")
    tk: int = tunable(8, (4, 8, 16), "keys of a lane in a step")
    tn: int = tunable(8, (4, 8, 12, 16, 32), "columns of v of a lane", most=64)
    load: str = tunable("texture", ("texture", "buffer"), "k and v from textures, to which they are copied, or not")

    @property
    def workgroup_bytes(self) -> int:
        """The weights of a step."""
        return 4 * self.tm * self.tile_k

    @property
    def depth(self) -> int:
        """Texels along a side of a layer of the textures."""
        return DEPTH

    @property
    def before(self) -> tuple[Kernel[Attention], ...]:
        """The copies of k and v."""
        return (PackK(), PackV()) if self.load == "texture" else ()

    def scratch(self, problem: Attention) -> tuple[Texture | Scratch, ...]:
        """The textures."""
        return tuple(one for pack in self.before for one in pack.scratch(problem))

    def scratch_rule(self, problem: Attention) -> dict[str, Any]:
        """Return the rules of their sizes."""
        return {name: rule for pack in self.before for name, rule in pack.scratch_rule(problem).items()}

    def bindings(self, spec: AttentionChoices) -> Iterator[Binding]:
        """Yield q, k, v, o, and the mask and lengths if there are any; textures in the place of k and v."""
        if self.load == "buffer":
            yield from super().bindings(spec)
            return
        types = {
            "q": spec.dtype.array(spec.vec_q),
            K_TEXTURE: READ,
            V_TEXTURE: READ,
            "o": spec.out_dtype.array(spec.vec_o, shared=True),
        }
        yield from self.numbered(types | others(spec))

    @property
    def tile_q(self) -> int:
        """Its queries."""
        return self.tm

    @property
    def tile_k(self) -> int:
        """The keys of all lanes in a step."""
        return self.lanes * self.tk

    @property
    def inner_step(self) -> int:
        """A step of all lanes."""
        return self.tile_k

    def begins(self, first: int) -> int:
        """Return the first key of the step that has it."""
        return first // self.tile_k * self.tile_k

    def part(self, key: int, count: int) -> int:
        """Return the lane whose sum has a key."""
        del count
        return key // FOUR % self.lanes

    @property
    def tile_v(self) -> int:
        """The columns of all lanes."""
        return self.lanes * self.tn

    @property
    def a_loads(self) -> int:
        """vec4 of q, or of weights, that each lane loads per step."""
        return ceil_div(self.tm, self.lanes)

    def iterations(self, problem: Attention) -> int:
        """Return the steps over keys, and in each those over columns, and over keys again."""
        p = problem
        return ceil_div(p.keys, self.tile_k) * (3 + ceil_div(p.width, FOUR) + self.tile_k // FOUR)

    def moved_for(self, problem: Attention) -> float:
        """Count k and v as float32 if they are in textures."""
        p = problem
        size = F32.itemsize if self.load == "texture" else p.dtype.itemsize
        keys = p.tile_pairs(self.tm) * (p.width + p.value_width)
        return q_bytes(p) + o_bytes(p) + mask_bytes(p) + keys * size

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require whole vec4, and rows that lanes can share evenly."""
        for name in ("tk", "tn"):
            yield getattr(self, name) % FOUR == 0, f"{name} = {getattr(self, name)} must be a multiple of 4: vec4"
        even = self.tm < self.lanes or self.tm % self.lanes == 0
        yield even, f"tm = {self.tm} rows cannot be loaded evenly by {self.lanes} lanes"

    def needs(self) -> Iterator[Condition]:
        """Yield that the rows of v fit."""
        yield Condition("value_width", at_most=self.tile_v)

    def unsuited(self, problem: Attention) -> str | None:
        """Tell whether the rows of v are too long."""
        if problem.value_width <= self.tile_v:
            return None
        return f"holds {self.tile_v} columns of v, not {problem.value_width}"
