"""Arrays on either side, in host memory or on a device: what the steps of calls do with them.

JavaScript has its own version of each (`web/calls/sides.js`), so that steps are written once: functions of this
package that use nothing else of NumPy or of a device can be translated, and wait where JavaScript must
(`webmm.page.script.waiting`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from webmm.arguments.arrays import Layout, Shape
from webmm.calls import operands
from webmm.calls.executor import Data
from webmm.calls.operands import Temporaries
from webmm.choose.limits import dispatch_limits
from webmm.dtypes import DType
from webmm.engine.device import Array, Device
from webmm.kernels.base import Kernel
from webmm.problems.base import Problem

CONSTANT = 2**17  # arrays of up to this many bytes are kept on the device between calls


def arranged(call: Temporaries, x: Data, find: Callable[[Array], Layout | None], shape: Shape) -> Data:
    """Return `x` in `shape`: a view with the layout that `find` returns, or if that is None, a copy."""
    del call
    if not isinstance(x, Array):
        return x.reshape(shape)
    layout = find(x)
    return operands.in_shape(x, shape) if layout is None else laid_out(x, layout)


def assign(call: Temporaries, target: Data, data: Data) -> None:
    """Overwrite an array, contiguous if it is on a device, with data, converted to its dtype."""
    del call
    if isinstance(target, Array):
        target.device.assign(target, data if isinstance(data, Array) else data.astype(target.dtype))
    else:
        target[...] = data


def at_index(call: Temporaries, x: Data, index: tuple[int, ...]) -> Data:
    """Return the view of an array at an index of its first axes."""
    del call
    return x[index]


def beside(call: Temporaries, x: Data, *operands: Data) -> Data:
    """Return `x`, on the device if one of the operands is there."""
    return x if isinstance(x, Array) or not is_resident(*operands) else call.device.array(x)


def binding_of(call: Temporaries, x: Array) -> int:
    """Return the most bytes that a dispatch can bind of a buffer, on the device of an array."""
    del call
    return dispatch_limits(x.device).binding


def converted(call: Temporaries, x: Data, dtype: DType) -> Data:
    """Return `x` as elements of another dtype, on its side."""
    del call
    return x.astype(dtype.name) if isinstance(x, Array) else x.astype(dtype.numpy)


def dense(call: Temporaries, x: Data) -> Data:
    """Return `x`, or a dense copy if it is on a device and has gaps or another order."""
    del call
    return x if not isinstance(x, Array) or x.contiguous else x.reshape(x.shape, copy=True)


def described(call: Temporaries) -> Device:
    """Return the device as the planner and the choice of kernels see it."""
    return call.device


def filled(shape: Shape, dtype: DType, value: float) -> Data:
    """Return an array in host memory, all of whose elements are `value`."""
    return np.full(shape, value, dtype.numpy)


def forward(call: Temporaries, x: Data) -> Array:
    """Return `x` on the device, without negative strides: a copy if need be."""
    array = call.array(x)
    return array if all(stride >= 0 for stride in array.strides) else array.reshape(array.shape, copy=True)


def from_start(call: Temporaries, x: Data) -> Data:
    """Return `x`, or a dense copy if it is on a device and does not fill a buffer from its start on."""
    del call
    return x.reshape(x.shape, copy=True) if isinstance(x, Array) and (x.offset or not x.contiguous) else x


def in_shape(call: Temporaries, x: Data, shape: Shape) -> Data:
    """Return `x` in another shape: a view if its strides allow it, else of a copy."""
    del call
    return operands.in_shape(x, shape)


def is_resident(*operands: Data | None) -> bool:
    """Return whether any of the operands is on a device."""
    return any(isinstance(x, Array) for x in operands)


def kept(call: Temporaries, x: Data, *operands: Data) -> Data:
    """Return an array in host memory, or, if it is small and an operand on the device, a copy there, kept for calls."""
    constant = is_resident(*operands) and x.nbytes <= CONSTANT
    return call.device.constant(x) if constant else x  # type: ignore[arg-type]


def laid_out(x: Array, layout: Layout) -> Array:
    """Return the view of an array on a device with this layout."""
    return Array(x.storage, layout.shape, x.element, layout.strides, layout.offset)


def no_terms(*operands: Data) -> tuple[Data, ...]:
    """Return operands of zeros with k = 1, for a and b with k = 0, whose product is the same."""
    a, b = operands
    shapes = (*a.shape[:-1], 1), (*b.shape[:-2], 1, b.shape[-1])
    return tuple(_zeros(x, shape) for x, shape in zip(operands, shapes, strict=True))


def _zeros(x: Data, shape: Shape) -> Data:
    """Return zeros of the dtype of an array, and on its side."""
    if isinstance(x, Array):
        return x.device.zeros((1,), x.element).broadcast_to(shape)
    return np.zeros(shape, x.dtype)


def on_host(call: Temporaries, x: Data) -> Data:
    """Return `x` in host memory."""
    del call
    return x.numpy() if isinstance(x, Array) else x


def owned(call: Temporaries, x: Data) -> Data:
    """Return an intermediate result, which JavaScript frees at the end of the call, and Python with its last use."""
    del call
    return x


def permuted(call: Temporaries, x: Data, axes: Sequence[int]) -> Data:
    """Return a view with the axes in another order; JavaScript copies arrays in host memory."""
    del call
    return x.transpose(*axes)


def range_of(x: Data, axis: int, start: int, count: int) -> Data:
    """Return a view of a range of an axis."""
    key: list[slice] = [slice(None)] * x.ndim
    key[axis] = slice(start, start + count)
    return x[tuple(key)]


def reshaped(x: Data, shape: Shape) -> Data:
    """Return a contiguous array in another shape."""
    return x.reshape(shape)


def run_kernel(call: Temporaries, kernel: Kernel[Any], problem: Problem, *arrays: Array) -> None:
    """Queue a kernel for a problem, on the device of its arrays."""
    del call
    arrays[0].device.run(kernel, problem, *arrays)


def spread(call: Temporaries, x: Data, shape: Shape) -> Data:
    """Return a view of an array that is repeated along new leading axes and axes of length 1."""
    del call
    return x.broadcast_to(shape) if isinstance(x, Array) else np.broadcast_to(x, shape)
