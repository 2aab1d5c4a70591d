"""Shapes and layouts of arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from webmm.dtypes import DType, dtype_of
from webmm.errors import ProblemError

Shape = tuple[int, ...]
PYTHON = (list, tuple, range, bool, int, float)  # data without a dtype
NARROW = {"f": "float32", "i": "int32"}  # by the kind of NumPy's dtype of such data, which has 64 bits
# Data of which NumPy would keep the values only, by library and class: what is lost, and what to write.
LOSSY = {
    ("numpy", "MaskedArray"): "its mask would be lost; write x.filled(value)",
    ("numpy", "matrix"): "its * is a product and its rows stay matrices, which would be lost; write np.asarray(x)",
    ("pandas", "NDFrame"): "its labels would be lost; write x.to_numpy(dtype='float32')",
    ("pandas", "Index"): "it is an index; write x.to_numpy(dtype='float32')",
    ("polars", "DataFrame"): "its labels would be lost; write x.to_numpy()",
    ("polars", "Series"): "its name and missing values would be lost; write x.to_numpy()",
    ("pyarrow", "_Tabular"): "its labels would be lost; write a column's .to_numpy()",
    ("xarray", "DataArray"): "its labels would be lost; write x.to_numpy()",
    ("xarray", "Dataset"): "its labels would be lost; write a variable's .to_numpy()",
    ("scipy", "_spbase"): "it is sparse; write x.toarray()",
}


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


def host_array(x: Any, *, wide: bool = False) -> NDArray[Any]:
    """Return `x` as a NumPy array, without a copy if possible; Python numbers as float32 or int32, unless `wide`.

    Raises ProblemError for data that is more than its values, such as masked arrays and tables with labels, for lists
    that are no arrays, and for Python integers beyond int32.
    """
    if type(x) is np.ndarray:
        return x
    check_plain(x)
    try:
        host = np.asarray(x)
    except ValueError as error:
        raise ProblemError(f"the {type(x).__name__} is not an array: {error}") from error
    if wide or not isinstance(x, PYTHON) or _leaf_has_dtype(x) or host.dtype.kind not in NARROW:
        return host
    narrow = host.astype(NARROW[host.dtype.kind])
    if host.dtype.kind == "i" and (narrow != host).any():
        raise ProblemError("an integer of the list does not fit int32; pass an array of floats")
    return narrow


def check_plain(x: Any) -> None:
    """Raise ProblemError for data of which only the values would be kept; the message says what to write."""
    for each in type(x).__mro__:
        library = each.__module__.partition(".")[0]
        if (library, each.__name__) in LOSSY:
            raise ProblemError(f"{type(x).__name__} is not taken as an array: {LOSSY[library, each.__name__]}")


def _leaf_has_dtype(x: Any) -> bool:
    while isinstance(x, (list, tuple)) and x:
        x = x[0]
    return hasattr(x, "dtype")


def span_of(x: Strided, itemsize: int) -> tuple[int, int]:
    """Return the first of the consecutive elements that are read back for an array with elements, and their number.

    Copies start at multiples of four bytes, so that there may be up to three before its own.
    """
    reach = [(length - 1) * stride for length, stride in zip(x.shape, x.strides, strict=True)]
    first = x.offset + sum(min(0, far) for far in reach)
    skipped = first * itemsize % 4 // itemsize
    return first - skipped, skipped + sum(abs(far) for far in reach) + 1


def dense_strides(shape: Shape) -> Shape:
    """Return the strides, in elements, of a row-major array of `shape`."""
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def is_dense(x: Shaped) -> bool:
    """Return whether the elements of an array on a device are in row-major order without gaps."""
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
