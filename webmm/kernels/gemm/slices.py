"""float64 without f64: exact products of slices by the integer dot product, and doubles by integer arithmetic."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from webmm.dtypes import F64
from webmm.kernels.base import Binding, Kernel, Scratch, Texture, ceil_div, fold, tunable
from webmm.kernels.gemm.base import GemmKernel, GemmLengths, Specialisation
from webmm.kernels.product import Grid
from webmm.params import Vec2U, member
from webmm.problems.gemm import Gemm

# Slices of 7 bits each, by the precision: 56 bits, of the 53 that a double has; or 42, for errors up to k·2⁻⁴⁰.
SLICES = {"highest": 8, "high": 6}
INEXACT = 99  # in place of a line's last slice, where even more would not hold all of it
CHUNK = 16384  # words of four products that are added up in i32: 4 · 16384 · 127² < 2³¹
# Of Σ|a||b| by the first slices, in units of 2⁻¹⁴: what is left out is at most k·9.1·2⁻⁵⁶ of the lines' powers of two,
# and half of k·2⁻⁵² is allowed where k = 1, after the rounding of the result: 9.1/16·2·2¹⁴ = 18,637. Of fewer slices
# k·7.1·2⁻⁴² is left out, and k·2⁻⁴⁰ allowed, of which a rounding is nothing: 7.1/4·2¹⁴ = 29,082.
ENOUGH = {"highest": 20480, "high": 30720}
LINES = 16  # cut by a workgroup

PAIRS = "array<vec2u>"
TYPES = {  # of the bindings
    **dict.fromkeys(("a", "b", "c", "bias", "a_lines", "b_lines"), PAIRS),
    **dict.fromkeys(("a_slices", "b_slices"), "array<vec4u>"),
    "wide": "array<vec4u>",
}


def halves(number: float) -> tuple[int, int]:
    """Return the low and the high word of a double."""
    low, high = struct.unpack("<2I", struct.pack("<d", number))
    return low, high


@dataclass(frozen=True)
class DoubleParams(GemmLengths):
    """The uniform: lengths, then the numbers of the epilogue as words."""

    alpha: Vec2U = member("factor of A·B")
    beta: Vec2U = member("factor of the previous C")

    @classmethod
    def of(cls, p: Gemm) -> DoubleParams:
        """Return the uniform for the problem `p`."""
        a, b, c = p.a, p.b, p.c
        return cls(
            *(p.m, p.n, p.k),
            *(a.ld, b.ld, c.ld),
            *(a.offset, b.offset, c.offset),
            *(a.batch_stride, b.batch_stride, c.batch_stride),
            p.bias_offset,
            halves(p.alpha),
            halves(p.beta),
        )


@dataclass(frozen=True)
class DoubleSpecialisation(Specialisation):
    """With how many slices serve, and which sum of magnitudes shows that they are enough."""

    kept: int
    enough: int


@dataclass(frozen=True)
class DoubleKernel(GemmKernel):
    """A kernel that takes float64 for pairs of words."""

    params = DoubleParams
    integer = True
    fills: ClassVar[tuple[str, ...]] = ("c",)

    def unsuited(self, problem: Gemm) -> str | None:
        """Return why this kernel computes `problem` on no device: it is made for float64."""
        return None if problem.dtype == F64 else f"multiplies {F64.name}, not {problem.dtype.name}"

    def workgroup_bytes_for(self, problem: Gemm) -> int:
        """Return `workgroup_bytes`: the tiles hold integers."""
        del problem
        return self.workgroup_bytes

    def words(self, number: float) -> tuple[int, int]:
        """Return a number of the template as it is written there: its low and its high word."""
        return halves(number)

    def specialise(self, problem: Gemm) -> DoubleSpecialisation:
        """Return the template choices that fit `problem`, its precision among them."""
        base, of = vars(super().specialise(problem)), problem.precision
        return DoubleSpecialisation(**base, kept=SLICES[of], enough=ENOUGH[of])

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield `binds` in that order."""
        names = (name for name in self.binds if name != "bias" or spec.bias)
        for number, name in enumerate(names, 1):
            written = name in self.fills
            wgsl = "array<u32>" if written and name.endswith("slices") else TYPES[name]  # word by word
            yield Binding(number, name, "storage" if written else "read-only-storage", wgsl)


