"""Einstein summation of one or two operands, computed as reductions, views and a matrix product."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from webmm.arguments.arrays import element_of
from webmm.calls.executor import Data
from webmm.calls.expression import elementwise
from webmm.calls.gemm import matmul
from webmm.calls.operands import Operandish
from webmm.calls.reduce import reduce
from webmm.dtypes import dtype_of
from webmm.engine.device import Array, Device
from webmm.engine.view import imported
from webmm.errors import ProblemError

Labels = tuple[str, ...]  # one per axis: a letter, or "...1" for the last axis of an ellipsis, "...2" before it
DOTS = "..."


def einsum(
    subscripts: str, *operands: Operandish, out_dtype: DTypeLike | None = None, device: Device | str | None = None
) -> Any:
    """Return the Einstein summation of one or two operands, as NumPy's `einsum()`.

    Arguments:

    - `subscripts`: the axes of the operands and of the result: ``"bij,bjk->bik"``, ``"ij->j"``, ``"...ij,j"``.
    - `operands`: one or two arrays of one dtype, which must be a float dtype if there is an axis to contract.
    - `out_dtype`: the dtype of the result, by default the operands' dtype.
    - `device`: by default the device of the operands, or the most capable adapter.

    Axes of one operand with the same letter are replaced by their diagonal. An axis that only one operand has, and not
    the result, is summed first. Axes that both operands have, but not the
    result, are contracted by `matmul()`; axes that all three have are its batch. Without contracted axes, the elements
    are multiplied by `elementwise()`. Returns a NumPy array, or an `Array` if an operand is one.

    Raises ProblemError for invalid subscripts, or subscripts that do not match the operands, for more than two
    operands, and as `matmul()`, `reduce()` and `elementwise()` do.

    Example: ``webmm.einsum("bij,bjk->bik", a, b)``
    """
    if not isinstance(subscripts, str) or not 1 <= len(operands) <= 2:
        raise ProblemError(
            "einsum() takes subscripts such as 'ij,jk->ik' and one or two operands; call it once per pair"
        )
    given: list[Data] = [x if isinstance(x, Array) else imported(x) for x in operands]
    labels, result = _parsed(subscripts, given)
    _check_lengths(subscripts, labels, given)
    given, labels = map(list, zip(*map(_diagonal, given, labels), strict=True))
    wider = out_dtype is not None and dtype_of(out_dtype).itemsize > element_of(given[0]).itemsize
    summed = [_axes_to_sum(term, result, labels) for term in labels]
    before = out_dtype if wider and any(summed) else None  # so that sums do not overflow
    given = [_summed(x, axes, before, device) for x, axes in zip(given, summed, strict=True)]
    kept = [tuple(a for a in term if a in result or _shared(a, labels)) for term in labels]
    if len(given) == 1:
        found, order = given[0], kept[0]
    else:
        found, order = _multiplied(given, kept, result, out_dtype, device)
    if len(given) == 1 and out_dtype is not None:
        found = elementwise("x", x=found, out_dtype=out_dtype, device=device)
    settled = _permuted(found, order, result)
    return settled if isinstance(settled, Array) else settled[()]


def _parsed(subscripts: str, operands: list[Data]) -> tuple[list[Labels], Labels]:
    """Return the labels of each operand's axes, and those of the result's axes."""
    terms, arrow, wanted = subscripts.replace(" ", "").partition("->")
    parts = terms.split(",")
    if len(parts) != len(operands):
        raise ProblemError(f"einsum {subscripts!r} names {len(parts)} operands, but {len(operands)} were given")
    labels = [tuple(_labels(subscripts, part, x.ndim)) for part, x in zip(parts, operands, strict=True)]
    everything = [label for term in labels for label in term]
    dots = sorted({label for label in everything if label.startswith(DOTS)}, reverse=True)
    once = sorted(label for label in set(everything) if everything.count(label) == 1 and label not in dots)
    result = tuple(_labels(subscripts, wanted, None, dots)) if arrow else (*dots, *once)
    if not set(dots) <= set(result) or not set(result) <= set(everything):
        raise ProblemError(
            f"einsum {subscripts!r}: the result must have the axes of '...' and may have only letters of the operands"
        )
    return labels, result


def _labels(subscripts: str, part: str, ndim: int | None, dots: list[str] | None = None) -> Iterator[str]:
    """Yield the labels of a term; its ellipsis stands for `dots`, or for all axes of `ndim` that have no letter."""
    before, some, behind = part.partition(DOTS)
    letters = before + behind
    if not all(letter.isascii() and letter.isalpha() for letter in letters):
        raise ProblemError(f"einsum {subscripts!r}: {part!r} may contain only letters and one '...'")
    if ndim is None and len(set(letters)) < len(letters):
        raise ProblemError(f"einsum {subscripts!r}: the result {part!r} repeats a letter")
    if ndim is not None:
        more = ndim - len(letters)
        if more < 0 or (more and not some):
            raise ProblemError(f"einsum {subscripts!r}: {part!r} does not match an array of {ndim} axes")
        dots = [f"{DOTS}{i}" for i in range(more, 0, -1)]
    yield from before
    yield from (dots or []) if some else []
    yield from behind


def _diagonal(x: Data, labels: Labels) -> tuple[Data, Labels]:
    """Return a view of `x` along the diagonal of the axes with the same label, and its labels."""
    once = tuple(dict.fromkeys(labels))
    if once == labels:
        return x, labels
    letters = {label: chr(ord("a") + i) for i, label in enumerate(once)}
    text = f"{''.join(letters[label] for label in labels)}->{''.join(letters.values())}"
    return x._view(lambda shadow: np.einsum(text, shadow)) if isinstance(x, Array) else np.einsum(text, x), once


def _check_lengths(subscripts: str, labels: list[Labels], operands: list[Data]) -> None:
    lengths: dict[str, int] = {}
    for term, x in zip(labels, operands, strict=True):
        for label, length in zip(term, x.shape, strict=True):
            known = lengths.setdefault(label, length)
            if known != length and not label.startswith(DOTS):  # axes of an ellipsis broadcast
                raise ProblemError(f"einsum {subscripts!r}: {label} has lengths {known} and {length}")


def _shared(label: str, labels: list[Labels]) -> bool:
    return len(labels) == 2 and all(label in term for term in labels)


def _axes_to_sum(term: Labels, result: Labels, labels: list[Labels]) -> tuple[int, ...]:
    """Return the axes of an operand that neither the result nor the other operand has."""
    return tuple(i for i, label in enumerate(term) if label not in result and not _shared(label, labels))


def _summed(x: Data, axes: tuple[int, ...], out_dtype: DTypeLike | None, device: Device | str | None) -> Data:
    """Return the sum of `x` over `axes`, converted to `out_dtype` unless that is None."""
    found: Data = reduce(x, "sum", axes, out_dtype=out_dtype, device=device) if axes else x
    if axes or out_dtype is None:
        return found
    cast: Data = elementwise("x", x=x, out_dtype=out_dtype, device=device)
    return cast


def _multiplied(
    given: list[Data], labels: list[Labels], result: Labels, out_dtype: DTypeLike | None, device: Device | str | None
) -> tuple[Data, Labels]:
    """Return the product of two operands, and the labels of its axes."""
    (a, b), (of_a, of_b) = given, labels
    batch = tuple(label for label in result if label in of_a and label in of_b)
    inner = tuple(label for label in of_a if label in of_b and label not in result)
    rows, columns = (tuple(label for label in term if label not in (*batch, *inner)) for term in labels)
    order = (*batch, *rows, *columns)
    x, y = _permuted(a, of_a, (*batch, *rows, *inner)), _permuted(b, of_b, (*batch, *inner, *columns))
    at = len(batch)
    if not inner:
        new_columns, new_rows = (..., *(None,) * len(columns)), (*(slice(None),) * at, *(None,) * len(rows), ...)
        x, y = x[new_columns], y[new_rows]
        return elementwise("x * y", x=x, y=y, out_dtype=out_dtype, device=device), order
    lengths = (*x.shape[at : at + len(rows)], *y.shape[at + len(inner) :])
    x, y = _merged(x, (at, len(rows), len(inner))), _merged(y, (at, len(inner), len(columns)))
    product: Data = matmul(x, y, out_dtype=out_dtype, device=device)
    shape = (*product.shape[:at], *lengths)
    return product.reshape(*shape) if isinstance(product, Array) else product.reshape(shape), order


def _permuted(x: Data, labels: Labels, wanted: Labels) -> Data:
    """Return a view of `x`, whose axes are `labels`, with its axes in the order `wanted`."""
    places = tuple(map(labels.index, wanted))
    return x if places == tuple(range(x.ndim)) else x.transpose(places)


def _merged(x: Data, groups: tuple[int, int, int]) -> Data:
    """Return `x` with the second and the third group of axes each merged into one axis."""
    batch, second, third = groups
    if second == third == 1:
        return x
    lengths = math.prod(x.shape[batch : batch + second]), math.prod(x.shape[batch + second :])
    return x.reshape(*x.shape[:batch], *lengths)
