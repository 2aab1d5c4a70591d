"""Operands and results of calls that are cut into pieces."""

from __future__ import annotations

from webmm.arguments.arrays import Shape, Strided, element_of, is_dense
from webmm.cut.streams import BATCH
from webmm.kernels.base import INDEX_LIMIT
from webmm.problems.base import Extent


def product_axes(shape: Shape, axes: str, batch: int) -> str:
    """Return the letters of the axes of an operand or a result of products: the last ones are `axes`.

    The products' `batch` axes have the first of the `BATCH` letters; an axis of length 1, which broadcasts, has "1".
    """
    own = shape[: max(len(shape) - len(axes), 0)]
    letters = zip(BATCH[batch - len(own) :], own, strict=False)
    return "".join("1" if length == 1 else letter for letter, length in letters) + axes


def in_place(x: Strided, binding: int, anywhere: bool, written: bool) -> bool:
    """Return whether kernels can read, or write, an array without a copy, with bindings of at most `binding` bytes.

    If they accept it `anywhere`, it may start at any element and have any non-negative strides; else it must be dense,
    as results are, and start where a binding may.
    """
    if any(stride < 0 for stride in x.strides):
        return False
    reach = sum((length - 1) * stride for length, stride in zip(x.shape, x.strides, strict=True))
    extent = Extent("", element_of(x), x.offset + reach + 1, start=x.offset)
    if extent.nbytes > binding or extent.end - extent.first > INDEX_LIMIT:
        return False
    return (anywhere and not written) or (is_dense(x) and (anywhere or extent.first == extent.start))


def starts_of(*arrays: Strided) -> tuple[int, ...]:
    """Return the first elements of arrays that are not `anywhere`, as problems take them: () if all start at 0."""
    starts = tuple(array.offset for array in arrays)
    return starts if any(starts) else ()
