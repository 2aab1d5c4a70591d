"""The public call for reductions."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from webmm import choose
from webmm.arguments.arrays import element_of
from webmm.arguments.rows import Axes, axes_of, check_axes, of_nothing, reduced_shape, reduction_of
from webmm.calls.axes import each_as_ikj
from webmm.calls.devices import Devices
from webmm.calls.doubles import add_up
from webmm.calls.executor import Data, Labelled
from webmm.calls.operands import Operandish, flag, opened, returned
from webmm.calls.pieces import in_pieces, most_at_once
from webmm.calls.planned import planned
from webmm.dtypes import F32, I32, DType, dtype_of
from webmm.engine.device import Array, Device
from webmm.errors import ProblemError, UnsupportedError
from webmm.problems.declared import declaration_of, declared, kinds_of, of_none
from webmm.problems.reduce import Operation, check_device, check_types, operation_of
from webmm.wgsl.expressions import WHOLE
from webmm.wgsl.reductions import Reduction


@planned
def reduce(
    x: Operandish,
    op: str | Reduction,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    out_dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    devices: Devices | None = None,
) -> Any:
    """Return the reduction of `x` over `axis`, with NumPy's shapes; a negative axis counts from the end.

    `op` is one of `webmm.problems.reduce.OPERATIONS`: sum, mean, prod, max, min, argmax, argmin or logsumexp; or one of
    `webmm.problems.declared.DECLARATIONS`: var and std of the population (divided by n), norm, all, any or
    count_nonzero; or a `webmm.Reduction` of your own. The last two kinds take no float64. `axis` is an axis, a tuple of
    axes, or None for all. `x` has any number of axes; its dtype is one of `webmm.dtypes.MATRIX_DTYPES`, int32 or
    float64. Sums and products of these floats are computed in float32; the
    rounding error of a sum grows with the logarithm of the number of elements, that of a product with the number. Sums
    and products of int32 are int32 and wrap around, as in NumPy with dtype="int32"; mean and logsumexp take floats
    only. float64 is reduced in float64, by prod and logsumexp on devices with the feature shader-f64, by the others on
    any device (docs/float64.md).
    The result has the dtype `out_dtype`, by default that of `x`; positions are int32. NaN propagates as in NumPy;
    argmax and argmin return the first of equal elements, and the first NaN if there is one. Over no elements, a sum is
    0, a product 1, a mean NaN, a logsumexp -inf.

    A NumPy array gives a NumPy array (a scalar if no axis is left), an `Array` gives an `Array` on the same device.
    Transposed and sliced `Array`s are read in place; those with negative strides, and several axes that are not
    adjacent in memory, are copied through the host first.
    `devices` is "all" or a list of Devices, among which a call on NumPy arrays is divided.

    Raises ProblemError for an unknown operation, an invalid axis, an unsupported dtype, and for a maximum or minimum
    over no elements; UnsupportedError if the device cannot hold the operands or lacks shader-f64 where it is needed,
    MemoryLimitError if it is out of memory.
    """
    operation = declared(op) if isinstance(op, Reduction) else operation_of(op)
    keepdims = flag("keepdims", keepdims)
    with opened("reduce", device, x, devices=devices) as temporary:
        source, device = temporary.data(x), temporary.device
        axes, dtype = axes_of(source, axis), element_of(source)
        out = operation.out_dtype(dtype) if out_dtype is None else dtype_of(out_dtype)
        check_types(operation, dtype, out)
        for one in temporary.devices:
            check_device(operation, dtype, one.capabilities.features, one.capabilities.name)
        check_axes(operation, axis, axes)
        shape = reduced_shape(source, axes, keepdims)
        if not source.size:
            if operation.declared:
                operation = replace(operation, empty=of_none(declaration_of(operation), dtype == I32))
            nothing = np.full(shape, of_nothing(operation, source, axes), out.numpy)
            return device.array(nothing) if isinstance(source, Array) else returned(nothing)
        pieces = each_as_ikj(source, axes)
        in_parts = any(_k_at_once(temporary.devices, piece) < piece.shape[1] for piece in pieces)
        y = temporary.result((math.prod(shape),), out, *([] if in_parts else [source]))
        for at, piece in enumerate(pieces):
            outer, _, inner = piece.shape
            _reduce(temporary.devices, operation, piece, y[at * outer * inner :][: outer * inner].reshape(outer, inner))
        y = device.array(y) if in_parts and isinstance(source, Array) else y
        return y.reshape(*shape) if isinstance(y, Array) else returned(y.reshape(shape))


def along(x: Operandish, operation: str, axis: int, device: Device) -> Any:
    """Return the reduction of a matrix along an axis, which stays."""
    return reduce(x, operation, axis, keepdims=True, device=device)


def _k_at_once(devices: list[Device], x: Data) -> int:
    """Return how many k of x[i, k, j] can be reduced at once: all, or fewer if a single i is too large."""
    _, length, inner = x.shape
    return min(length, max(1, min(most_at_once(one, x) for one in devices) // (inner * element_of(x).itemsize)))


def _reduce(devices: list[Device], operation: Operation, x: Data, y: Data) -> None:
    """Fill y[i, j], which is a NumPy array if x[i, k, j] has to be reduced in parts of k."""
    step, length = _k_at_once(devices, x), x.shape[1]
    if step < length:
        assert not isinstance(y, Array), "partial results are combined on the host"
        y[...] = _combined(devices, operation, x, step)
        return

    def compute(x: Array, y: Array) -> None:
        if x.element.wide and operation.multiplied:
            add_up(x, y, mean=operation.name == "mean")
            return
        choose.run(reduction_of(operation, x, y), x.device, x, y)

    in_pieces(devices, compute, [Labelled(x, "ikj")], Labelled(y, "ij"), "ij")


def _combined(devices: list[Device], operation: Operation, x: Data, step: int) -> NDArray[Any]:
    """Return the results over all k, combined from results over `step` elements each."""
    outer, length, inner = x.shape
    starts, whole = range(0, length, step), element_of(x) == I32

    def of_pieces(name: str, dtype: DType) -> NDArray[Any]:
        parts = np.empty((len(starts), outer, inner), dtype.numpy)
        for part, start in zip(parts, starts, strict=True):
            _reduce(devices, operation_of(name), x[:, start : start + step], part)
        return np.moveaxis(parts, 0, -1)

    if operation.declared:
        if operation.joined is None:
            raise UnsupportedError(
                f"a reduction whose map uses i takes at most {step:,} of these {length:,} elements at once: "
                "positions in pieces would start anew"
            )
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
