"""float64 on devices without f64: by exact products of slices (integer dot products), or by integer arithmetic."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from webmm.dtypes import F64
from webmm.kernels.base import Binding, Kernel, Scratch, Texture, ceil_div, fold, tunable
from webmm.kernels.gemm.base import GemmKernel, GemmLengths, Specialisation
from webmm.kernels.product import Grid
from webmm.kernels.sizes import Assumption, folded
from webmm.problems.gemm import Gemm
from webmm.wgsl.params import Vec2U, member

# Slices of 7 bits each, by precision: 56 bits, which hold the 53 of a double; or 42, for errors up to k·2⁻⁴⁰.
SLICES = {"highest": 8, "high": 6}
INEXACT = 99  # stored as a line's last slice if bits remain after all slices
CHUNK = 16384  # words of four products whose sums fit i32: 4 · 16384 · 127² < 2³¹
# Least Σ|a||b| of the first slices, in units of 2⁻¹⁴, for which a sum is accurate enough. With 8 slices, the omitted
# products are at most k·9.1·2⁻⁵⁶ times the lines' powers of two, and half of k·2⁻⁵² is allowed for k = 1, after the
# rounding of the result: 9.1/16·2·2¹⁴ = 18,637. With 6, k·7.1·2⁻⁴² is omitted and k·2⁻⁴⁰ allowed, compared with which a
# rounding is negligible: 7.1/4·2¹⁴ = 29,082.
ENOUGH = {"highest": 20480, "high": 30720}
LINES = 16  # rows of A or columns of B that a workgroup slices

PAIRS = "array<vec2u>"
TYPES = {  # of the bindings, by name
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
    """The uniform: sizes, then the numbers of the epilogue as pairs of words."""

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
    """The choices of GEMM kernels, the number of slices, and the sum of magnitudes for which they are accurate."""

    kept: int
    enough: int


@dataclass(frozen=True)
class DoubleKernel(GemmKernel):
    """A kernel that handles float64 as pairs of words."""

    params = DoubleParams
    integer = True
    fills: ClassVar[tuple[str, ...]] = ("c",)

    def unsuited(self, problem: Gemm) -> str | None:
        """Return why this kernel cannot compute `problem` on any device, or None: it is for float64."""
        return None if problem.dtype == F64 else f"multiplies {F64.name}, not {problem.dtype.name}"

    def workgroup_bytes_for(self, problem: Gemm) -> int:
        """Return `workgroup_bytes`: the tiles hold integers."""
        del problem
        return self.workgroup_bytes

    def words(self, number: float) -> tuple[int, int]:
        """Return the low and the high word of a constant, for templates."""
        return halves(number)

    def choices(self, problem: Gemm) -> DoubleSpecialisation:
        """Return the template choices for problems like `problem`, which depend on its precision."""
        base, of = vars(super().choices(problem)), problem.precision
        return DoubleSpecialisation(**base, kept=SLICES[of], enough=ENOUGH[of])

    def assumptions(self, choices: Specialisation) -> Iterator[Assumption]:
        """Yield for which k a loop over single k is short enough; these templates guard every tile."""
        yield from (each for each in super().assumptions(choices) if each.choice == "long_k")

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield the bindings named in `binds`, in that order."""
        names = (name for name in self.binds if name != "bias" or spec.bias)
        for number, name in enumerate(names, 1):
            written = name in self.fills
            wgsl = "array<u32>" if written and name.endswith("slices") else TYPES[name]  # written word by word
            yield Binding(number, name, "storage" if written else "read-only-storage", wgsl)


