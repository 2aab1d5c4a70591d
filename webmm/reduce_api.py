"""The calls on reductions, and what is built on them."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from webmm.api import Operandish, Temporaries
from webmm.array import Array
from webmm.choose_reduction import choose
from webmm.device import Device, default_device
from webmm.dtypes import DType, dtype_of
from webmm.errors import ProblemError
from webmm.operations import NORMALISATIONS, Operation, operation_of
from webmm.reduction import Elementwise, Normalisation, Reduction, Span

Axes = int | tuple[int, ...] | None
MAX_PROBLEMS = 64  # dispatches that a view of many strides may take before it is copied instead


def reduce(
    x: Operandish,
    op: str,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    out_dtype: DTypeLike | None = None,
    device: Device | None = None,
) -> Any:
    """Return the reduction of `x` over `axis`, with the shapes of NumPy's: a negative axis counts from the end.

    `op` is one of `webmm.operations.OPERATIONS`: sum, mean, max, min, argmax or logsumexp. `axis` is an axis, a tuple
    of them, or None for all. `x` is float32, float16 or bfloat16, of any number of axes; sums are float32, whatever the
    storage, and their rounding error grows with the logarithm of the number of elements. The result is `out_dtype`, by
    default of the type of `x`; positions are int32, of the first maximum. NaN spreads as in NumPy; argmax returns the
    first one. Over no elements a sum is 0, a mean NaN, a logsumexp -inf.

    A NumPy array gives a NumPy array (a number where no axis is left), an `Array` one on the same device. Transposed
    and sliced `Array`s are read where they lie; those with negative strides, and several axes that do not follow each
    other in memory, are copied through the host first.

    Raises ProblemError for an operation, axis or dtype that there is not, and for a maximum over no elements;
    UnsupportedError where the device cannot hold the operands, MemoryLimitError where it has no room.
    """
    operation = operation_of(op)
    with _operands("reduce", x, device) as (temporary, source):
        axes = _axes(source, axis)
        if operation.index and axis is not None and len(axes) > 1:
            raise ProblemError(f"{op} takes one axis, or None for all; a position in several has no single number")
        out = operation.out_dtype(source.dtype) if out_dtype is None else dtype_of(out_dtype)
        kept = tuple(n for i, n in enumerate(source.shape) if i not in axes)
        shape = tuple(1 if i in axes else n for i, n in enumerate(source.shape)) if keepdims else kept
        if not source.size:
            count = math.prod(source.shape[i] for i in axes)
            return _returned(_of_nothing(source, operation, shape, count, out), x)
        y = source.device.empty((math.prod(kept),), out)
        source, pieces = _pieces(temporary, source, axes)
        for at, piece in enumerate(pieces):
            shape3, offset = (piece.outer, piece.length, piece.inner), at * piece.outer * piece.inner
            _run(Reduction(op, *shape3, source.dtype, out, piece.span, offset), source, y)
        return _returned(y.reshape(*shape), x)


def softmax(x: Operandish, axis: int = -1, *, device: Device | None = None) -> Any:
    """Return exp(x) / Σ exp(x) along `axis`, without overflow; shapes, types and errors as in `reduce()`."""
    return _normalise(x, "softmax", axis, None, None, 0.0, device)


def layer_norm(
    x: Operandish,
    weight: Operandish | None = None,
    bias: Operandish | None = None,
    eps: float = 1e-5,
    *,
    device: Device | None = None,
) -> Any:
    """Return (x - mean) / √(variance + eps) · weight + bias along the last axis; types and errors as `reduce()`.

    `weight` and `bias` have the last axis's length and the type of `x`. The variance is taken about the mean, in a pass
    of its own, and divided by the number of elements (Ba, Kiros and Hinton, 2016).
    """
    return _normalise(x, "layer_norm", -1, weight, bias, eps, device)


def rms_norm(
    x: Operandish, weight: Operandish | None = None, eps: float = 1e-5, *, device: Device | None = None
) -> Any:
    """Return x / √(mean of squares + eps) · weight along the last axis (Zhang and Sennrich, 2019).

    Everything else as in `layer_norm()`.
    """
    return _normalise(x, "rms_norm", -1, weight, None, eps, device)


def gelu(x: Operandish, approximate: bool = False, *, device: Device | None = None) -> Any:
    """Return x·Φ(x) of each element, by the error function or, `approximate`, by tanh; as `reduce()` otherwise."""
    with _operands("gelu", x, device) as (temporary, source):
        source = source if source.contiguous else temporary.array(source.numpy())
        y = source.device.empty(source.shape, source.dtype)
        if source.size:
            name = "gelu_tanh" if approximate else "gelu"
            problem = Elementwise(name, source.size, source.dtype, source.offset)
            source.device.run(choose(problem, source.device), problem, source, y)
        return _returned(y, x)


def _normalise(
    x: Operandish,
    function: str,
    axis: int,
    weight: Operandish | None,
    bias: Operandish | None,
    epsilon: float,
    device: Device | None,
) -> Any:
    with _operands(function, x, device) as (temporary, source):
        (axis,) = _axes(source, (axis,))
        y = source.device.empty(source.shape, source.dtype)
        if not source.size:
            return _returned(y, x)
        length = source.shape[axis]
        vectors = [_vector(temporary, v, length, source) for v in (weight, bias) if v is not None]
        piece = _piece_in_place(source, axis)
        if piece is None:
            source = temporary.array(source.numpy())
            piece = _piece_in_place(source, axis)
        assert piece is not None, "dense arrays are one piece"
        problem = Normalisation(
            *(NORMALISATIONS[function].operation, piece.outer, piece.length, piece.inner),
            *(source.dtype, source.dtype, piece.span),
            function=function,
            weight=weight is not None,
            bias=bias is not None,
            epsilon=epsilon,
        )
        _run(problem, source, y, *vectors)
        return _returned(y, x)


@contextmanager
def _operands(call: str, x: Operandish, device: Device | None) -> Iterator[tuple[Temporaries, Array]]:
    """Open the call on `x`'s device, the given or the default one, and bring `x` there."""
    device = device or (x.device if isinstance(x, Array) else default_device())
    with device.span(call, "call"), Temporaries(device) as temporary:
        yield temporary, temporary.array(x)


