"""The public call for reductions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from webmm.arguments.arrays import broadcast_shape, element_of
from webmm.arguments.rows import Axes, axes_of, k_at_once, of_nothing, reduced_dtype, reduced_shape, reduction_of
from webmm.arguments.views import broadcast
from webmm.calls.devices import Devices
from webmm.calls.doubles import add_up
from webmm.calls.executor import Data, labelled
from webmm.calls.operands import Operandish, Temporaries, flag, opened, returned
from webmm.calls.pieces import in_pieces
from webmm.calls.planned import planned
from webmm.calls.sides import beside, converted, filled, is_resident, laid_out, range_of, reshaped, spread
from webmm.calls.views import each_as_ikj
from webmm.choose.limits import most_at_once
from webmm.dtypes import BOOL, F32, I32, MATRIX_DTYPES, DType, dtype_of
from webmm.engine.device import Array, Device
from webmm.errors import ProblemError
from webmm.problems.declared import declared
from webmm.problems.reduce import OPERATIONS, Operation, check_device, operation_of
from webmm.wgsl.compiler import WHOLE
from webmm.wgsl.reductions import Reduction
from webmm.wgsl.terms import has_positions


@planned
def reduce(
    x: Operandish,
    op: str | Reduction,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    y: Operandish | None = None,
    out_dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    devices: Devices | None = None,
) -> Any:
    """Return the reduction of `x` over `axis`, with NumPy's shapes; a negative axis counts from the end.

    `op` is one of `webmm.problems.reduce.OPERATIONS`: sum, mean, prod, max, min, argmax, argmin or logsumexp; or one of
    `webmm.problems.declared.DECLARATIONS`: var and std of the population (divided by n), norm, all, any or
    count_nonzero; or a `webmm.Reduction` of your own. The last two kinds take no float64. A `webmm.Reduction` whose
    `map` has y takes a second array, `y`, which broadcasts to the shape of `x`: both of floats, or both of int32.
    `axis` is an axis, a tuple of axes, or None for all. `x` has any number of axes; its dtype is one of
    `webmm.dtypes.MATRIX_DTYPES`, int32, float64 or bool, of which True is the int32 1, or 1.0 for operations of floats
    only and results of floats. Sums and products of these floats are computed in float32; the rounding error of a sum
    grows with the logarithm of the number of elements, that of a product with the number. Sums and products of int32
    are int32 and wrap around, as in NumPy with dtype="int32"; mean and logsumexp take floats only. float64 is reduced
    in float64, by prod and logsumexp on devices with the feature shader-f64, by the others on any device
    (docs/float64.md).
    The result has the dtype `out_dtype`, by default that of `x`, or float32 if `y` is of other floats; positions are
    int32. NaN propagates as in NumPy; argmax and argmin return the first of equal elements, and the first NaN if there
    is one. Over no elements, a sum is 0, a product 1, a mean NaN, a logsumexp -inf.

    A NumPy array gives a NumPy array (a scalar if no axis is left), an `Array` gives an `Array` on the same device; if
    one of `x` and `y` is an `Array`, the other is uploaded as a whole.
    Transposed and sliced `Array`s are read in place; those with negative strides, and several axes that are not
    adjacent in memory, are copied through the host first.
    `devices` is "all" or a list of Devices, among which a call on NumPy arrays is divided.

    Raises ProblemError for an unknown operation, an invalid axis, an unsupported dtype, a `y` that is missing, not
    used, of another kind or that does not broadcast, and for a maximum or minimum
    over no elements; UnsupportedError if the device cannot hold the operands or lacks shader-f64 where it is needed,
    MemoryLimitError if it is out of memory.
    """
    operation = declared(op) if isinstance(op, Reduction) else operation_of(op)
    keepdims = flag("keepdims", keepdims)
    given = [x] if y is None else [x, y]
    with opened("reduce", device, *given, devices=devices) as call:
        asked = None if out_dtype is None else dtype_of(out_dtype)
        return returned(reduced(call, [call.data(each) for each in given], operation, axis, keepdims, asked))


def along(x: Operandish, operation: str, axis: int, device: Device) -> Any:
    """Return the reduction of a matrix along an axis, which stays."""
    return reduce(x, operation, axis, keepdims=True, device=device)


# The steps, in both languages


def reduced(
    call: Temporaries, given: list[Data], operation: Operation, axis: Axes, keepdims: bool, asked: DType | None
) -> Data:
    """Return the reduction of one array, or of two of which the second broadcasts to the shape of the first."""
    xs = [_numbers(call, each, operation, asked) for each in _together(call, given)]
    x = xs[0]
    axes, dtype = axes_of(x, axis), element_of(x)
    out = reduced_dtype(operation, xs, asked, axis, axes)
    for one in call.devices:
        check_device(operation, dtype, one.capabilities.features, one.capabilities.name)
    shape = reduced_shape(x, axes, keepdims)
    if not x.size:
        return beside(call, filled(shape, out, of_nothing(operation, x, axes)), x)
    pieces = each_as_ikj(call, xs, axes)
    in_parts = any(_k_at_once(call, piece) < piece[0].shape[1] for piece in pieces)
    result = call.result((math.prod(shape),), out, *([] if in_parts else [x]))
    for at, piece in enumerate(pieces):
        outer, _, inner = piece[0].shape
        part = range_of(result, 0, at * outer * inner, outer * inner)
        _reduce(call, operation, piece, reshaped(part, (outer, inner)))
    return reshaped(beside(call, result, x), shape)


def _numbers(call: Temporaries, x: Data, operation: Operation, asked: DType | None) -> Data:
    """Return booleans as int32, or float32 if the operation takes or gives floats only; other arrays as they are."""
    if element_of(x) != BOOL:
        return x
    whole = operation.integers and not operation.refused[1]
    floats = asked in MATRIX_DTYPES and not (operation.index or operation.declared)
    return converted(call, x, I32 if whole and not floats else F32)


def _together(call: Temporaries, given: list[Data]) -> list[Data]:
    """Return one operand without moving it, or two on the same side, the second broadcast to the shape of the first."""
    if len(given) == 1:
        return given
    x, y = [call.array(each) for each in given] if is_resident(*given) else given
    if broadcast_shape(x.shape, y.shape) != x.shape:
        raise ProblemError(f"y of shape {y.shape} does not broadcast to x, of shape {x.shape}")
    return [x, spread(call, y, x.shape)]


def _k_at_once(call: Temporaries, xs: list[Data]) -> int:
    """Return how many k of x[i, k, j] each of the devices can reduce at once."""
    most = [[most_at_once(one, one.memory, is_resident(x)) for x in xs] for one in call.devices]
    return min(k_at_once(xs, each) for each in most)


def _reduce(call: Temporaries, operation: Operation, xs: list[Data], y: Data) -> None:
    """Fill y[i, j], which is in host memory if x[i, k, j] has to be reduced in parts of k."""
    step = _k_at_once(call, xs)
    if step < xs[0].shape[1]:
        _reduce_pieces(call, operation, xs, y, step)
        return

    def compute(x: Array, *more: Array) -> None:
        *others, y = more
        if element_of(x).wide and operation.multiplied:
            add_up(call, x, y, mean=operation.name == "mean")
            return
        others = [laid_out(each, broadcast(each, x.shape)) for each in others]
        call.run(reduction_of(operation, x, y, *others), x, y, *others)

    operands = [labelled(xs[0], "ikj"), *(labelled(_once(other), "ikj") for other in xs[1:])]
    in_pieces(call, compute, operands, labelled(y, "ij"), "ij")


def _once(x: Data) -> Data:
    """Return an array without repetitions: with length 1 along the axes along which it repeats its elements."""
    for axis, stride in enumerate(x.strides):
        if not stride:
            x = range_of(x, axis, 0, 1)
    return x


def _reduce_pieces(call: Temporaries, operation: Operation, xs: list[Data], y: Data, step: int) -> None:
    """Fill y[i, j], in host memory, with results over all k, combined from results over `step` elements each."""
    outer, length, inner = xs[0].shape
    starts, dtype = range(0, length, step), element_of(xs[0])
    if operation.declared and operation.states is None:
        raise has_positions(step, length)
    if operation.index and length > 2**31:
        raise ProblemError(f"{operation.name} over {length:,} elements: positions are int32")

    def of_pieces(one: Operation, out: DType) -> Data:
        found = call.result((len(starts), outer, inner), out)
        for at, start in enumerate(starts):
            part = [range_of(x, 1, start, min(step, length - start)) for x in xs]
            _reduce(call, one, part, reshaped(range_of(found, 0, at, 1), (outer, inner)))
        return found

    found = [of_pieces(one, out) for one, out in _over_pieces(operation, dtype)]
    combine(operation, dtype, found, length, step, y)


def _over_pieces(operation: Operation, dtype: DType) -> list[tuple[Operation, DType]]:
    """Return the operations whose results over parts of k give those over all of it, with their dtypes."""
    kind = 1 if dtype == I32 else 0
    if operation.states is not None:
        return [(one, I32 if one.yields[kind] == WHOLE else F32) for one in operation.states()]
    value = (OPERATIONS[operation.of_parts or operation.name], I32 if dtype == I32 else dtype.sums)
    return [value, (operation, I32)] if operation.index else [value]


# What JavaScript has of its own


def combine(operation: Operation, dtype: DType, parts: list[Any], length: int, step: int, y: Data) -> None:
    """Set y[i, j] to results over `length` elements of `dtype`, from those over parts of `step` elements.

    `parts` has part[n, i, j] for each operation of `_over_pieces()`.
    """
    found, whole = [np.moveaxis(x, 0, -1) for x in parts], dtype == I32
    if operation.joined is not None:
        y[...] = operation.joined(found, length, whole)
    elif operation.index:
        best = operation.reference(found[0])[..., None]  # the first one, or the first NaN
        y[...] = (np.take_along_axis(found[1], best, axis=-1) + best * step)[..., 0]
    else:
        y[...] = operation.combine(found[0].astype(np.int64 if whole else np.float64), length)
