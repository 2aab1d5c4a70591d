"""Matrix products of quantised 8-bit integers; `webmm.problems.scheme` defines the arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from webmm.dtypes import BYTES, F32, I32, DType
from webmm.errors import ProblemError
from webmm.problems.base import Extent, opened_at, windowed
from webmm.problems.product import Operand, Product, layout_of
from webmm.problems.scheme import Numbers, Scheme, single


@dataclass(frozen=True)
class Quantized(Product):
    """C ← A·B for 8-bit integers, (m, k) and (k, n), with zero points; see `webmm.problems.scheme` for the arithmetic.

    `out_dtype` is int8 or uint8 (requantised), int32 (the sums), or float32 (dequantised). C is dense and row-major.
    A zero point is a number, or None for one per row of A (per column of B). The multiplier of the sums is (mantissa,
    shift) in fixed point for an 8-bit result, and (bits of a float32, 0) for float32. It is the same for all elements,
    or has a factor for each row (`scaled_rows`), each column (`scaled_columns`), or both. Values per row are in the
    buffer `row_terms`, values per column in `column_terms`, four int32 each: zero point, mantissa, shift, column bias.
    """

    m: int
    n: int
    k: int
    a_dtype: DType
    b_dtype: DType
    out_dtype: DType
    a: Operand
    b: Operand
    zero_a: int | None = 0
    zero_b: int | None = 0
    zero_c: int = 0
    multiplier: tuple[int, int] = (0, 0)
    scaled_rows: bool = False
    scaled_columns: bool = False
    bias: bool = False
    starts: tuple[int, ...] = ()
    batch: int = field(default=1, init=False)

    op: ClassVar[str] = "quantized"

    def __post_init__(self) -> None:
        for name, dtype in (("a", self.a_dtype), ("b", self.b_dtype)):
            if dtype not in BYTES:
                raise ProblemError(
                    f"{name} is {dtype.name}; quantised operands must be uint8 or int8: webmm.quantize(x)"
                )
        if self.out_dtype not in (*BYTES, I32, F32):
            raise ProblemError(
                f"out_dtype {self.out_dtype.name} is not supported; choose int8, uint8, int32 or float32"
            )
        self.check_sizes()

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """The dtype of A."""
        return self.a_dtype

    @property
    def layout(self) -> str:
        """The storage of A and B: n for row-major, t for transposed."""
        return layout_of(self.a, self.b)

    @property
    def by_row(self) -> bool:
        """Whether there are values per row."""
        return self.zero_a is None or self.scaled_rows

    @property
    def by_column(self) -> bool:
        """Whether there are values per column."""
        return self.zero_b is None or self.scaled_columns or self.bias

    def buffers(self) -> tuple[Extent, ...]:
        """Return A, B and C, and the values per row and per column, if there are any."""
        return (
            Extent("a", self.a_dtype, self.a.end(self.m, self.k, 1), start=self.a.offset),
            Extent("b", self.b_dtype, self.b.end(self.k, self.n, 1), start=self.b.offset),
            *windowed(
                (
                    Extent("c", self.out_dtype, self.m * self.n, written=True),
                    *([Extent("row_terms", I32, 4 * self.m)] if self.by_row else []),
                    *([Extent("column_terms", I32, 4 * self.n)] if self.by_column else []),
                ),
                self.starts,
            ),
        )

    def within(self, firsts: tuple[int, ...]) -> Quantized:
        """Return the problem with `firsts`, numbers of elements, subtracted from the offsets into its buffers."""
        a, b = (replace(x, offset=x.offset - first) for x, first in zip((self.a, self.b), firsts, strict=False))
        return replace(self, a=a, b=b, starts=opened_at(firsts[2:], self.starts))

    @property
    def bytes(self) -> int:
        """The minimum of bytes to move: each operand read once, the result written once."""
        return self.m * self.k + self.k * self.n + self.m * self.n * self.out_dtype.itemsize


Factors = NDArray[np.int32] | None  # None for a factor of 1


def describe(
    m: int, n: int, k: int, a: tuple[DType, Operand], b: tuple[DType, Operand], scheme: Scheme, out: DType
) -> tuple[Quantized, list[NDArray[np.int32]]]:
    """Return the problem of an (m, n, k) product under `scheme`, and the contents of `row_terms` and `column_terms`."""
    row, column, multiplier = multipliers_of(scheme, out)
    problem = Quantized(
        *(m, n, k, a[0], b[0], out, a[1], b[1]),
        zero_a=single(scheme.zero_a),
        zero_b=single(scheme.zero_b),
        zero_c=scheme.zero_c,
        multiplier=multiplier,
        scaled_rows=row is not None,
        scaled_columns=column is not None,
        bias=scheme.bias is not None,
    )
    rows = [terms_of(m, scheme.zero_a, row, None)] if problem.by_row else []
    columns = [terms_of(n, scheme.zero_b, column, scheme.bias)] if problem.by_column else []
    return problem, [*rows, *columns]


# JavaScript has its own versions of these, too (`web/calls/scheme.js`)


def multipliers_of(scheme: Scheme, out: DType) -> tuple[Factors, Factors, tuple[int, int]]:
    """Return the factors of the multiplier per row and per column, two int32 each, or the only multiplier."""
    if out == I32:
        return None, None, (0, 0)
    if out in BYTES:
        row, column = (None if factor is None else factor.pairs() for factor in scheme.multipliers())
    elif scheme.by_row and scheme.by_column:
        row, column = _bits(scheme.scale_a), _bits(scheme.scale_b)
    else:
        whole = _bits(scheme.scale_a * scheme.scale_b)
        row, column = (whole, None) if scheme.by_row else (None, whole)
    if scheme.by_row or scheme.by_column:
        return row, column, (0, 0)
    assert column is not None
    return None, None, (int(column[0]), int(column[1]))


def _bits(x: NDArray[np.float32]) -> NDArray[np.int32]:
    bits = np.asarray(x, np.float32).view(np.int32)
    return np.stack([bits, np.zeros_like(bits)], -1)


def terms_of(length: int, zero: Numbers, multiplier: Factors, bias: Numbers | None) -> NDArray[np.int32]:
    """Return the values of rows or columns: zero point, multiplier and bias of each, four int32."""
    terms = np.zeros((length, 4), np.int32)
    terms[:, 0] = zero
    if multiplier is not None:
        terms[:, 1:3] = multiplier
    if bias is not None:
        terms[:, 3] = bias
    return terms