def _returned(result: Array, x: Operandish) -> Any:
    """Return `result` as the caller of `x` has it: on the device, or in host memory."""
    if isinstance(x, Array):
        return result
    host = result.numpy()
    result.free()
    return host[()]  # a number where no axis is left


def _axes(x: Array, axis: Axes) -> tuple[int, ...]:
    """Return the axes from 0 on, in order; raises ProblemError for one that there is not, or that is named twice."""
    given = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    try:
        given = tuple(map(operator.index, given))
    except TypeError as error:
        raise ProblemError(f"an axis is a whole number, not {axis!r}") from error
    if not all(-x.ndim <= a < x.ndim for a in given):
        raise ProblemError(f"axis {axis} is out of range: x has {x.ndim} axes, of shape {x.shape}")
    axes = tuple(sorted(a % x.ndim for a in given))
    if len(set(axes)) < len(axes):
        raise ProblemError(f"axis {axis} names an axis twice")
    return axes


def _of_nothing(x: Array, operation: Operation, shape: tuple[int, ...], count: int, out: DType) -> Array:
    """Return the results over `count` elements each, which is 0, or none of them at all."""
    if not count and operation.empty is None:
        raise ProblemError(f"{operation.name} over no elements: x has shape {x.shape}")
    return x.device.array(np.full(shape, operation.empty or 0, out.numpy))


