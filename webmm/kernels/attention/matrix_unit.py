"""Float16 attention on the matrix units of a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from webmm.dtypes import F16
from webmm.kernels.attention.base import FOUR, AttentionChoices, HeldRows
from webmm.kernels.base import Binding, Capabilities, MatrixShape, tunable
from webmm.problems.attention import Attention

CHUNK = 8  # float16 that an invocation loads at once


@dataclass(frozen=True)
class MatrixUnit(HeldRows):
    """Fragments of q, and of the result, stay in registers; tiles of k and v, scores and weights in workgroup memory.

    Dao, FlashAttention-2 (2023); results are only corrected when a maximum has grown by much, as in FlashAttention-4.
    """

    name = "matrix_unit"
    follows = "blocked"
    summary = "float16 fragments on matrix units, scores in workgroup memory"
    not_in: ClassVar[Mapping[str, str]] = {"naga": "wgpu does not enable matrix units"}
    features = F16.features
    exact = True
    room: ClassVar[int] = 15  # weights are at most 2^room
    ahead: ClassVar[int] = 7  # how far a new reference is below the largest score

    bq: int = tunable(64, (32, 64, 128, 256), "queries of a workgroup", most=256)
    bk: int = tunable(32, (16, 32, 64), "keys of a step")
    sm: int = tunable(16, (8, 16, 32), "queries of a subgroup")
    across: int = tunable(1, (1, 2, 4), "subgroups that share these queries")
    fm: int = tunable(16, (8, 16), "rows of a fragment of q and o, as the adapter reports", most=64)
    fn: int = tunable(16, (8, 16), "keys, or columns of v, of a fragment, likewise", most=64)
    fk: int = tunable(16, (8, 16), "inner elements of a fragment, likewise", most=64)
    lanes: int = tunable(32, (8, 16, 32, 64), "invocations of a subgroup, as the adapter reports", most=128)

    @classmethod
    def on(cls, device: Capabilities) -> MatrixUnit:
        """Return the stage with the device's fastest fragments of float16, and its subgroup size."""
        shape = device.fragment("f16", "f32") or cls().matrix_shape
        return cls(fm=shape.m, fn=shape.n, fk=shape.k, lanes=device.subgroup_size or cls().lanes)

    @property
    def matrix_shape(self) -> MatrixShape:
        """The fragments that the matrix units must multiply."""
        return MatrixShape("f16", "f32", self.fm, self.fn, self.fk)

    @property
    def subgroup(self) -> int:
        """Lanes of a subgroup."""
        return self.lanes

    @property
    def subgroups(self) -> int:
        """Subgroups of a workgroup."""
        return self.bq // self.sm * self.across

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of subgroups."""
        return (self.subgroups * self.lanes, 1, 1)

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
        """The keys after which there may be a new reference, and are new sums."""
        return self.bk

    def reference(self, before: float, largest: float) -> float:
        """Return what weights are relative to: something else only once a score is far above it."""
        return largest - self.ahead if largest > before + self.room else before

    def part(self, key: int, count: int) -> int:
        """Return the lane, of those that share the scores of a query, whose sum has a key."""
        del count
        return key % self.bk // self.share

    @property
    def per_row(self) -> int:
        """Lanes that share the scores of a query."""
        return self.across * self.lanes // self.sm

    @property
    def share(self) -> int:
        """Keys of a step, for each of these lanes."""
        return self.bk // self.per_row

    @property
    def keys(self) -> int:
        """Keys of a step, for each of the subgroups that share queries: those of a panel of k."""
        return self.bk // self.across

    @property
    def k_line(self) -> int:
        """Vec4 from key to key in a panel of k: padded by one, for different banks."""
        return self.columns // CHUNK + 1

    @property
    def v_line(self) -> int:
        """The same in a panel of v, which has the columns of a subgroup."""
        return self.values // self.across // CHUNK + 1

    @property
    def s_line(self) -> int:
        """Vec4 from query to query in a panel of scores: those of a subgroup."""
        return self.keys // FOUR + 1

    @property
    def k_panel(self) -> int:
        """Vec4 of a panel of k, in which there must be room for a fragment of each subgroup's result."""
        return max(self.keys * self.k_line, self.bq // self.sm * self.slot)

    @property
    def slot(self) -> int:
        """Vec4 of a fragment of the result."""
        return self.fm * self.fn // FOUR

    @property
    def k_loads(self) -> int:
        """Chunks of k that an invocation loads in a step."""
        return self.bk * self.columns // CHUNK // self.invocations

    @property
    def v_loads(self) -> int:
        """Chunks of v."""
        return self.bk * self.values // CHUNK // self.invocations

    @property
    def workgroup_bytes(self) -> int:
        """Panels of k, v and scores, a correction for each query, and a flag for each subgroup."""
        vec4 = self.across * (self.k_panel + self.bk * self.v_line) + self.subgroups * self.sm * self.s_line
        return 16 * vec4 + 4 * (self.bq + self.subgroups)

    def bindings(self, spec: AttentionChoices) -> Iterator[Binding]:
        """Yield the bindings of any stage; q, k and v are bound by chunks if these are aligned."""
        for each in super().bindings(spec):
            chunks = each.name in ("q", "k", "v") and getattr(spec, f"vec_{each.name}")
            yield replace(each, wgsl_type="array<vec4<u32>>") if chunks else each

    def vector(self, x: str) -> int:
        """Return a chunk for q, k and v, and a vec4 for o."""
        return super().vector(x) if x == "o" else CHUNK

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require whole fragments, and equal shares of loads and of scores."""
        yield from super().constraints()
        for whole, each in (("bq", "sm"), ("sm", "fm"), ("lanes", "sm"), ("columns", "fk")):
            a, b = getattr(self, whole), getattr(self, each)
            yield a % b == 0, f"{whole} = {a} must be a multiple of {each} = {b}"
        for name in ("fm", "fn", "fk"):
            value = getattr(self, name)
            yield value % CHUNK == 0, f"{name} = {value} must be a multiple of {CHUNK}, a chunk"
        for name, value in (("bk", self.bk), ("values", self.values)):
            least = self.across * self.fn
            yield value % least == 0, f"{name} = {value} must be a multiple of {least}: fragments of each subgroup"
        whole_rows = self.bk % (self.per_row * self.fk) == 0
        yield whole_rows, f"{self.per_row} lanes cannot share the scores of {self.bk} keys by fragments of {self.fk}"
        for name, value in (("k", self.columns), ("v", self.values)):
            chunks = self.bk * value // CHUNK
            even = chunks % self.invocations == 0
            yield even, f"{self.invocations} invocations cannot share the {chunks} chunks of a tile of {name} evenly"

    def unsuited(self, problem: Attention) -> str | None:
        """Tell whether rows are too long, or of another type."""
        if problem.dtype != F16:
            return f"multiplies float16, not {problem.dtype.name}"
        return super().unsuited(problem)
