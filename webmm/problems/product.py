"""What all products of matrices share: sizes, and the way the matrices lie in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from webmm.errors import ConfigError, ProblemError
from webmm.problems.base import Problem

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

    @property
    def flops(self) -> int:
        """Operations: a multiplication and an addition for each inner element."""
        return 2 * self.m * self.n * self.k * self.batch

    def check_sizes(self) -> None:
        """Raise ProblemError for a size below 1."""
        for name in ("m", "n", "k", "batch"):
            if getattr(self, name) < 1:
                raise ProblemError(f"{name} must be at least 1, not {getattr(self, name)}")

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


@dataclass(frozen=True)
class Operand:
    """How a batch of matrices lies in its buffer; every length is in elements.

    Element (row, column) of matrix `i` is at ``offset + i*batch_stride + row*ld + column``, with row and column
    swapped where `transposed`.
    """

    ld: int
    batch_stride: int = 0
    offset: int = 0
    transposed: bool = False

    def end(self, rows: int, columns: int, batch: int) -> int:
        """Return one past the last element of a batch of (rows, columns) matrices."""
        outer, inner = (columns, rows) if self.transposed else (rows, columns)
        return self.offset + (batch - 1) * self.batch_stride + (outer - 1) * self.ld + inner

    def vectorizable(self, rows: int, columns: int) -> bool:
        """Tell whether four neighbours along the contiguous axis can always be read as one vec4."""
        return self.aligned(rows, columns, 4)

    def aligned(self, rows: int, columns: int, elements: int) -> bool:
        """Tell whether what runs along the contiguous axis starts at, and is as long as, multiples of `elements`."""
        inner = rows if self.transposed else columns
        return not any(length % elements for length in (inner, self.ld, self.batch_stride, self.offset))


class Transposes(TypedDict):
    """Which operands of `gemm()` are stored transposed."""

    transpose_a: bool
    transpose_b: bool


def transposes(layout: str) -> Transposes:
    """Return what `gemm()` takes for a layout such as "nt"; raises ConfigError for an unknown one."""
    if layout not in LAYOUTS:
        raise ConfigError(f"unknown layout {layout!r}; choose from {', '.join(LAYOUTS)}")
    return {"transpose_a": layout[0] == "t", "transpose_b": layout[1] == "t"}


def layout_of(*operands: Operand) -> str:
    """Return how operands are stored: n as they are, t transposed."""
    return "".join("t" if operand.transposed else "n" for operand in operands)
