"""float64 on devices without f64: exact products of slices on matrix units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from webmm.kernels.base import Capabilities, Kernel, MatrixShape, Scratch, Texture, tunable
from webmm.kernels.gemm.slices import CHUNK, DoubleKernel, FromSlices, Slice, Slices
from webmm.kernels.matrix_tiles import CHUNK_BYTES, MatrixTiles
from webmm.kernels.product import Grid
from webmm.problems.gemm import Gemm


@dataclass(frozen=True)
class SlicesUnit(MatrixTiles[Gemm], DoubleKernel):
    """As `slices`, on matrix units, with tiles in workgroup memory as for products of 8-bit integers."""

    name = "slices_unit"
    summary = "float64 by exact products of slices on matrix units"
    not_in: ClassVar[Mapping[str, str]] = {"naga": "its matrices hold floats only"}
    binds = ("a_slices", "b_slices", "wide")
    fills = ("wide",)
    chunk = CHUNK_BYTES
    most: ClassVar[int] = CHUNK

    bk: int = tunable(64, (32, 64), "inner elements per step")
    fk: int = tunable(32, (16, 32), "inner elements of a fragment, likewise", most=64)
    spelling: str = tunable("current", ("current",), "Tint's syntax for loads and stores of fragments")

    @classmethod
    def on(cls, device: Capabilities) -> SlicesUnit:
        """Return the stage with the device's fastest fragments of i8, and its subgroup size."""
        lanes = device.subgroup_size or cls().lanes
        shape = device.fragment("i8", "i32")
        return cls(fm=shape.m, fn=shape.n, fk=shape.k, lanes=lanes) if shape else cls(lanes=lanes)

    @property
    def matrix_shape(self) -> MatrixShape:
        """The fragments that the matrix units must multiply."""
        return MatrixShape("i8", "i32", self.fm, self.fn, self.fk)

    @property
    def grid(self) -> Grid:
        """One workgroup per tile."""
        return Grid(self.bm, self.bn)

    @property
    def workgroup_bytes(self) -> int:
        """Panels whose lines run along k."""
        return self.tile_bytes(True, True)

    def traffic(self, problem: Gemm) -> None:
        """Return None: its time is not modelled."""
        del problem

    def c_sharers(self, wide: int) -> tuple[int, int]:
        """Return how many subgroups can store `wide` adjacent fragments of sums in a panel of A, and in one of B."""
        row = 4 * wide * self.fn + self.chunk
        a, b = (self.panel_bytes(part, along_k=True) // (self.fm * row) for part in (self.sm, self.sn))
        return a, b

    @property
    def c_wide(self) -> int:
        """Adjacent fragments of sums that a subgroup stores at once: as many as fit both A's and B's panels."""
        able = [w for w in (1, 2, 4, 8) if self.sn // self.fn % w == 0 and w * self.fn <= 4 * self.lanes]
        panels = self.bm // self.sm, self.bn // self.sn
        room = [min(x * count for x, count in zip(self.c_sharers(w), panels, strict=True)) for w in able]
        return max((w for w, places in zip(able, room, strict=True) if places >= self.subgroups), default=0)

    @property
    def before(self) -> tuple[Kernel[Gemm], ...]:
        """The dispatches that cut both operands into slices."""
        return Slice("a", self.bk // 4), Slice("b", self.bk // 4)

    @property
    def after(self) -> tuple[Kernel[Gemm], ...]:
        """The dispatch that rounds the sums."""
        return (FromSlices(),)

    def scratch(self, problem: Gemm) -> tuple[Texture | Scratch, ...]:
        """Return the buffers of the slices, and of four words per element of C."""
        return Slices(bk=self.bk // 4).scratch(problem)

    def scratch_rule(self, problem: Gemm) -> dict[str, Any]:
        """Return the rules of the buffers' bytes."""
        return Slices(bk=self.bk // 4).scratch_rule(problem)

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require whole chunks along k, and room for sums."""
        yield from super().constraints()
        yield self.fk % self.chunk == 0, f"fk = {self.fk} must be a multiple of {self.chunk}, a chunk"
        yield self.slices == 1, f"slices must be 1, not {self.slices}: this stage does not add sums of slices"
        yield self.c_wide > 0, f"tiles of {self.bk} along k have no room for a fragment of sums per subgroup"
