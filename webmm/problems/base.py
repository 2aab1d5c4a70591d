"""What every problem has: buffers, sizes, and what it costs at least.

A problem says what to compute, apart from how: sizes, element types, and the way the operands lie in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from webmm.dtypes import MATRIX_DTYPES, DType, names
from webmm.errors import ProblemError

ALIGNMENT = 256  # bytes at whose multiples a binding may start on every device


@dataclass(frozen=True)
class Extent:
    """A buffer that a problem needs: its name in shaders, element type, and which elements are reached, [start, end).

    Of a buffer that is larger than a binding may be, shaders see the window around that range, and count elements from
    where it opens. One that is `windowed` starts where its window does: no uniform has its offset.
    """

    name: str
    dtype: DType
    end: int
    written: bool = False
    start: int = 0
    windowed: bool = False

    @property
    def first(self) -> int:
        """The element at which the window opens: the last one before `start` at which a binding may."""
        step = ALIGNMENT // self.dtype.itemsize
        return self.start // step * step

    @property
    def offset(self) -> int:
        """Bytes before the window."""
        return self.first * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes in the window: whole vec4, as buffers have."""
        return -(-self.end * self.dtype.itemsize // 16) * 16 - self.offset


def windowed(extents: tuple[Extent, ...], starts: tuple[int, ...]) -> tuple[Extent, ...]:
    """Return `extents` moved to where each starts, if `starts` says so: at elements where a binding may."""
    moved = zip(extents, starts, strict=True) if starts else ()
    return tuple(replace(e, start=start, end=start + e.end, windowed=True) for e, start in moved) or extents


def opened_at(firsts: tuple[int, ...], starts: tuple[int, ...]) -> tuple[int, ...]:
    """Return `starts` seen from windows that open at `firsts`: they are there, or no kernel finds them."""
    if starts and firsts != starts:
        raise ProblemError(f"an operand starts at {starts}, which is not aligned for a binding; copy it to a new array")
    return ()


class Problem(ABC):
    """Something to compute. Subclasses are frozen dataclasses, checked on construction."""

    op: ClassVar[str]
    dtype: DType  # of what it reads

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, int, int, int]:
        """The sizes (m, n, k, batch) of its records."""

    @property
    def layout(self) -> str:
        """How its operands are stored, in letters of the op's own; empty where there is but one way."""
        return ""

    @property
    def variant(self) -> str:
        """Which of several things the op may be; empty where it is but one."""
        return ""

    @abstractmethod
    def buffers(self) -> tuple[Extent, ...]:
        """Return the buffers, in the order in which arrays are given to `Device.run()`."""

    def within(self, firsts: tuple[int, ...]) -> Problem:
        """Return the problem with the offset into each of its buffers less the given number of elements.

        Problems whose operands may lie anywhere in a buffer say how; others start at 0.
        """
        assert not any(firsts), f"{self.op} cannot start within a buffer"
        return self

    @property
    @abstractmethod
    def flops(self) -> int:
        """Arithmetic operations."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Bytes that must move at least: each operand read once, the result written once."""

    @property
    def features(self) -> frozenset[str]:
        """WebGPU features that storing these element types needs."""
        return frozenset().union(*(extent.dtype.features for extent in self.buffers()))


def check_floats(what: str, *dtypes: DType) -> None:
    """Raise ProblemError, naming `what` takes them, for a dtype that shaders do not compute with as floats."""
    for dtype in dtypes:
        if dtype not in MATRIX_DTYPES:
            raise ProblemError(f"dtype {dtype.name} is not supported by {what}; cast to one of {names(MATRIX_DTYPES)}")
