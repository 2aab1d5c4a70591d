"""Elementwise expressions of several arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from webmm.dtypes import COMPUTED, DType, names
from webmm.errors import ProblemError
from webmm.problems.base import Extent, Problem

AXES = 4
MAX_OPERANDS = 4
MAX_NUMBERS = 4
Quad = tuple[int, int, int, int]


@dataclass(frozen=True)
class Strided:
    """The layout of an array in its buffer, over the axes of the result: element i is at offset + i·strides."""

    dtype: DType
    strides: Quad
    offset: int = 0

    def end(self, lengths: Quad) -> int:
        """Return the index after the last element of an array of these lengths."""
        return self.offset + 1 + sum((n - 1) * stride for n, stride in zip(lengths, self.strides, strict=True))


@dataclass(frozen=True)
class Expression(Problem):
    """y[i] ← an expression of x0[i], x1[i], … and of numbers s0, s1, …, for each index i within `lengths`.

    `text` is the expression (see `webmm.wgsl.expressions`) and `wgsl` its translation, whose value has the type `kind`:
    f32, i32 or bool. `numbers` are the bits of s0, s1, …, all of type `number_kind`: f32 or i32. If `taken` is not 0,
    x0 is gathered: its element for i is x1[i]·taken elements further, with x1[i] clamped to [0, taken_length). With
    `put`, y is scattered so instead, to elements that must differ.
    """

    text: str
    wgsl: str
    kind: str
    lengths: Quad
    operands: tuple[Strided, ...]
    y: Strided
    numbers: tuple[int, ...] = ()
    number_kind: str = "f32"
    taken: int = 0
    taken_length: int = 1
    put: bool = False

    op: ClassVar[str] = "elementwise"

    def __post_init__(self) -> None:
        if len(self.operands) > MAX_OPERANDS or len(self.numbers) > MAX_NUMBERS:
            raise ProblemError(f"an expression has at most {MAX_OPERANDS} arrays and {MAX_NUMBERS} numbers")
        for each in (*self.operands, self.y):
            if each.dtype not in COMPUTED:
                raise ProblemError(
                    f"dtype {each.dtype.name} is not supported by expressions; cast to one of {names(COMPUTED)}"
                )

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """The dtype of the first operand, or of the result if there is no operand."""
        return self.operands[0].dtype if self.operands else self.y.dtype

    @property
    def size(self) -> int:
        """The number of elements of y."""
        a, b, c, d = self.lengths
        return a * b * c * d

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The number of elements."""
        return self.size, 1, 1, 1

    @property
    def variant(self) -> str:
        """The text of the expression."""
        return self.text

    def buffers(self) -> tuple[Extent, ...]:
        """Return x0, x1, … and y."""
        reach = (self.taken_length - 1) * self.taken
        far, further = (0, reach) if self.put else (reach, 0)
        reached = [x.end(self.lengths) + (far if i == 0 else 0) for i, x in enumerate(self.operands)]
        return (
            *(Extent(f"x{i}", x.dtype, reached[i], start=x.offset) for i, x in enumerate(self.operands)),
            Extent("y", self.y.dtype, self.y.end(self.lengths) + further, written=True, start=self.y.offset),
        )

    def within(self, firsts: tuple[int, ...]) -> Expression:
        """Return the problem with `firsts`, numbers of elements, subtracted from the offsets into its buffers."""
        moved = [replace(x, offset=x.offset - first) for x, first in zip((*self.operands, self.y), firsts, strict=True)]
        return replace(self, operands=tuple(moved[:-1]), y=moved[-1])

    @property
    def flops(self) -> int:
        """The number of elements, each counted as one operation."""
        return self.size

    @property
    def bytes(self) -> int:
        """The bytes to move: for each element of y, one element of each operand read and one written."""
        return self.size * sum(x.dtype.itemsize for x in (*self.operands, self.y))

    def __str__(self) -> str:
        return f"{self.text} of {self.size}"
