"""Products of whole fragments of 8-bit integers, on the matrix units of a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from webmm.dtypes import U8
from webmm.kernels.base import Capabilities, MatrixShape, tunable
from webmm.kernels.matrix_tiles import CHUNK_BYTES, MatrixTiles
from webmm.kernels.quantized.base import PACKED, QuantizedKernel
from webmm.problem import Quantized

RESULTS = {"i8": "i32", "u8": "u32"}  # what fragments of each type are summed in


@dataclass(frozen=True)
class MatrixUnit(MatrixTiles[Quantized], QuantizedKernel):
    """As gemm's stage of that name, with bytes in place of float16, twice as many along k."""

    name = "matrix_unit"
    summary = "8-bit fragments on matrix units, tiles staged in workgroup memory"
    packs = True
    chunk = CHUNK_BYTES
    not_in: ClassVar[Mapping[str, str]] = {"naga": "its matrices hold floats only"}
    dot: ClassVar[str] = "builtin"

    bk: int = tunable(64, (32, 64, 128), "inner elements per step")
    fk: int = tunable(32, (16, 32), "inner elements of a fragment, likewise")
    operands: str = tunable("i8", ("i8", "u8"), "what fragments of A and B are made of; u8 takes no int8")
    spelling: str = tunable("current", ("current",), "how Tint writes loads and stores of fragments")

    @classmethod
    def on(cls, device: Capabilities) -> MatrixUnit:
        """Return the stage with the largest fragments of i8 that the device multiplies, and its subgroups."""
        lanes = device.subgroup_size or cls().lanes
        return next(iter(cls.each(device, ("i8",))), cls(lanes=lanes))

    @classmethod
    def each(cls, device: Capabilities, kinds: Iterable[str]) -> Iterator[MatrixUnit]:
        """Yield the stage with the largest fragments of each of `kinds` that the device multiplies."""
        for kind in kinds:
            able = [s for s in device.matrix_shapes if (s.operands, s.result) == (kind, RESULTS[kind])]
            for shape in sorted(able, key=lambda s: -s.m * s.n * s.k)[:1]:
                yield cls(fm=shape.m, fn=shape.n, fk=shape.k, lanes=device.subgroup_size, operands=kind)

    @property
    def matrix_shape(self) -> MatrixShape:
        """What the matrix units must multiply."""
        return MatrixShape(self.operands, RESULTS[self.operands], self.fm, self.fn, self.fk)

    @property
    def workgroup_bytes(self) -> int:
        """Panels whose lines run along k, and the sums of rows and columns."""
        return self.tile_bytes(True, True) + 4 * (self.bm + self.bn)

    def _c_regions(self, wide: int) -> int:
        """Return how many rows of `wide` fragments of C, as lanes read them, a panel of A has room for."""
        return self.sm * (self.bk + self.chunk) // (self.fm * (4 * wide * self.fn + self.chunk))

    @property
    def c_wide(self) -> int:
        """Fragments of C that a subgroup stores side by side: as many as fit where A was."""
        able = [w for w in (1, 2, 4, 8) if self.sn // self.fn % w == 0]
        fitting = [w for w in able if self._c_regions(w) * (self.bm // self.sm) >= self.subgroups]
        return max(fitting, default=0)

    @property
    def c_sharers(self) -> int:
        """Subgroups whose fragments share a panel of A."""
        return self._c_regions(self.c_wide)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Whole chunks along k, and room for C."""
        yield from super().constraints()
        yield self.fk % self.chunk == 0, f"fk = {self.fk} must be a multiple of {self.chunk}, which lanes move"
        yield self.slices == 1, f"slices = {self.slices}, whose sums nobody adds up here, must be 1"
        yield self.c_wide > 0, f"a tile of A of {self.bm} × {self.bk} has no room for a fragment of C per subgroup"

    def signed(self, problem: Quantized) -> bool:
        """Tell whether products are those of i8."""
        del problem
        return self.operands == "i8"

    def unsuited(self, problem: Quantized) -> str | None:
        """Return why no device computes `problem` so: bytes that u8 cannot hold, or that lanes cannot transpose."""
        if self.operands == "u8" and (problem.a_dtype, problem.b_dtype) != (U8, U8):
            return f"multiplies uint8, not {problem.a_dtype.name} by {problem.b_dtype.name}"
        for x, across, loads in (
            ("A", problem.a.transposed, self.a_loads),
            ("B", not problem.b.transposed, self.b_loads),
        ):
            if across and loads % PACKED:
                return f"has {loads} chunks of {x} per invocation, which are transposed by {PACKED}"
        return None
