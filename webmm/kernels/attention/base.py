"""What the attention kernels share: the uniform, the bindings and the template choices.

The keys that a query sees are a range of positions, apart from those that a mask hides: `shaders/common/attention.wgsl`
computes the range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from webmm.dtypes import DType
from webmm.kernels.base import Binding, Kernel, Params, Stored, ceil_div, fold, tunable
from webmm.kernels.sizes import Assumption, Condition, folded, multiples
from webmm.problems.attention import Attention
from webmm.wgsl.params import F32, I32, U32, Vec4U, member

LOG2E = 1 / math.log(2)  # kernels compute powers of 2
FOUR = 4  # columns of a vec4
READ, WRITE = (f"texture_storage_2d_array<rgba32float, {access}>" for access in ("read", "write"))
TEXTURES = {READ: "read-only", WRITE: "write-only"}  # the access of bindings of these types
COLUMNS = (32, 64, 96, 128, 256)  # common widths; the choice of kernels computes others


@dataclass(frozen=True)
class AttentionParams:
    """The uniform of every attention kernel; offsets and strides are in elements."""

    q_strides: Vec4U = member("of q, along batch, head, token and column")
    k_strides: Vec4U = member("of k")
    v_strides: Vec4U = member("of v")
    o_strides: Vec4U = member("of o")
    mask_strides: Vec4U = member("of the mask, along batch, head, query and key")
    q_offset: U32 = member("first element of q in its buffer")
    k_offset: U32 = member("of k")
    v_offset: U32 = member("of v")
    o_offset: U32 = member("of o")
    mask_offset: U32 = member("of the mask")
    lengths_offset: U32 = member("of the lengths")
    entries: U32 = member("entries of the batch")
    heads: U32 = member("heads of q of an entry")
    group: U32 = member("heads of q for each head of k and v")
    queries: U32 = member("tokens of q")
    keys: U32 = member("tokens of k and v")
    width: U32 = member("columns of q and k")
    value_width: U32 = member("columns of v and o")
    first_key: U32 = member("position of the first key in its sequence")
    shift: I32 = member("position of the first query")
    left: I32 = member("keys that a query sees before its position")
    right: I32 = member("keys that it sees after it")
    factor: F32 = member("of q·k, times log2(e)")
    cap: F32 = member("bound of scores, times log2(e)")

    @classmethod
    def of(cls, p: Attention) -> AttentionParams:
        """Return the uniform for the problem `p`."""
        return cls(
            p.q.strides,
            p.k.strides,
            p.v.strides,
            p.o.strides,
            (0, 0, 0, 0) if p.mask is None else p.mask.strides,
            p.q.offset,
            p.k.offset,
            p.v.offset,
            p.o.offset,
            0 if p.mask is None else p.mask.offset,
            p.lengths_offset,
            p.batch,
            p.heads,
            p.group,
            p.queries,
            p.keys,
            p.width,
            p.value_width,
            p.first_key,
            p.shift,
            p.left,
            p.right,
            p.scale / p.softcap if p.softcap else p.scale * LOG2E,
            p.softcap * LOG2E,
        )


@dataclass(frozen=True)
class AttentionChoices(Stored):
    """The template choices besides the tile sizes; problems with the same choices share a shader."""

    mask: DType | None
    softcap: bool
    left: bool
    right: bool
    from_end: bool
    lengths: bool
    vec_q: bool  # bound by vec4, as the others
    vec_k: bool
    vec_v: bool
    vec_o: bool
    edge_q: bool  # the last tile extends past the last query
    edge_k: bool  # past the last key
    edge_w: bool  # the columns that an invocation or a tile holds extend past those of q and k
    edge_v: bool  # past those of v

    @property
    def types(self) -> tuple[DType, ...]:
        """The distinct types of all operands."""
        masks = () if self.mask is None else (self.mask,)
        return tuple(dict.fromkeys((self.dtype, self.out_dtype, *masks)))

    @property
    def ranged(self) -> bool:
        """Whether queries see a part of the keys, besides a mask."""
        return self.left or self.right or self.lengths


@dataclass(frozen=True)
class AttentionKernel(Kernel[Attention]):
    """A stage of the ladder. Subclasses add tunables, and say which queries, keys and columns a workgroup has."""

    op = "attention"
    params: ClassVar[type[Params]] = AttentionParams
    normalised: ClassVar[bool] = False  # whether weights are divided by their sum before they are multiplied by v
    edges: ClassVar[str] = ""  # whether its text has tests for partial tiles of queries, "q", and of keys, "k"

    @property
    def tile_q(self) -> int:
        """The queries of a workgroup."""
        return 1

    @property
    def tile_k(self) -> int:
        """The keys of a step."""
        return 1

    @property
    def tile_w(self) -> int:
        """The columns of q and k that it holds, or of a step along them."""
        return FOUR

    @property
    def tile_v(self) -> int:
        """The columns of v that it holds, or of a workgroup."""
        return FOUR

    def dispatch(self, problem: Attention) -> tuple[int, int, int]:
        """Return the workgroup counts (x, y, z): the tiles of queries of each head."""
        p = problem
        return fold(ceil_div(p.queries, self.tile_q) * p.heads * p.batch)

    def grid_rule(self, spec: Any) -> dict[str, Any] | None:
        """Return the rule of `dispatch`, for hosts in other languages."""
        del spec
        return folded(f"ceil(queries / {self.tile_q}) * heads * entries")

    def bindings(self, spec: AttentionChoices) -> Iterator[Binding]:
        """Yield q, k, v, o, and the mask and lengths if there are any."""
        types = {
            "q": spec.dtype.array(spec.vec_q),
            "k": spec.dtype.array(spec.vec_k),
            "v": spec.dtype.array(spec.vec_v),
            "o": spec.out_dtype.array(spec.vec_o, shared=True),
        }
        yield from self.numbered(types | others(spec))

    def numbered(self, types: dict[str, str], written: str = "o") -> Iterator[Binding]:
        """Yield bindings of these types by name, from number 1 on; `written` is the one that is written."""
        for number, (name, wgsl) in enumerate(types.items(), 1):
            usual = "storage" if name == written else "read-only-storage"
            yield Binding(number, name, TEXTURES.get(wgsl, usual), wgsl)

    def choices(self, problem: Attention) -> AttentionChoices:
        """Return the template choices for problems like `problem` that assume nothing of sizes."""
        p = problem
        return AttentionChoices(
            dtype=p.dtype,
            out_dtype=p.out_dtype,
            mask=p.mask_dtype,
            softcap=p.softcap != 0.0,
            left=p.left >= 0,
            right=p.right >= 0,
            from_end=p.from_end,
            lengths=p.lengths,
            vec_q=False,
            vec_k=False,
            vec_v=False,
            vec_o=False,
            edge_q=True,
            edge_k=True,
            edge_w=True,
            edge_v=True,
        )

    def assumptions(self, choices: AttentionChoices) -> Iterator[Assumption]:
        """Yield the sizes at which the arrays that it binds can be accessed by vectors, and no tile is partial."""
        bound = [binding.name for binding in self.bindings(choices)]
        for x, columns in (("q", "width"), ("k", "width"), ("v", "value_width"), ("o", "value_width")):
            if x in bound:
                strides = [f"{x}_strides.{axis}" for axis in "xyz"]
                aligned = multiples(self.vector(x), columns, f"{x}_offset", *strides)
                yield Assumption(f"vec_{x}", True, (Condition(f"{x}_strides.w", equals=1), *aligned))
        if "q" in self.edges:
            yield Assumption("edge_q", False, multiples(self.tile_q, "queries"))
        if "k" in self.edges and not choices.ranged:  # a range of keys is tested anyway
            yield Assumption("edge_k", False, multiples(self.tile_k, "keys"))
        if "q" in bound or "k" in bound:
            yield Assumption("edge_w", False, multiples(self.tile_w, "width"))
        if "v" in bound:
            yield Assumption("edge_v", False, multiples(self.tile_v, "value_width"))

    def vector(self, x: str) -> int:
        """Return how many columns of q, k, v or o it accesses at once, if these are adjacent and aligned."""
        del x
        return FOUR

    @property
    def inner_step(self) -> int:
        """The keys after which a maximum and its sums are updated."""
        return 1

    def reference(self, before: float, largest: float) -> float:
        """Return what weights are relative to after a step with this largest score: by default the running maximum."""
        return max(before, largest)

    def together(self, query: int, queries: int) -> range:
        """Return the queries whose keys its steps cover when it computes this one."""
        start = query - query % self.tile_q
        return range(start, min(start + self.tile_q, queries))

    def begins(self, first: int) -> int:
        """Return the key at which its steps begin if queries see keys from `first` on."""
        return first

    def team(self, key: int, count: int) -> int:
        """Return the number of the maximum that has a key, of `count` from the first step on; 0 if there is one."""
        del key, count
        return 0

    def part(self, key: int, count: int) -> int:
        """Return the number of the sum of weights that has it; by default a maximum has one."""
        return self.team(key, count)

    def moves(self, problem: Attention) -> float:
        """Return the bytes that the invocations of its dispatches load and store, whether or not caches serve them."""
        steps: Any = self.dispatches
        return problem.heads * problem.batch * float(sum(each.moved_for(problem) for each in steps))

    def moved_for(self, problem: Attention) -> float:
        """Return the bytes of this dispatch for each head: by default, a tile of queries reads its keys once."""
        p, size = problem, problem.dtype.itemsize
        tiles = p.tile_pairs(self.tile_q)
        return q_bytes(p) + o_bytes(p) + mask_bytes(p) + tiles * (p.width + p.value_width) * size

    def places(self, problem: Attention) -> dict[str, tuple[str, str]]:
        """Return the places of the elements of each buffer, and their numbers."""
        return problem.places

    def iterations(self, problem: Attention) -> int:
        """Return the steps over the keys."""
        return ceil_div(problem.keys, self.tile_k)


def q_bytes(problem: Attention) -> int:
    """Return the bytes of a head of q."""
    return problem.queries * problem.width * problem.dtype.itemsize


def o_bytes(problem: Attention) -> int:
    """Return the bytes of a head of o."""
    return problem.queries * problem.value_width * problem.out_dtype.itemsize


def mask_bytes(problem: Attention) -> int:
    """Return the bytes of a head's mask, an element for each pair of a query and a key that it sees; 0 without one."""
    return 0 if problem.mask_dtype is None else problem.pairs * problem.mask_dtype.itemsize


