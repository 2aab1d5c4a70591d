"""Shapes and layouts of arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from webmm.dtypes import DType, dtype_of

Shape = tuple[int, ...]


class Shaped(Protocol):
    """An array in host memory or on a device; strides count elements on a device, bytes in NumPy."""

    @property
    def shape(self) -> Shape:
        """The lengths of its axes."""

    @property
    def ndim(self) -> int:
        """The number of axes."""

    @property
    def dtype(self) -> Any:
        """The type of its elements."""

    @property
    def strides(self) -> Shape:
        """The step along each axis."""


class Strided(Shaped, Protocol):
    """An array on a device: a view of a buffer."""

    @property
    def offset(self) -> int:
        """The first element in the buffer."""

    @property
    def mT(self) -> Any:  # noqa: N802
        """Its matrices, transposed."""


@dataclass(frozen=True)
class Layout:
    """Where the elements of a view are in a buffer, in elements."""

    shape: Shape
    strides: Shape
    offset: int


def element_of(x: Shaped) -> DType:
    """Return the dtype of an array; raises ProblemError for a dtype that no kernel supports."""
    return x.element if hasattr(x, "element") else dtype_of(x.dtype)


def dense_strides(shape: Shape) -> Shape:
    """Return the strides, in elements, of a row-major array of `shape`."""
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def is_dense(x: Strided) -> bool:
    """Return whether the elements are in row-major order without gaps."""
    axes = zip(x.shape, x.strides, dense_strides(x.shape), strict=True)
    return all(length == 1 or stride == dense for length, stride, dense in axes)


def broadcast_shape(a: Shape, b: Shape) -> Shape | None:
    """Return the broadcast shape of two batches by NumPy's rules, or None if they do not broadcast."""
    result = []
    longest = max(len(a), len(b))
    padded = [(1,) * (longest - len(shape)) + shape for shape in (a, b)]
    for x, y in zip(*padded, strict=True):
        if x != y and 1 not in (x, y):
            return None
        result.append(y if x == 1 else x)
    return tuple(result)


def merged(axes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (length, stride) of axes without those of length 1, merging adjacent axes that one stride covers."""
    return [(length, strides[0]) for length, strides in merged_jointly((n, [stride]) for n, stride in axes)]


def merged_jointly(axes: Iterable[tuple[int, list[int]]]) -> list[tuple[int, list[int]]]:
    """Return the same for the strides of several arrays, where one stride of each covers the axes."""
    found: list[tuple[int, list[int]]] = []
    for length, strides in axes:
        if length == 1:
            continue
        if found and found[-1][1] == [stride * length for stride in strides]:
            outer, _ = found.pop()
            found.append((outer * length, strides))
        else:
            found.append((length, strides))
    return found


def reshaped(shape: Shape, strides: Shape, lengths: Shape) -> Shape | None:
    """Return the strides of the same elements, in row-major order, as an array of `lengths`; None if it takes a copy.

    Both shapes have the same number of elements. Axes that one stride covers may be divided in any way; no axis of the
    result can reach across two of them.
    """
    if 0 in shape:
        return dense_strides(lengths)
    runs = merged(zip(shape, strides, strict=True))
    found = []
    for length in reversed(lengths):
        whole, stride = runs.pop() if runs and length > 1 else (1, 1)
        if whole % length:
            return None
        found.append(stride)
        if whole > length:
            runs.append((whole // length, stride * length))
    return tuple(reversed(found))
