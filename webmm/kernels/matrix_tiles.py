"""Fragments on matrix units, for any op: the tunables of `shaders/common/fragments.wgsl`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from webmm.dtypes import F16
from webmm.kernels.base import Capabilities, MatrixShape, P, ceil_div, tunable
from webmm.kernels.product import Tiled
from webmm.kernels.traffic import Loads, Traffic
from webmm.problems.product import partial_bytes

CHUNK_BYTES = 16  # loaded by an invocation at once

H = TypeVar("H", bound="FloatTiles[Any]")


@dataclass(frozen=True)
class MatrixTiles(Tiled[P]):
    """A (sm, sn) tile of C per subgroup, in fragments of a matrix unit, in a (bm, bn) tile per workgroup."""

    chunk: ClassVar[int]  # elements of A or B in CHUNK_BYTES
    exact: ClassVar[bool] = True

    bm: int = tunable(128, (32, 64, 128, 256), "rows of C per workgroup", most=256)
    bn: int = tunable(128, (32, 64, 128, 256), "columns of C per workgroup")
    bk: int = tunable(32, (16, 32, 64, 128), "inner elements per step")
    sm: int = tunable(64, (16, 32, 64), "rows of C per subgroup")
    sn: int = tunable(64, (16, 32, 64, 128), "columns of C per subgroup")
    fm: int = tunable(16, (8, 16), "rows of a fragment of A and C, as the adapter reports", most=64)
    fn: int = tunable(16, (8, 16), "columns of a fragment of B and C, likewise", most=64)
    fk: int = tunable(16, (8, 16), "inner elements of a fragment, likewise", most=64)
    lanes: int = tunable(32, (8, 16, 32, 64), "invocations of a subgroup, as the adapter reports", most=128)
    slices: int = tunable(1, (1, 2, 4, 8), "groups of subgroups, each with a part of every step of k")
    group: int = tunable(8, (1, 8), "rows of tiles in a group; workgroups of a group share tiles of B in cache")

    @property
    @abstractmethod
    def matrix_shape(self) -> MatrixShape:
        """The fragments that the matrix units must multiply."""

    @property
    def subgroup(self) -> int:
        """Lanes of a subgroup."""
        return self.lanes

    @property
    def subgroups(self) -> int:
        """Subgroups of a workgroup."""
        return self.bm // self.sm * (self.bn // self.sn) * self.slices

    @property
    def sums_held(self) -> int:
        """Sums that each lane holds in registers."""
        return self.sm * self.sn // self.lanes

    @property
    def share(self) -> int:
        """Inner elements of a step that a slice multiplies."""
        return self.bk // self.slices

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of subgroups."""
        return (self.subgroups * self.lanes, 1, 1)

    def tile_bytes(self, a_along_k: bool, b_along_k: bool) -> int:
        """Return the bytes of all panels: one of A per row of subgroups and one of B per column, for each slice."""
        a, b = self.panel_bytes(self.sm, a_along_k), self.panel_bytes(self.sn, b_along_k)
        return self.slices * (self.bm // self.sm * a + self.bn // self.sn * b)

    def panel_bytes(self, subtile: int, along_k: bool) -> int:
        """Return the bytes of a panel: `subtile` rows or columns of a slice's part of k, lines padded by a chunk."""
        lines, length = (subtile, self.share) if along_k else (self.share, subtile)
        return lines * (length + self.chunk) * CHUNK_BYTES // self.chunk

    @property
    def a_loads(self) -> int:
        """Chunks of A that each invocation loads per step."""
        return self.bm * self.bk // self.chunk // self.invocations

    @property
    def b_loads(self) -> int:
        """Chunks of B that each invocation loads per step."""
        return self.bn * self.bk // self.chunk // self.invocations

    def loads(self, problem: P) -> tuple[Loads, Loads, bool]:
        """Return how A and B are loaded, and whether C is stored by vec4."""
        p: Any = problem
        aligned_a, aligned_b = p.a.aligned(p.m, p.k, self.chunk), p.b.aligned(p.k, p.n, self.chunk)
        return self._chunks(aligned_a, self.a_loads, self.bm), self._chunks(aligned_b, self.b_loads, self.bn), p.vec_c

    def _chunks(self, aligned: bool, loads: int, length: int) -> Loads:
        """Return the loads of a tile by chunks, or by words, of which a chunk that is not aligned covers five."""
        nbytes = length * self.bk * CHUNK_BYTES // self.chunk
        return Loads(loads, 0, loads, nbytes) if aligned else Loads(0, 5 * loads, loads, nbytes)

    def traffic(self, problem: P) -> Traffic | None:
        """Count the loop: tiles from storage to registers to workgroup memory, and fragments from there."""
        p: Any = problem
        a, b, vec_c = self.loads(problem)
        splits, sums = getattr(self, "splits", 1), self.sums_held
        tiles_m, tiles_n = ceil_div(p.m, self.bm), ceil_div(p.n, self.bn)
        vec_c = vec_c or splits > 1
        result = p.m * p.n * p.batch * p.out_dtype.itemsize
        return Traffic(
            workgroups=tiles_m * tiles_n * p.batch * splits,
            invocations=self.invocations,
            steps=ceil_div(ceil_div(p.k, self.bk), splits),
            fmas=self.bm * self.bn * self.bk / self.invocations,
            vector_loads=a.vectors + b.vectors,
            scalar_loads=a.scalars + b.scalars,
            workgroup_loads=self.share * (self.sm + self.sn) / (self.chunk * self.lanes),
            workgroup_stores=a.stores + b.stores,
            barriers=2,
            registers=sums + int(4 * (a.vectors + b.vectors) + a.scalars + b.scalars),
            workgroup_bytes=self.workgroup_bytes,
            loaded=a.nbytes + b.nbytes,
            read=p.bytes - result,
            written=partial_bytes(p, splits) if splits > 1 else result,
            waste=tiles_m * self.bm / p.m * tiles_n * self.bn / p.n,
            vector_stores=sums / 4 if vec_c else 0,
            scalar_stores=0 if vec_c else sums,
            exchanged=sums / 4,
        )

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require whole fragments, and the same number of loads for every invocation."""
        for whole, piece in (("bm", "sm"), ("bn", "sn"), ("sm", "fm"), ("sn", "fn"), ("bk", "slices")):
            a, b = getattr(self, whole), getattr(self, piece)
            yield a % b == 0, f"{whole} = {a} must be a multiple of {piece} = {b}"
        yield self.share % self.fk == 0, f"{self.share} of bk for each slice must be a multiple of fk = {self.fk}"
        for operand, size in (("A", self.bm), ("B", self.bn)):
            chunks = size * self.bk // self.chunk
            yield (
                chunks % self.invocations == 0,
                f"the tile of {operand} has {chunks} chunks, which {self.invocations} invocations cannot share evenly",
            )


class FloatTiles(MatrixTiles[P]):
    """Fragments of floats, summed in float32; C reuses A's panels in workgroup memory."""

    operands: ClassVar[str] = "f16"  # type of the elements of fragments of A and B
    chunk = CHUNK_BYTES // F16.itemsize
    features = F16.features

    @classmethod
    def on(cls: type[H], device: Capabilities) -> H:
        """Return the stage with the device's fastest fragments of its type, and its subgroup size."""
        shape = device.fragment(cls.operands, "f32") or cls().matrix_shape
        return cls(fm=shape.m, fn=shape.n, fk=shape.k, lanes=device.subgroup_size or cls().lanes)

    @property
    def matrix_shape(self) -> MatrixShape:
        """The fragments that the matrix units must multiply."""
        return MatrixShape(self.operands, "f32", self.fm, self.fn, self.fk)

    @property
    def least_panel(self) -> int:
        """Bytes of the smallest panel of A, in any layout; fragments of C of a row of subgroups share it."""
        return min(self.panel_bytes(self.sm, along_k) for along_k in (False, True))

    @property
    def c_room(self) -> int:
        """Vec4 of C for which a subgroup has room in A's panels."""
        return self.least_panel // (self.bn // self.sn) // CHUNK_BYTES

    @property
    def at_once(self) -> int:
        """Adjacent fragments of C that a subgroup stores at once: longer lines, fewer barriers."""
        return next(
            n
            for n in (8, 4, 2, 1)
            if self.sn % (n * self.fn) == 0 and (n == 1 or n * self.fm * self.fn <= 4 * self.c_room)
        )

    @property
    def c_line(self) -> int:
        """Vec4 from line to line of these fragments: padded by one, if there is room, for different banks."""
        line = self.at_once * self.fn // 4
        return line + (self.fm * (line + 1) <= self.c_room)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require fragments of whole chunks in both directions, and room for fragments of C in A's panels."""
        yield from super().constraints()
        for name in ("fm", "fn", "fk"):
            value = getattr(self, name)
            yield value % self.chunk == 0, f"{name} = {value} must be a multiple of {self.chunk}, a chunk"
        across = self.bn // self.sn
        yield (
            4 * self.c_room >= self.fm * self.fn,
            f"{across} fragments of C do not fit the panel of {self.sm} rows of A, {self.least_panel} bytes",
        )
