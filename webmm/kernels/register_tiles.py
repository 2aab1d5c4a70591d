"""Register tiles over workgroup tiles, for any op: the tunables of `shaders/common/register_tiles/`, and operands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from webmm.kernels.base import P, ceil_div, tunable
from webmm.kernels.product import Tiled
from webmm.kernels.traffic import Loads, Traffic
from webmm.problems.product import partial_bytes


@dataclass(frozen=True)
class TileOperand:
    """Properties of A or B that templates use; shaders/common/register_tiles/tiles.wgsl explains each field."""

    x: str
    axis: str
    base: str
    origin: str
    stride: str
    extent: str
    length: int
    vec: bool
    across_k: bool
    by_element: bool
    vec4_tile: bool
    swizzled: bool
    loads: int


@dataclass(frozen=True)
class RegisterTiles(Tiled[P]):
    """A (tm, tn) tile of C per invocation in a (bm, bn) tile per workgroup, with bk inner elements per step."""

    b_words: ClassVar[bool] = False  # whether B consists of words, from which the stage's load_b4() unpacks elements

    bm: int = tunable(64, (32, 64, 128), "rows of C per workgroup", most=256)
    bn: int = tunable(128, (32, 64, 128), "columns of C per workgroup", most=256)
    bk: int = tunable(16, (8, 16, 32), "inner elements per step")
    tm: int = tunable(8, (4, 8), "rows of C per invocation", most=16)
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

    def operands(self, spec: Any) -> tuple[TileOperand, TileOperand]:
        """Return A and B of a product of floats with these choices."""
        a = self._operand("a", spec, spec.vec_a, spec.trans_a)
        b = self._operand("b", spec, spec.vec_b, not spec.trans_b)
        return a, b

    def _operand(self, x: str, spec: Any, vec: bool, across_k: bool) -> TileOperand:
        axis, extent, length = ("row", "BM", self.bm) if x == "a" else ("col", "BN", self.bn)
        by_element = not vec and (x == "a" or not self.b_words)
        along_k = not (across_k or by_element)
        return TileOperand(
            x=x,
            axis=axis,
            base=f"{x}_base",
            origin=f"{axis}0",
            stride=f"params.ld{x}",
            extent=extent,
            length=length,
            vec=vec,
            across_k=across_k,
            by_element=by_element,
            vec4_tile=across_k and not by_element,
            swizzled=along_k and spec.dtype.wide and length % 32 == 0,
            loads=self.a_loads if x == "a" else self.b_loads,
        )

    def interleaved(self, spec: Any) -> bool:
        """Return whether neighbouring invocations share columns, and every second one rows: in tiles of float64."""
        return spec.dtype.wide and self.wx % 8 == 0 and self.wy % 4 == 0

    def iterations(self, problem: P) -> int:
        """Return how many iterations an invocation's loops run: over k, and over the tile if that is not unrolled."""
        inner = 0 if self.unroll == self.bk else self.bk // self.unroll + 1
        return super().iterations(problem) * (1 + inner)

    @property
    def sharing(self) -> tuple[int, int]:
        """Groups of invocations per workgroup, and workgroups, that divide k for the same tile."""
        return 1, 1

    def loads(self, problem: P) -> tuple[Loads, Loads, bool]:
        """Return how A and B are loaded, and whether C is stored by vec4."""
        p: Any = problem
        vec_a, vec_b, vec_c = p.by_fours
        a = self._floats(vec_a, p.a.transposed, self.a_loads, self.bm * p.dtype.itemsize)
        b = self._floats(vec_b, not p.b.transposed, self.b_loads, self.bn * p.dtype.itemsize)
        return a, b, vec_c

    def _floats(self, vec: bool, direct: bool, loads: int, nbytes: int) -> Loads:
        """Return the loads of a tile of floats whose line takes `nbytes`, stored in its own order if `direct`.

        Their stores to workgroup memory are in bank cycles: a vec4 takes four, and four elements that are a row apart
        take one per conflicting invocation.
        """
        if not vec:
            return Loads(0, 4 * loads, 4 * loads * (1 if direct else 2), self.bk * nbytes)
        return Loads(loads, 0, 4 * loads if direct else self.bk * loads, self.bk * nbytes)

    def traffic(self, problem: P) -> Traffic:
        """Count the loop: tiles from storage to registers to workgroup memory, and fragments from there.

        The sums of slices are added through workgroup memory; splits write partial sums as whole vec4.
        """
        p: Any = problem
        a, b, vec_c = self.loads(problem)
        fragments, (slices, splits) = self.tm * self.tn // 4, self.sharing
        tiles_m, tiles_n = ceil_div(p.m, self.bm), ceil_div(p.n, self.bn)
        vec_c = vec_c or splits > 1
        staged = self.wy <= self.bk  # then single elements are stored line by line
        result = p.m * p.n * p.batch * p.out_dtype.itemsize
        return Traffic(
            workgroups=tiles_m * tiles_n * p.batch * splits,
            invocations=self.sharers * slices,
            steps=ceil_div(ceil_div(p.k, self.inner_step), splits),
            fmas=self.bk * self.tm * self.tn,
            vector_loads=a.vectors + b.vectors,
            scalar_loads=a.scalars + b.scalars,
            workgroup_loads=self.bk * (self.tm + self.tn) / 4,
            workgroup_stores=a.stores + b.stores,
            barriers=2,
            registers=4 * fragments + self.tm + self.tn + int(4 * (a.vectors + b.vectors) + a.scalars + b.scalars),
            workgroup_bytes=self.workgroup_bytes,
            loaded=(a.nbytes + b.nbytes) * slices,
            read=p.bytes - result,
            written=partial_bytes(p, splits) if splits > 1 else result,
            waste=tiles_m * self.bm / p.m * tiles_n * self.bn / p.n,
            vector_stores=fragments if vec_c else 0,
            scalar_stores=0 if vec_c else fragments if staged else 4 * fragments,
            exchanged=self.tm * self.tn / 4 * (1 - 1 / slices),
        )

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
