"""Floating-point matrix products with an epilogue."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, get_args

from webmm.config import Precision
from webmm.dtypes import F32, DType, dtype_of
from webmm.errors import ProblemError, UnsupportedError
from webmm.problems.base import Extent, check_floats
from webmm.problems.product import Operand, Product, layout_of, opened_spreads, spread_extents
from webmm.wgsl.epilogues import OWN, Terms

PRECISIONS = get_args(Precision)  # the default first
HIGH_F64 = 2.0**-40  # machine epsilon of float64 products at precision "high"


@dataclass(frozen=True)
class Gemm(Terms, Product):
    """C ← activation(alpha·A·B + bias) + beta·C for a batch of (m, k) and (k, n) matrices; `gemm()` builds dense ones.

    `bias` is "" for none, "column" for a vector with one element per column of C, "row" for one per row, or "matrix"
    for a dense (m, n) matrix in the accumulator's type and a batch of one, such as the sum over an earlier part of k.
    It starts at element `bias_offset` of its buffer. C is read only if beta is not 0. Products of float64 are float64.
    """

    m: int
    n: int
    k: int
    batch: int
    dtype: DType
    out_dtype: DType
    a: Operand
    b: Operand
    c: Operand
    bias_offset: int = 0
    precision: str = "highest"

    op: ClassVar[str] = "gemm"
    cuttable: ClassVar[tuple[str, ...]] = ("batch", "m", "n", "k")  # axes, in the order of preference

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.dtype.wide or self.out_dtype.wide):
            check_floats("float matrix products", self.dtype, self.out_dtype)
        elif self.dtype != self.out_dtype:
            raise ProblemError(
                f"a product of {self.dtype.name} cannot be stored as {self.out_dtype.name}; cast the result"
            )
        elif self.activation in OWN:
            raise UnsupportedError(
                f"{self.dtype.name} products do not support an Epilogue; map() applies it to the result as float32"
            )
        self.check_sizes()
        self.check_function()
        if self.precision not in PRECISIONS:
            raise ProblemError(f"precision must be {' or '.join(PRECISIONS)}, not {self.precision!r}")
        if self.bias == "matrix" and self.batch != 1:
            raise ProblemError(f"a matrix bias needs a single product, not a batch of {self.batch}")

    @property
    def variant(self) -> str:
        """The precision, or "" for the default."""
        return "" if self.precision == PRECISIONS[0] else self.precision

    @property
    def eps(self) -> float:
        """The machine epsilon of the error bound k·eps·(|A|·|B|)."""
        return HIGH_F64 if self.dtype.wide and self.precision == "high" else super().eps

    @property
    def layout(self) -> str:
        """The storage of A and B: n for row-major, t for transposed."""
        return layout_of(self.a, self.b)

    @cached_property
    def by_fours(self) -> tuple[bool, bool, bool]:
        """Whether A, B and C can be accessed as vec4 throughout."""
        a, b, c = (operand.vectorizable(rows, columns) for _, operand, rows, columns in self.operands())
        return a, b, c

    @property
    def vec_c(self) -> bool:
        """Whether C can be stored by vec4."""
        return self.by_fours[2]

    def operands(self) -> tuple[tuple[str, Operand, int, int], ...]:
        """Return (name, operand, rows, columns) of A, B and C."""
        return (
            ("A", self.a, self.m, self.k),
            ("B", self.b, self.k, self.n),
            ("C", self.c, self.m, self.n),
        )

    @property
    def axes(self) -> tuple[tuple[str, str], ...]:
        """The axes between and along the stored rows of A, B and C; k is summed."""
        named = zip((self.a, self.b, self.c), (("m", "k"), ("k", "n"), ("m", "n")), strict=True)
        return tuple((inner, outer) if operand.transposed else (outer, inner) for operand, (outer, inner) in named)

    @property
    def sums_apart(self) -> bool:
        """Whether partial sums over k accumulate outside C: it has another type, or a term needs the whole sum."""
        return self.needs_whole_sum or self.out_dtype != self.dtype.sums

    def cut(self, axis: str, start: int, length: int) -> Gemm:
        """Return the product of [start, start + length) along `axis`, in the same buffers."""
        moved = []
        for operand, (outer, inner) in zip((self.a, self.b, self.c), self.axes, strict=True):
            step = {"batch": operand.batch_stride, outer: operand.ld, inner: 1}.get(axis, 0)
            moved.append(replace(operand, offset=operand.offset + start * step))
        a, b, c = moved
        assert (self.bias, axis) != ("matrix", "n"), "its rows are n elements apart"
        step = {("row", "m"): 1, ("column", "n"): 1, ("matrix", "m"): self.n}.get((self.bias, axis), 0)
        sizes: dict[str, Any] = {axis: length}
        spreads = tuple(spread.moved(axis, start) for spread in self.spreads)
        return replace(self, a=a, b=b, c=c, bias_offset=self.bias_offset + start * step, spreads=spreads, **sizes)

    def buffers(self) -> tuple[Extent, ...]:
        """Return A, B, C, the bias if there is one, and the operands of the epilogue's function."""
        dtypes = (self.dtype, self.dtype, self.out_dtype)
        extents = [
            Extent(name.lower(), dtype, operand.end(rows, columns, self.batch), name == "C", operand.offset)
            for dtype, (name, operand, rows, columns) in zip(dtypes, self.operands(), strict=True)
        ]
        if self.bias:
            length = {"row": self.m, "column": self.n, "matrix": self.m * self.n}[self.bias]
            dtype = self.dtype.sums if self.bias == "matrix" else self.dtype
            extents.append(Extent("bias", dtype, self.bias_offset + length, start=self.bias_offset))
        return (*extents, *spread_extents(self))

    def within(self, firsts: tuple[int, ...]) -> Gemm:
        """Return the problem with `firsts`, numbers of elements, subtracted from the offsets into its buffers."""
        a, b, c = (
            replace(operand, offset=operand.offset - first)
            for (_, operand, _, _), first in zip(self.operands(), firsts, strict=False)
        )
        more = firsts[3:]
        bias_offset = self.bias_offset - (more[0] if self.bias else 0)
        return replace(
            self,
            a=a,
            b=b,
            c=c,
            bias_offset=bias_offset,
            spreads=opened_spreads(self.spreads, more[1 if self.bias else 0 :]),
        )

    @property
    def bytes(self) -> int:
        """The minimum of bytes to move: each operand read once, the result written once."""
        inputs = (self.m * self.k + self.k * self.n) * self.dtype.itemsize
        read = sum((x.end - x.start) * x.dtype.itemsize for x in spread_extents(self))
        return (inputs + self.m * self.n * self.out_dtype.itemsize) * self.batch + read


def gemm(
    m: int,
    n: int,
    k: int,
    *,
    dtype: DType | str = F32,
    out_dtype: DType | str | None = None,
    batch: int = 1,
    transpose_a: bool = False,
    transpose_b: bool = False,
    precision: str = PRECISIONS[0],
) -> Gemm:
    """Return the problem C (m, n) = A (m, k) · B (k, n) for dense row-major matrices.

    With `transpose_a`, A is stored as (k, m); with `transpose_b`, B is stored as (n, k). Raises ProblemError for a size
    below 1, and for an unsupported dtype or precision.
    """
    dtype = dtype_of(dtype)
    return Gemm(
        m,
        n,
        k,
        batch,
        dtype,
        dtype if out_dtype is None else dtype_of(out_dtype),
        a=Operand(m if transpose_a else k, m * k, transposed=transpose_a),
        b=Operand(k if transpose_b else n, k * n, transposed=transpose_b),
        c=Operand(n, m * n),
        precision=precision,
    )
