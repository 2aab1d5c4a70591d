"""The public call for reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from webmm import choose
from webmm.arguments.arrays import broadcast_shape, element_of
from webmm.arguments.rows import Axes, axes_of, k_at_once, of_nothing, reduced_dtype, reduced_shape, reduction_of
from webmm.calls.axes import each_as_ikj
from webmm.calls.devices import Devices
from webmm.calls.doubles import add_up
from webmm.calls.executor import Data, Labelled
from webmm.calls.expression import astype
from webmm.calls.operands import Operandish, Temporaries, flag, opened, returned
from webmm.calls.pieces import in_pieces
from webmm.calls.planned import planned
from webmm.choose.limits import most_at_once
from webmm.dtypes import BOOL, F32, I32, MATRIX_DTYPES, DType, dtype_of
from webmm.engine.device import Array, Device
from webmm.errors import ProblemError
from webmm.problems.declared import declaration_of, declared, kinds_of, of_none
from webmm.problems.reduce import Operation, check_device, operation_of
from webmm.wgsl.expressions import WHOLE
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
    with opened("reduce", device, *given, devices=devices) as temporary:
        sources, device = _together(temporary, given), temporary.device
        asked = None if out_dtype is None else dtype_of(out_dtype)
        sources = [_numbers(each, operation, asked) for each in sources]
        source = sources[0]
        axes, dtype = axes_of(source, axis), element_of(source)
        out = reduced_dtype(operation, sources, asked, axis, axes)
        for one in temporary.devices:
            check_device(operation, dtype, one.capabilities.features, one.capabilities.name)
        shape = reduced_shape(source, axes, keepdims)
        if not source.size:
            if operation.declared:
                operation = replace(operation, empty=of_none(declaration_of(operation), dtype == I32))
            nothing = np.full(shape, of_nothing(operation, source, axes), out.numpy)
            return device.array(nothing) if isinstance(source, Array) else returned(nothing)
        pieces = each_as_ikj(sources, axes)
        in_parts = any(_k_at_once(temporary.devices, piece) < piece[0].shape[1] for piece in pieces)
        result = temporary.result((math.prod(shape),), out, *([] if in_parts else [source]))
        for at, piece in enumerate(pieces):
            outer, _, inner = piece[0].shape
            part = result[at * outer * inner :][: outer * inner].reshape(outer, inner)
            _reduce(temporary.devices, operation, piece, part)
        result = device.array(result) if in_parts and isinstance(source, Array) else result
        return result.reshape(*shape) if isinstance(result, Array) else returned(result.reshape(shape))


def along(x: Operandish, operation: str, axis: int, device: Device) -> Any:
    """Return the reduction of a matrix along an axis, which stays."""
    return reduce(x, operation, axis, keepdims=True, device=device)


def _numbers(x: Data, operation: Operation, asked: DType | None) -> Data:
    """Return booleans as int32, or float32 if the operation takes or gives floats only; other arrays as they are."""
    if element_of(x) != BOOL:
        return x
    whole = operation.integers and not operation.refused[1]
    floats = asked in MATRIX_DTYPES and not (operation.index or operation.declared)
    dtype = "int32" if whole and not floats else "float32"
    return astype(x, dtype) if isinstance(x, Array) else x.astype(dtype)


def _together(temporary: Temporaries, given: Sequence[Operandish]) -> list[Data]:
    """Return one operand without moving it, or two on the same side, the second broadcast to the shape of the first."""
    data = [temporary.data(each) for each in given]
    if len(data) == 1:
        return data
    if any(isinstance(each, Array) for each in data):
        data = [*temporary.arrays(*data)]
    x, y = data
    if broadcast_shape(x.shape, y.shape) != x.shape:
        raise ProblemError(f"y of shape {y.shape} does not broadcast to x, of shape {x.shape}")
    return [x, y.broadcast_to(x.shape) if isinstance(y, Array) else np.broadcast_to(y, x.shape)]


def _k_at_once(devices: list[Device], xs: list[Data]) -> int:
    """Return how many k of x[i, k, j] each of the devices can reduce at once."""
    most = ([most_at_once(one, one.memory, isinstance(x, Array)) for x in xs] for one in devices)
    return min(k_at_once(xs, each) for each in most)


def _repeating(x: Data) -> Labelled:
    """Return the second array with letters for its axes, without those along which it repeats its elements."""
    index = tuple(slice(None) if stride else 0 for stride in x.strides)
    return Labelled(x[index], "".join(letter for letter, stride in zip("ikj", x.strides, strict=True) if stride))


def _reduce(devices: list[Device], operation: Operation, xs: list[Data], y: Data) -> None:
    """Fill y[i, j], which is a NumPy array if x[i, k, j] has to be reduced in parts of k."""
    step, length = _k_at_once(devices, xs), xs[0].shape[1]
    if step < length:
        assert not isinstance(y, Array), "partial results are combined on the host"
        y[...] = _combined(devices, operation, xs, step)
        return
    labelled = [Labelled(xs[0], "ikj"), *map(_repeating, xs[1:])]

    def compute(x: Array, *more: Array) -> None:
        *others, y = more
        if x.element.wide and operation.multiplied:
            add_up(x, y, mean=operation.name == "mean")
            return
        other = None
        for found in others:
            strides = dict(zip(labelled[1].axes, found.strides, strict=True))
            over = tuple(strides.get(letter, 0) for letter in "ikj")
            other = Array(found.storage, x.shape, found.element, over, found.offset)
        choose.run(reduction_of(operation, x, y, other), x.device, x, y, *others)

    in_pieces(devices, compute, labelled, Labelled(y, "ij"), "ij")


def _combined(devices: list[Device], operation: Operation, xs: list[Data], step: int) -> NDArray[Any]:
    """Return the results over all k, combined from results over `step` elements each."""
    x = xs[0]
    outer, length, inner = x.shape
    starts, whole = range(0, length, step), element_of(x) == I32

    def of_pieces(name: str, dtype: DType) -> NDArray[Any]:
        parts = np.empty((len(starts), outer, inner), dtype.numpy)
        for part, start in zip(parts, starts, strict=True):
            _reduce(devices, operation_of(name), [x[:, start : start + step] for x in xs], part)
        return np.moveaxis(parts, 0, -1)

    if operation.declared:
        if operation.joined is None:
            raise has_positions(step, length)
        kinds = kinds_of(operation, whole)
        states = [
            of_pieces(name, I32 if kind == WHOLE else F32) for name, kind in zip(operation.states, kinds, strict=True)
        ]
        return operation.joined(states, length, whole)
    parts = of_pieces(operation.of_parts or operation.name, I32 if whole else element_of(x).sums)
    if not operation.index:
        return operation.combine(parts.astype(np.int64 if whole else np.float64), length)
    if length > 2**31:
        raise ProblemError(f"{operation.name} over {length:,} elements: positions are int32")
    best = operation.reference(parts)  # the first one, or the first NaN
    within = np.take_along_axis(of_pieces(operation.name, I32), best[..., None], axis=-1)[..., 0]
    return np.asarray(within + best * step)