@dataclass(frozen=True)
class Software(DoubleKernel):
    """One element of C per invocation, each product and sum as IEEE 754 has it."""

    name = "software"
    summary = "float64 by integer arithmetic"

    wy: int = tunable(8, (4, 8, 16), "rows of C per workgroup")
    wx: int = tunable(8, (8, 16, 32), "columns of C per workgroup")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Invocations along x (columns), y (rows) and z."""
        return (self.wx, self.wy, 1)

    @property
    def grid(self) -> Grid:
        """One workgroup per tile."""
        return Grid(self.wy, self.wx)


@dataclass(frozen=True)
class Slice(DoubleKernel):
    """The lines of an operand that are multiplied, rows of A or columns of B, each cut into slices."""

    name = "slice"
    summary = "an operand of float64 cut into slices"
    inexact: ClassVar[int] = INEXACT
    at_once: ClassVar[int] = LINES

    side: str = tunable("a", ("a", "b"), "which operand")
    step: int = tunable(8, (4, 8, 16), "words of which lines of slices are multiples")

    @property
    def binds(self) -> tuple[str, ...]:  # type: ignore[override]
        """The operand, its slices, and what is found out about its lines."""
        return (self.side, *self.fills)

    @property
    def fills(self) -> tuple[str, ...]:  # type: ignore[override]
        """What it leaves."""
        return (f"{self.side}_slices", f"{self.side}_lines")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """As many invocations for each line as there are lines."""
        return (LINES * LINES, 1, 1)

    @property
    def workgroup_bytes(self) -> int:
        """Four words for each invocation."""
        return 16 * self.invocations

    def lines(self, problem: Gemm) -> tuple[int, int]:
        """Return how many lines there are in a matrix, and how many matrices."""
        operand, lines = (problem.a, problem.m) if self.side == "a" else (problem.b, problem.n)
        return lines, problem.batch if operand.batch_stride else 1

    def dispatch(self, problem: Gemm) -> tuple[int, int, int]:
        """Return the workgroup counts."""
        lines, batch = self.lines(problem)
        return fold(ceil_div(lines, LINES), batch)

    def iterations(self, problem: Gemm) -> int:
        """Return how often the loops run, twice over k."""
        return ceil_div(problem.k, LINES) + 6 * (ceil_div(problem.k, 4 * LINES) + self.step) + 3 * LINES

    def scratch(self, problem: Gemm) -> tuple[Texture | Scratch, ...]:
        """A byte per element and slice, k in whole words; two words per line."""
        lines, batch = self.lines(problem)
        nbytes = 4 * self.step * ceil_div(problem.k, 4 * self.step) * SLICES[problem.precision] * lines * batch
        return Scratch(f"{self.side}_slices", nbytes), Scratch(f"{self.side}_lines", 8 * lines * batch)


@dataclass(frozen=True)
class FromSlices(DoubleKernel):
    """C from the sums of slices; what they do not give well enough is computed as `software` does."""

    name = "from_slices"
    summary = "sums of slices rounded to float64"
    binds = ("a", "b", "wide", "a_lines", "b_lines", "c", "bias")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """An invocation per element."""
        return (16, 8, 1)

    @property
    def grid(self) -> Grid:
        """One workgroup per tile."""
        return Grid(8, 16)


@dataclass(frozen=True)
class Slices(DoubleKernel):
    """Products of slices are exact in integers, and so are their sums; only the result is rounded."""

    name = "slices"
    summary = "float64 by exact products of slices"
    binds = ("a_slices", "b_slices", "wide")
    fills = ("wide",)
    most: ClassVar[int] = CHUNK

    bm: int = tunable(32, (32, 64, 128), "rows of C per workgroup")
    bn: int = tunable(32, (32, 64, 128), "columns of C per workgroup")
    bk: int = tunable(8, (4, 8, 16), "words of four inner elements per step")
    tm: int = tunable(4, (4, 8), "rows of C per invocation")
    tn: int = tunable(4, (4, 8), "columns of C per invocation")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of invocations; the template lays them out as (wy, wx)."""
        return (self.bm // self.tm * (self.bn // self.tn), 1, 1)

    @property
    def workgroup_bytes(self) -> int:
        """A tile of a slice of A and one of B."""
        return 4 * (self.bm + self.bn) * self.bk

    @property
    def grid(self) -> Grid:
        """One workgroup per tile."""
        return Grid(self.bm, self.bn)

    @property
    def inner_step(self) -> int:
        """One tile."""
        return 4 * self.bk

    @property
    def before(self) -> tuple[Kernel[Gemm], ...]:
        """Both operands are cut into slices."""
        return Slice("a", self.bk), Slice("b", self.bk)

    @property
    def after(self) -> tuple[Kernel[Gemm], ...]:
        """The sums are rounded."""
        return (FromSlices(),)

    def scratch(self, problem: Gemm) -> tuple[Texture | Scratch, ...]:
        """The slices, and four words per element of C."""
        cut = (left for kernel in self.before for left in kernel.scratch(problem))
        return (*cut, Scratch("wide", 16 * problem.m * problem.n * problem.batch))

    def iterations(self, problem: Gemm) -> int:
        """Return how often loops run: over k for each pair of slices that counts, and once more."""
        kept, steps = SLICES[problem.precision], ceil_div(problem.k, self.inner_step)
        pairs = kept * (kept + 1) // 2 + 1
        return pairs * steps + (kept + 1) * (2 + 2 * ceil_div(kept * steps * self.bk, CHUNK))

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Whole fragments, and the same number of loads for every invocation."""
        for name, size, part in (("bm", self.bm, self.tm), ("bn", self.bn, self.tn)):
            yield size % part == 0, f"{name} = {size} must be a multiple of {part}"
            yield part % 4 == 0, f"fragments are of four, not {part}"
            vectors = size * self.bk // 4
            yield vectors % self.invocations == 0, f"{self.invocations} invocations cannot share {vectors} vec4"
        yield CHUNK % self.bk == 0, f"{CHUNK} words must be a multiple of bk = {self.bk}"
