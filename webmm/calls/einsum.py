"""Sums of products by index notation: one or two operands, as a product of matrices between views and sums."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from numpy.typing import DTypeLike

from webmm.calls.expression import concatenate, elementwise
from webmm.calls.gemm import matmul
from webmm.calls.operands import Operandish
from webmm.calls.pieces import Data
from webmm.calls.reduce import reduce
from webmm.dtypes import dtype_of
from webmm.engine.array import Array, element_of, host_array
from webmm.engine.device import Device
from webmm.errors import ProblemError

Labels = tuple[str, ...]  # an axis each: a letter, or "...1" for the last of those that dots stand for
DOTS = "..."


def einsum(
    subscripts: str, *operands: Operandish, out_dtype: DTypeLike | None = None, device: Device | None = None
) -> Any:
    """Return NumPy's `einsum()` of one or two operands: ``"bij,bjk->bik"``, ``"ij->j"``, ``"...ij,j"``.

    Letters of one operand that the result lacks are summed first, those of both become the inner axis of a `matmul()`,
    of which those that all have are the batch; without an inner axis, elements are multiplied one by one. Operands are
    of one dtype, of floats where there is an inner axis. The result is `out_dtype`, by default theirs.

    Raises ProblemError for subscripts that are none or do not fit the operands, for more than two of them, for a letter
    that an operand has twice, which would be a diagonal, and as `matmul()`, `reduce()` and `elementwise()` do.
    """
    if not isinstance(subscripts, str) or not 1 <= len(operands) <= 2:
        raise ProblemError(
            "einsum() takes subscripts such as 'ij,jk->ik' and one or two operands; call it once per pair"
        )
    given: list[Data] = [x if isinstance(x, Array) else host_array(x) for x in operands]
    labels, result = _parsed(subscripts, given)
    _check_lengths(subscripts, labels, given)
    wider = out_dtype is not None and dtype_of(out_dtype).itemsize > element_of(given[0]).itemsize
    alone = [_alone(own, result, labels) for own in labels]
    before = out_dtype if wider and any(alone) else None  # so that sums do not overflow
    given = [_summed(x, axes, before, device) for x, axes in zip(given, alone, strict=True)]
    kept = [tuple(a for a in own if a in result or _shared(a, labels)) for own in labels]
    if len(given) == 1:
        found, order = given[0], kept[0]
    else:
        found, order = _multiplied(given, kept, result, out_dtype, device)
    if len(given) == 1 and out_dtype is not None:
        found = elementwise("x", x=found, out_dtype=out_dtype, device=device)
    settled = _permuted(found, order, result)
    return settled if isinstance(settled, Array) else settled[()]


def _parsed(subscripts: str, operands: list[Data]) -> tuple[list[Labels], Labels]:
    """Return the labels of each operand's axes, and of the result's."""
    terms, arrow, wanted = subscripts.replace(" ", "").partition("->")
    parts = terms.split(",")
    if len(parts) != len(operands):
        raise ProblemError(f"einsum {subscripts!r} names {len(parts)} operands, but {len(operands)} were given")
    labels = [tuple(_labels(subscripts, part, x.ndim)) for part, x in zip(parts, operands, strict=True)]
    everything = [label for own in labels for label in own]
    dots = sorted({label for label in everything if label.startswith(DOTS)}, reverse=True)
    once = sorted(label for label in set(everything) if everything.count(label) == 1 and label not in dots)
    result = tuple(_labels(subscripts, wanted, None, dots)) if arrow else (*dots, *once)
    if not set(dots) <= set(result) or not set(result) <= set(everything):
        raise ProblemError(
            f"einsum {subscripts!r}: the result must have the axes of '...' and may have only letters of the operands"
        )
    return labels, result


def _labels(subscripts: str, part: str, ndim: int | None, dots: list[str] | None = None) -> Iterator[str]:
    """Yield a term's labels; `dots` are the result's, else there are as many as `ndim` leaves."""
    before, some, behind = part.partition(DOTS)
    letters = before + behind
    if not all(letter.isascii() and letter.isalpha() for letter in letters):
        raise ProblemError(f"einsum {subscripts!r}: {part!r} may contain only letters and one '...'")
    if len(set(letters)) < len(letters):
        raise ProblemError(f"einsum {subscripts!r}: {part!r} repeats a letter; diagonals are not supported")
    if ndim is not None:
        more = ndim - len(letters)
        if more < 0 or (more and not some):
            raise ProblemError(f"einsum {subscripts!r}: {part!r} does not match an array of {ndim} axes")
        dots = [f"{DOTS}{i}" for i in range(more, 0, -1)]
    yield from before
    yield from (dots or []) if some else []
    yield from behind


def _check_lengths(subscripts: str, labels: list[Labels], operands: list[Data]) -> None:
    lengths: dict[str, int] = {}
    for own, x in zip(labels, operands, strict=True):
        for label, length in zip(own, x.shape, strict=True):
            known = lengths.setdefault(label, length)
            if known != length and not label.startswith(DOTS):  # which broadcast
                raise ProblemError(f"einsum {subscripts!r}: {label} has lengths {known} and {length}")


def _shared(label: str, labels: list[Labels]) -> bool:
    return len(labels) == 2 and all(label in own for own in labels)


def _alone(own: Labels, result: Labels, labels: list[Labels]) -> tuple[int, ...]:
    """Return the axes of an operand that neither the result nor another operand has."""
    return tuple(i for i, label in enumerate(own) if label not in result and not _shared(label, labels))


def _summed(x: Data, axes: tuple[int, ...], out_dtype: DTypeLike | None, device: Device | None) -> Data:
    """Return the sum of `x` over these axes, as `out_dtype` where that is given."""
    found: Data = reduce(x, "sum", axes, out_dtype=out_dtype, device=device) if axes else x
    if axes or out_dtype is None:
        return found
    cast: Data = elementwise("x", x=x, out_dtype=out_dtype, device=device)
    return cast


def _multiplied(
    given: list[Data], labels: list[Labels], result: Labels, out_dtype: DTypeLike | None, device: Device | None
) -> tuple[Data, Labels]:
    """Return the product of two operands, and its labels."""
    (a, b), (of_a, of_b) = given, labels
    batch = tuple(label for label in result if label in of_a and label in of_b)
    inner = tuple(label for label in of_a if label in of_b and label not in result)
    rows, columns = (tuple(label for label in own if label not in (*batch, *inner)) for own in labels)
    order = (*batch, *rows, *columns)
    x, y = _permuted(a, of_a, (*batch, *rows, *inner)), _permuted(b, of_b, (*batch, *inner, *columns))
    at = len(batch)
    if not inner:
        behind, within = (..., *(None,) * len(columns)), (*(slice(None),) * at, *(None,) * len(rows), ...)
        x, y = x[behind], y[within]
        return elementwise("x * y", x=x, y=y, out_dtype=out_dtype, device=device), order
    lengths = (*x.shape[at : at + len(rows)], *y.shape[at + len(inner) :])
    x, y = _merged(x, (at, len(rows), len(inner))), _merged(y, (at, len(inner), len(columns)))
    product: Data = matmul(x, y, out_dtype=out_dtype, device=device)
    shape = (*product.shape[:at], *lengths)
    return product.reshape(*shape) if isinstance(product, Array) else product.reshape(shape), order


def _permuted(x: Data, labels: Labels, wanted: Labels) -> Data:
    """Return a view of `x` with its axes, which have these labels, in another order."""
    places = tuple(map(labels.index, wanted))
    return x if places == tuple(range(x.ndim)) else x.transpose(places)


def _merged(x: Data, groups: tuple[int, int, int]) -> Data:
    """Return `x` with a single axis for all of the second group of axes, and one of the third."""
    batch, second, third = groups
    if second == third == 1:
        return x
    lengths = math.prod(x.shape[batch : batch + second]), math.prod(x.shape[batch + second :])
    if isinstance(x, Array) and not x.contiguous:
        x = concatenate([x])
    return x.reshape(*x.shape[:batch], *lengths)
