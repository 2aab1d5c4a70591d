"""The base class of problems: buffers, sizes, and the minimum of operations and bytes.

A problem describes what to compute, independent of the kernel: sizes, element types, and the layout of the operands in
memory.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property, wraps
from typing import Any, ClassVar

import numpy as np

from webmm.dtypes import BYTES, MATRIX_DTYPES, DType, names
from webmm.errors import ProblemError

FLOATS = (float, np.floating)
ALIGNMENT = 256  # bytes; a binding may start at its multiples on every device


@dataclass(frozen=True)
class Extent:
    """A buffer that a problem needs: its name in shaders, element type, and range of accessed elements, [start, end).

    The binding covers a window around that range, so that a buffer may be larger than a binding; shaders index elements
    from the start of the window. A `windowed` buffer starts exactly there and needs no offset in the uniform.
    """

    name: str
    dtype: DType
    end: int
    written: bool = False
    start: int = 0
    windowed: bool = False

    @property
    def first(self) -> int:
        """The first element of the window: the last element up to `start` at which a binding may start."""
        step = ALIGNMENT // self.dtype.itemsize
        return self.start // step * step

    @property
    def offset(self) -> int:
        """The offset of the window, in bytes."""
        return self.first * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The size of the window in bytes, rounded up to whole vec4, as buffers are."""
        return -(-self.end * self.dtype.itemsize // 16) * 16 - self.offset

    def binding(self, size: int, most: int) -> tuple[int, int, int]:
        """Return offset and bytes of the binding in a buffer of `size` bytes, and the first element that it covers.

        It is of the whole buffer if a binding may have `most` bytes, so that shaders for parts of it can share it.
        """
        if size <= most and not (self.windowed and self.first):
            return 0, size, 0
        return self.offset, min(self.nbytes, size - self.offset), self.first


def windowed(extents: tuple[Extent, ...], starts: tuple[int, ...]) -> tuple[Extent, ...]:
    """Return `extents` moved to the elements `starts`, at which bindings may start; unchanged if `starts` is empty."""
    moved = zip(extents, starts, strict=True) if starts else ()
    return tuple(replace(e, start=start, end=start + e.end, windowed=True) for e, start in moved) or extents


def opened_at(firsts: tuple[int, ...], starts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the new `starts`, (), after windows opened at `firsts`; raises ProblemError if these are not `starts`."""
    if starts and firsts != starts:
        raise ProblemError(f"an operand starts at {starts}, which is not aligned for a binding; copy it to a new array")
    return ()


def _exact(x: Any) -> Any:
    """Return a float by its bits, also one of a tuple."""
    if isinstance(x, tuple):
        return tuple([_exact(each) for each in x])
    return struct.pack("<d", x) if isinstance(x, FLOATS) else x


@cache
def _fields(problem: type[Problem]) -> tuple[str, ...]:
    """Return the names of a problem's fields; every call of an op asks for them."""
    return tuple(each.name for each in fields(problem))  # type: ignore[arg-type]


def _kept(method: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    """Return a method without arguments that keeps its result in the object, as a cached_property does."""

    @wraps(method)
    def keeping(self: Any) -> Any:
        known = vars(self)
        if name not in known:
            known[name] = method(self)
        return known[name]

    return keeping


class Problem(ABC):
    """A computation. Subclasses are frozen dataclasses, which are checked on construction."""

    op: ClassVar[str]
    dtype: DType  # of the operands

    def __init_subclass__(cls, **settings: Any) -> None:
        """Let the problems of a subclass compare by `identity`: its dataclass decorator keeps methods that it finds.

        What `buffers()` returns is kept: the choice of a kernel and its launch ask for it a dozen times.
        """
        super().__init_subclass__(**settings)
        if "buffers" in vars(cls):
            cls.buffers = _kept(cls.buffers, f"buffers of {cls.__module__}.{cls.__qualname__}")  # type: ignore[assignment,method-assign]
        for method in (Problem.__eq__, Problem.__hash__):
            setattr(cls, method.__name__, method)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Problem) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """The class and the values of the fields, with floats by their bits: 0.0 == -0.0, and NaN != NaN.

        Caches are keyed by problems, and a cached uniform or part of a product holds the numbers themselves.
        """
        values = [getattr(self, name) for name in _fields(type(self))]
        return (type(self), *[_exact(x) for x in values])

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, int, int, int]:
        """The sizes (m, n, k, batch), as stored in records."""

    @property
    def layout(self) -> str:
        """The layout of the operands, in letters that the op defines; empty if there is only one."""
        return ""

    @property
    def variant(self) -> str:
        """The variant of the op; empty if it has none."""
        return ""

    @abstractmethod
    def buffers(self) -> tuple[Extent, ...]:
        """Return the buffers, in the order of the arrays of `Device.run()`."""

    def within(self, firsts: tuple[int, ...]) -> Problem:
        """Return the problem with `firsts`, numbers of elements, subtracted from the offsets into its buffers.

        Problems with offsets override this; all others start at 0.
        """
        assert not any(firsts), f"{self.op} cannot start within a buffer"
        return self

    def element_of(self, name: str) -> str:
        """Return the name of an element of a buffer, as in formulas of its place."""
        return f"{name}[i]"

    @property
    @abstractmethod
    def flops(self) -> int:
        """The number of arithmetic operations."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """The minimum of bytes to move: each operand read once, the result written once."""

    @property
    def features(self) -> frozenset[str]:
        """The WebGPU features that the element types require."""
        return frozenset(feature for extent in self.buffers() for feature in extent.dtype.features)


def check_floats(what: str, *dtypes: DType) -> None:
    """Raise ProblemError for a dtype that is not in MATRIX_DTYPES; the message names the op, `what`."""
    for dtype in dtypes:
        if dtype not in MATRIX_DTYPES:
            advice = "; qmatmul() multiplies int8 and uint8" if dtype in BYTES else ""
            raise ProblemError(
                f"dtype {dtype.name} is not supported by {what}; cast to one of {names(MATRIX_DTYPES)}{advice}"
            )
