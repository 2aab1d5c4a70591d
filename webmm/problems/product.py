"""The common part of all matrix products: sizes, and the layout of the matrices in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypedDict

from webmm.errors import ConfigError, ProblemError
from webmm.problems.base import Extent, Problem
from webmm.wgsl.epilogues import Spread

LAYOUTS = ("nn", "nt", "tn", "tt")


class Product(Problem):
    """A problem whose result is a batch of (m, n) matrices, each element a sum over k."""

    m: int
    n: int
    k: int
    batch: int

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The sizes (m, n, k, batch)."""
        return self.m, self.n, self.k, self.batch

    def element_of(self, name: str) -> str:
        """Return the name of an element of a buffer: of a matrix, or of one with a value per row or column."""
        indices = {"a": "A[row, column]", "b": "B[row, column]", "c": "C[row, column]"}
        whose = {"row_terms": "term of row", "column_terms": "term of column", "bias": "the bias of C[row, column]"}
        operand = f"element of {name} for C[row, column]" if name.startswith("y") else ""
        return indices.get(name) or operand or whose.get(name) or f"that of W[row, column] in {name}"

    @property
    def flops(self) -> int:
        """The number of operations: a multiplication and an addition for each term of a sum."""
        return 2 * self.m * self.n * self.k * self.batch

    @property
    def eps(self) -> float:
        """The machine epsilon of the error bound k·eps·(|A|·|B|)."""
        return self.dtype.sums.eps

    @property
    def vec_c(self) -> bool:
        """Whether C can be stored by vec4."""
        return self.n % 4 == 0

    def check_sizes(self) -> None:
        """Raise ProblemError for a size below 1."""
        for name in ("m", "n", "k", "batch"):
            if getattr(self, name) < 1:
                raise ProblemError(f"{name} must be at least 1, not {getattr(self, name)}")

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


def spread_extents(p: Any) -> tuple[Extent, ...]:
    """Return the operands of the function that the product `p` applies, in their buffers."""
    spreads: tuple[Spread, ...] = p.spreads
    return tuple(Extent(f"y{i}", x.dtype, x.end(p.m, p.n, p.batch), start=x.offset) for i, x in enumerate(spreads))


def opened_spreads(spreads: tuple[Spread, ...], firsts: tuple[int, ...]) -> tuple[Spread, ...]:
    """Return operands with `firsts`, numbers of elements, subtracted from the offsets into their buffers."""
    return tuple(replace(x, offset=x.offset - first) for x, first in zip(spreads, firsts, strict=True))


@dataclass(frozen=True)
class Operand:
    """The layout of a batch of matrices in its buffer, in elements.

    Element (row, column) of matrix `i` is at ``offset + i*batch_stride + row*ld + column``, with row and column
    swapped if `transposed`.
    """

    ld: int
    batch_stride: int = 0
    offset: int = 0
    transposed: bool = False

    def end(self, rows: int, columns: int, batch: int) -> int:
        """Return the index after the last element of a batch of (rows, columns) matrices."""
        outer, inner = (columns, rows) if self.transposed else (rows, columns)
        return self.offset + (batch - 1) * self.batch_stride + (outer - 1) * self.ld + inner

    def vectorizable(self, rows: int, columns: int) -> bool:
        """Return whether every four adjacent elements along the contiguous axis can be accessed as one vec4."""
        return self.aligned(rows, columns, 4)

    def aligned(self, rows: int, columns: int, elements: int) -> bool:
        """Return whether stored rows start at multiples of `elements`, and their length is a multiple, too."""
        inner = rows if self.transposed else columns
        return not any(length % elements for length in (inner, self.ld, self.batch_stride, self.offset))


class Transposes(TypedDict):
    """Keyword arguments of `gemm()` that say which operands are stored transposed."""

    transpose_a: bool
    transpose_b: bool


def transposes(layout: str) -> Transposes:
    """Return the arguments of `gemm()` for a layout such as "nt"; raises ConfigError for an unknown one."""
    if layout not in LAYOUTS:
        raise ConfigError(f"unknown layout {layout!r}; choose from {', '.join(LAYOUTS)}")
    return {"transpose_a": layout[0] == "t", "transpose_b": layout[1] == "t"}


def layout_of(*operands: Operand) -> str:
    """Return the storage of operands, a letter each: n for row-major, t for transposed."""
    return "".join("t" if operand.transposed else "n" for operand in operands)


def partial_bytes(problem: Product, parts: int) -> int:
    """Return the bytes of the partial sums of `parts` parts of k: rows of whole vec4, (batch, parts, m, n)."""
    row = 4 * -(-problem.n // 4) * problem.dtype.sums.itemsize
    return row * problem.m * parts * problem.batch