@dataclass(frozen=True)
class Software(DoubleKernel):
    """One element of C per invocation; each product and sum is rounded as in IEEE 754."""

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
    """Cut the lines of an operand, rows of A or columns of B, into slices."""

    name = "slice"
    summary = "an operand of float64 cut into slices"
    single_k = False
    inexact: ClassVar[int] = INEXACT
    at_once: ClassVar[int] = LINES

    side: str = tunable("a", ("a", "b"), "the operand to slice")
    step: int = tunable(8, (4, 8, 16), "words to a multiple of which lines of slices are padded")

    @property
    def binds(self) -> tuple[str, ...]:  # type: ignore[override]
        """The operand, its slices, and the exponents of its lines."""
        return (self.side, *self.fills)

    @property
    def fills(self) -> tuple[str, ...]:  # type: ignore[override]
        """The buffers that it writes."""
        return (f"{self.side}_slices", f"{self.side}_lines")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """LINES invocations for each of LINES lines."""
        return (LINES * LINES, 1, 1)

    @property
    def workgroup_bytes(self) -> int:
        """Four words per invocation."""
        return 16 * self.invocations

    def lines(self, problem: Gemm) -> tuple[int, int]:
        """Return the number of lines of a matrix, and of matrices."""
        operand, lines = (problem.a, problem.m) if self.side == "a" else (problem.b, problem.n)
        return lines, problem.batch if operand.batch_stride else 1

    def dispatch(self, problem: Gemm) -> tuple[int, int, int]:
        """Return the workgroup counts (x, y, z)."""
        lines, batch = self.lines(problem)
        return fold(ceil_div(lines, LINES), batch)

    def grid_rule(self, spec: Specialisation) -> dict[str, Any]:
        """Return the rule of `dispatch`."""
        del spec
        return folded(f"ceil({'m' if self.side == 'a' else 'n'} / {LINES})", self.matrices)

    @property
    def matrices(self) -> str:
        """The number of matrices, as a formula: one if all of the batch are the same."""
        return f"min(batch, 1 + (batch - 1) * {self.side}_batch_stride)"

    def iterations(self, problem: Gemm) -> int:
        """Return how many iterations its loops run, which go over k twice."""
        return ceil_div(problem.k, LINES) + 6 * (ceil_div(problem.k, 4 * LINES) + self.step) + 3 * LINES

    def scratch(self, problem: Gemm) -> tuple[Texture | Scratch, ...]:
        """Return its buffers: a byte per element and slice, k padded to whole steps; two words per line."""
        lines, batch = self.lines(problem)
        nbytes = 4 * self.step * ceil_div(problem.k, 4 * self.step) * SLICES[problem.precision] * lines * batch
        return Scratch(f"{self.side}_slices", nbytes), Scratch(f"{self.side}_lines", 8 * lines * batch)

    def scratch_rule(self, problem: Gemm) -> dict[str, Any]:
        """Return the rules of its buffers' bytes."""
        each = 4 * self.step * SLICES[problem.precision]
        lines = f"{'m' if self.side == 'a' else 'n'} * {self.matrices}"
        return {
            f"{self.side}_slices": f"{each} * ceil(k / {4 * self.step}) * {lines}",
            f"{self.side}_lines": f"8 * {lines}",
        }


@dataclass(frozen=True)
class FromSlices(DoubleKernel):
    """Round the sums of slices to C; elements that they do not give accurately enough are computed as in `software`."""

    name = "from_slices"
    summary = "sums of slices rounded to float64"
    binds = ("a", "b", "wide", "a_lines", "b_lines", "c", "bias")

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """One invocation per element of C."""
        return (16, 8, 1)

    @property
    def grid(self) -> Grid:
        """One workgroup per tile."""
        return Grid(8, 16)


@dataclass(frozen=True)
class Slices(DoubleKernel):
    """Multiply slices: products and sums are exact in integers, and only the result is rounded."""

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
        """A tile of slices of A and one of B."""
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
        """The dispatches that cut both operands into slices."""
        return Slice("a", self.bk), Slice("b", self.bk)

    @property
    def after(self) -> tuple[Kernel[Gemm], ...]:
        """The dispatch that rounds the sums."""
        return (FromSlices(),)

    def scratch(self, problem: Gemm) -> tuple[Texture | Scratch, ...]:
        """Return the buffers of the slices, and of four words per element of C."""
        cut = (left for kernel in self.before for left in kernel.scratch(problem))
        return (*cut, Scratch("wide", 16 * problem.m * problem.n * problem.batch))

    def scratch_rule(self, problem: Gemm) -> dict[str, Any]:
        """Return the rules of the buffers' bytes."""
        a, b = (kernel.scratch_rule(problem) for kernel in self.before)
        return {**a, **b, "wide": "16 * m * n * batch"}

    def iterations(self, problem: Gemm) -> int:
        """Return how many iterations its loops run: over k for each pair of slices, and for the magnitudes."""
        kept, steps = SLICES[problem.precision], ceil_div(problem.k, self.inner_step)
        pairs = kept * (kept + 1) // 2 + 1
        return pairs * steps + (kept + 1) * (2 + 2 * ceil_div(kept * steps * self.bk, CHUNK))

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Require whole fragments, and the same number of loads for every invocation."""
        for name, size, part in (("bm", self.bm, self.tm), ("bn", self.bn, self.tn)):
            yield size % part == 0, f"{name} = {size} must be a multiple of {part}"
            yield part % 4 == 0, f"tiles per invocation must be multiples of 4, not {part}"
            vectors = size * self.bk // 4
            yield vectors % self.invocations == 0, f"{self.invocations} invocations cannot share {vectors} vec4 evenly"
        yield CHUNK % self.bk == 0, f"{CHUNK} words must be a multiple of bk = {self.bk}"