def others(spec: AttentionChoices) -> dict[str, str]:
    """Return the types of the mask and the lengths, if there are any."""
    mask = {} if spec.mask is None else {"mask": spec.mask.array(False)}
    return mask | ({"lengths": "array<i32>"} if spec.lengths else {})


@dataclass(frozen=True)
class HeldRows(AttentionKernel):
    """A kernel that holds the rows of q, and of the result, in registers: of up to `columns` and `values` columns."""

    columns: int = tunable(64, COLUMNS, "columns of q and k", most=256)
    values: int = tunable(64, COLUMNS, "columns of v and o", most=256)

    @property
    def tile_w(self) -> int:
        """All of them."""
        return self.columns

    @property
    def tile_v(self) -> int:
        """All of them."""
        return self.values

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require whole vec4."""
        for name in ("columns", "values"):
            value = getattr(self, name)
            yield value % FOUR == 0, f"{name} = {value} must be a multiple of 4: rows are held as vec4"

    def needs(self) -> Iterator[Condition]:
        """Yield that rows fit."""
        yield Condition("width", at_most=self.columns)
        yield Condition("value_width", at_most=self.values)

    def unsuited(self, problem: Attention) -> str | None:
        """Tell whether rows are longer than those that it holds."""
        p = problem
        if p.width <= self.columns and p.value_width <= self.values:
            return None
        return f"holds rows of {self.columns} and {self.values} columns, not {p.width} and {p.value_width}"


def held(width: int) -> int:
    """Return the columns of whole vec4 that hold `width` columns."""
    return FOUR * ceil_div(width, FOUR)