def _vector(temporary: Temporaries, v: Operandish, length: int, x: Array) -> Array:
    """Return a weight or bias on the device; raises ProblemError where it is not (length,) of the type of `x`."""
    array = temporary.array(v)
    if array.shape != (length,) or array.dtype != x.dtype:
        raise ProblemError(
            f"weight and bias must have shape ({length},) and dtype {x.dtype.name}, "
            f"not {array.shape} and {array.dtype.name}"
        )
    return array if array.contiguous and not array.offset else temporary.array(array.numpy())


# From strided arrays to problems


@dataclass(frozen=True)
class _Piece:
    """Part of an array, seen as x[i, k, j]."""

    outer: int
    length: int
    inner: int
    span: Span


def _merged(axes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (length, stride) of axes, without those of length 1, neighbours merged where one stride serves."""
    merged: list[tuple[int, int]] = []
    for length, stride in axes:
        if length == 1:
            continue
        if merged and merged[-1][1] == stride * length:
            merged[-1] = (merged[-1][0] * length, stride)
        else:
            merged.append((length, stride))
    return merged


def _pieces(temporary: Temporaries, x: Array, axes: tuple[int, ...]) -> tuple[Array, list[_Piece]]:
    """Return what to reduce over `axes`, a dispatch each: of `x`, or of a copy if it cannot be read so."""
    layout = list(zip(x.shape, x.strides, strict=True))
    reduced = _merged(layout[a] for a in axes)
    kept = _merged(pair for a, pair in enumerate(layout) if a not in axes)
    outermost = kept[:-2]
    forward = all(stride >= 0 for _, stride in (*kept, *reduced))
    if not forward or len(reduced) > 1 or math.prod(n for n, _ in outermost) > MAX_PROBLEMS:
        others = [a for a in range(x.ndim) if a not in axes]
        copy = temporary.array(np.ascontiguousarray(x.numpy().transpose(*others, *axes)))
        return _pieces(temporary, copy, tuple(range(len(others), x.ndim)))
    length, stride = reduced[0] if reduced else (1, 1)
    *_, (outer, outer_stride), (inner, inner_stride) = [(1, 0), (1, 0), *kept]
    if outer == 1 and inner_stride > stride:  # rows
        (outer, outer_stride), (inner, inner_stride) = (inner, inner_stride), (1, 0)
    pieces = []
    for indices in product(*(range(n) for n, _ in outermost)):
        offset = x.offset + sum(i * far for i, (_, far) in zip(indices, outermost, strict=True))
        pieces.append(_Piece(outer, length, inner, Span(outer_stride, stride, inner_stride, offset)))
    return x, pieces


def _piece_in_place(x: Array, axis: int) -> _Piece | None:
    """Return all of `x` seen as x[i, k, j], with k along `axis`; None where strides do not allow it."""
    layout = list(zip(x.shape, x.strides, strict=True))
    before, along, after = (_merged(axes) for axes in (layout[:axis], [layout[axis]], layout[axis + 1 :]))
    if max(map(len, (before, after))) > 1 or any(stride < 0 for stride in x.strides):
        return None
    (outer, outer_stride), (length, stride), (inner, inner_stride) = (
        part[0] if part else (1, 1) for part in (before, along, after)
    )
    return _Piece(outer, length, inner, Span(outer_stride, stride, inner_stride, x.offset))


def _run(problem: Reduction, x: Array, y: Array, *vectors: Array) -> None:
    """Queue `problem`, in parts where a binding cannot hold it whole."""
    device = x.device
    limit = device.capabilities.limit("max-storage-buffer-binding-size")
    if problem.outer > 1 and max(extent.nbytes for extent in problem.buffers()) > limit:
        half = problem.outer // 2
        moved = replace(problem.x, offset=problem.x.offset + half * problem.x.outer_stride)
        _run(replace(problem, outer=half), x, y, *vectors)
        written = problem.buffers()[1]
        per_outer = (written.end - written.start) // problem.outer
        rest = replace(problem, outer=problem.outer - half, x=moved, y_offset=problem.y_offset + half * per_outer)
        _run(rest, x, y, *vectors)
        return
    device.run(choose(problem, device), problem, x, y, *vectors)
