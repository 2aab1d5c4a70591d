"""Products of 8-bit integers on the matrix units of a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from webmm.dtypes import U8
from webmm.kernels.base import Capabilities, MatrixShape, tunable
from webmm.kernels.matrix_tiles import CHUNK_BYTES, MatrixTiles
from webmm.kernels.quantized.base import PACKED, QuantizedKernel, Specialisation
from webmm.problems.quantized import Quantized

OWN = {"i8": "i32", "u8": "u32"}  # the type of the sums of fragments of each type; in AMD's driver those of u8 are i32


@dataclass(frozen=True)
class MatrixUnit(MatrixTiles[Quantized], QuantizedKernel):
    """As gemm's `matrix_unit`, with bytes in place of float16, twice as many along k."""

    name = "matrix_unit"
    follows = "packed"
    summary = "8-bit fragments on matrix units, tiles in workgroup memory"
    packs = True
    chunk = CHUNK_BYTES
    not_in: ClassVar[Mapping[str, str]] = {"naga": "its matrices hold floats only"}
    dot: ClassVar[str] = "builtin"

    bk: int = tunable(64, (32, 64, 128), "inner elements per step")
    fk: int = tunable(32, (16, 32), "inner elements of a fragment, likewise", most=64)
    operands: str = tunable("i8", ("i8", "u8"), "element type of fragments of A and B; u8 cannot hold int8")
    sums: str = tunable("own", ("own", "i32"), "type of sums: with the sign of operands, or i32")
    spelling: str = tunable("current", ("current",), "Tint's syntax for loads and stores of fragments")

    @classmethod
    def on(cls, device: Capabilities) -> MatrixUnit:
        """Return the stage with the device's fastest fragments of i8, and its subgroup size."""
        return next(iter(cls.each(device, ("i8",))), cls(lanes=device.subgroup_size or cls().lanes))

    @classmethod
    def each(cls, device: Capabilities, kinds: Iterable[str]) -> Iterator[MatrixUnit]:
        """Yield the stage with the device's fastest fragments of each of `kinds`."""
        lanes = device.subgroup_size or cls().lanes
        for kind in kinds:
            own = device.fragment(kind, OWN[kind])
            shape = own or device.fragment(kind, "i32")
            if shape is not None:
                sums = "own" if own else "i32"
                yield cls(fm=shape.m, fn=shape.n, fk=shape.k, lanes=lanes, operands=kind, sums=sums)

    @property
    def matrix_shape(self) -> MatrixShape:
        """The fragments that the matrix units must multiply."""
        return MatrixShape(
            self.operands, OWN[self.operands] if self.sums == "own" else self.sums, self.fm, self.fn, self.fk
        )

    @property
    def workgroup_bytes(self) -> int:
        """Panels whose lines run along k, and the sums of rows and columns."""
        return self.tile_bytes(True, True) + 4 * (self.bm + self.bn)

    def c_sharers(self, wide: int) -> tuple[int, int]:
        """Return how many subgroups can store `wide` adjacent fragments of C in a panel of A, and in one of B."""
        row = 4 * wide * self.fn + self.chunk  # bytes, with padding
        a, b = (self.panel_bytes(part, along_k=True) // (self.fm * row) for part in (self.sm, self.sn))
        return a, b

    @property
    def c_wide(self) -> int:
        """Adjacent fragments of C that a subgroup stores at once: as many as fit both A's and B's panels.

        A row of them has at most a vec4 for each lane.
        """
        able = [w for w in (1, 2, 4, 8) if self.sn // self.fn % w == 0 and w * self.fn <= PACKED * self.lanes]
        panels = self.bm // self.sm, self.bn // self.sn
        room = [min(x * count for x, count in zip(self.c_sharers(w), panels, strict=True)) for w in able]
        return max((w for w, places in zip(able, room, strict=True) if places >= self.subgroups), default=0)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require whole chunks along k, and room for C."""
        yield from super().constraints()
        yield self.fk % self.chunk == 0, f"fk = {self.fk} must be a multiple of {self.chunk}, a chunk"
        yield self.slices == 1, f"slices must be 1, not {self.slices}: this stage does not add sums of slices"
        yield self.c_wide > 0, f"tiles of {self.bk} along k have no room for a fragment of C per subgroup"

    def signed(self, problem: Quantized) -> bool:
        """Tell whether elements are multiplied as i8."""
        del problem
        return self.operands == "i8"

    def unsuited(self, problem: Quantized) -> str | None:
        """Return why no device can compute `problem`: i8 in fragments of u8, or tiles too small to be transposed."""
        if self.operands == "u8" and (problem.a_dtype, problem.b_dtype) != (U8, U8):
            return f"multiplies uint8, not {problem.a_dtype.name} by {problem.b_dtype.name}"
        across = problem.a.transposed, not problem.b.transposed
        whole = self._transposed_whole(*across) or self._transposed_whole(*across, share=2)
        return None if whole else f"has tiles without {PACKED} chunks per invocation, which it needs to transpose them"

    def _transposed_whole(self, a_across: bool, b_across: bool, share: int = 1) -> bool:
        """Tell whether invocations that load `share` times their chunks of an operand load whole blocks."""
        loads = (a_across, share * self.a_loads), (b_across, share * self.b_loads)
        return all(count % PACKED == 0 for across, count in loads if across) and self.subgroups % share == 0

    def divides_loads(self, spec: Specialisation) -> bool:
        """Tell whether half of the subgroups load A and half B, since tiles are too small for all to load both."""
        return not self._transposed_whole(spec.trans_a, not spec.trans_b)
