"""Expressions of elements of several arrays."""

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
    """How an array lies in its buffer, over the axes of the result: element i is at offset + i·strides."""

    dtype: DType
    strides: Quad
    offset: int = 0

    def end(self, lengths: Quad) -> int:
        """Return one past the last element of an array of these lengths."""
        return self.offset + 1 + sum((n - 1) * stride for n, stride in zip(lengths, self.strides, strict=True))


@dataclass(frozen=True)
class Expression(Problem):
    """y[i] ← an expression of x0[i], x1[i], … and of numbers s0, s1, …, for i within `lengths`.

    `text` says what it means (`webmm.expressions`), `wgsl` is the same for shaders, and has a value of `kind`: f32, i32
    or bool. `numbers` are the bits of s0, s1, …, which are all f32 or all i32: `number_kind`. Where `taken` is not 0,
    element x0[i] lies x1[i] times as many elements on, of `taken_length` that there are.
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
        """The type of the first operand, or of the result where there is none."""
        return self.operands[0].dtype if self.operands else self.y.dtype

    @property
    def size(self) -> int:
        """Elements of y."""
        a, b, c, d = self.lengths
        return a * b * c * d

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The number of elements."""
        return self.size, 1, 1, 1

    @property
    def variant(self) -> str:
        """The expression."""
        return self.text

    def buffers(self) -> tuple[Extent, ...]:
        """Return x0, x1, … and y."""
        reach = (self.taken_length - 1) * self.taken
        reached = [x.end(self.lengths) + (reach if i == 0 else 0) for i, x in enumerate(self.operands)]
        return (
            *(Extent(f"x{i}", x.dtype, reached[i], start=x.offset) for i, x in enumerate(self.operands)),
            Extent("y", self.y.dtype, self.y.end(self.lengths), written=True, start=self.y.offset),
        )

    def within(self, firsts: tuple[int, ...]) -> Expression:
        """Return the problem with the offset into each of its buffers less the given number of elements."""
        moved = [replace(x, offset=x.offset - first) for x, first in zip((*self.operands, self.y), firsts, strict=True)]
        return replace(self, operands=tuple(moved[:-1]), y=moved[-1])

    @property
    def flops(self) -> int:
        """Elements."""
        return self.size

    @property
    def bytes(self) -> int:
        """Each element read once, as often as it is repeated, and written once."""
        return self.size * sum(x.dtype.itemsize for x in (*self.operands, self.y))

    def __str__(self) -> str:
        return f"{self.text} of {self.size}"
