"""Products of whole fragments of 8-bit integers, on the matrix units of a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from webmm.dtypes import U8
from webmm.kernels.base import Capabilities, MatrixShape, tunable
from webmm.kernels.matrix_tiles import CHUNK_BYTES, MatrixTiles
from webmm.kernels.quantized.base import PACKED, QuantizedKernel, Specialisation
from webmm.problems.quantized import Quantized

RESULTS = {"i8": "i32", "u8": "u32"}  # what fragments of each type are summed in


@dataclass(frozen=True)
class MatrixUnit(MatrixTiles[Quantized], QuantizedKernel):
    """As gemm's stage of that name, with bytes in place of float16, twice as many along k."""

    name = "matrix_unit"
    follows = "packed"
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

    def c_sharers(self, wide: int) -> tuple[int, int]:
        """Return how many subgroups find room for `wide` fragments of C, row by row, in a panel of A and one of B."""
        row = 4 * wide * self.fn + self.chunk
        a, b = (self.panel_bytes(part, along_k=True) // (self.fm * row) for part in (self.sm, self.sn))
        return a, b

    @property
    def c_wide(self) -> int:
        """Fragments of C that a subgroup stores side by side: as many as fit where A was, and where B was."""
        able = [w for w in (1, 2, 4, 8) if self.sn // self.fn % w == 0 and w * self.fn <= PACKED * self.lanes]
        panels = self.bm // self.sm, self.bn // self.sn
        room = [min(x * count for x, count in zip(self.c_sharers(w), panels, strict=True)) for w in able]
        return max((w for w, places in zip(able, room, strict=True) if places >= self.subgroups), default=0)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Whole chunks along k, and room for C."""
        yield from super().constraints()
        yield self.fk % self.chunk == 0, f"fk = {self.fk} must be a multiple of {self.chunk}, which lanes move"
        yield self.slices == 1, f"slices = {self.slices}, whose sums nobody adds up here, must be 1"
        yield self.c_wide > 0, f"tiles of {self.bk} along k have no room for a fragment of C per subgroup"

    def signed(self, problem: Quantized) -> bool:
        """Tell whether products are those of i8."""
        del problem
        return self.operands == "i8"

    def unsuited(self, problem: Quantized) -> str | None:
        """Return why no device computes `problem` so: bytes that u8 cannot hold, or that lanes cannot transpose."""
        if self.operands == "u8" and (problem.a_dtype, problem.b_dtype) != (U8, U8):
            return f"multiplies uint8, not {problem.a_dtype.name} by {problem.b_dtype.name}"
        across = problem.a.transposed, not problem.b.transposed
        whole = self._transposed_whole(*across) or self._transposed_whole(*across, share=2)
        return None if whole else f"has no {PACKED} chunks per invocation, which are transposed together"

    def _transposed_whole(self, a_across: bool, b_across: bool, share: int = 1) -> bool:
        """Tell whether a lane that moves `share` times its part of an operand does so by whole transposed blocks."""
        loads = (a_across, share * self.a_loads), (b_across, share * self.b_loads)
        return all(count % PACKED == 0 for across, count in loads if across) and self.subgroups % share == 0

    def apart(self, spec: Specialisation) -> bool:
        """Tell whether half of the subgroups move A and half B, since each has too little of both to transpose."""
        return not self._transposed_whole(spec.trans_a, not spec.trans_b)
