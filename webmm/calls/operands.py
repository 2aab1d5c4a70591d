"""Operands of calls: uploaded, checked, and freed when the call returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from webmm import choose
from webmm.calls.devices import Devices, check_divisible, chosen
from webmm.calls.executor import Data
from webmm.config import Tune
from webmm.dtypes import F32, I32, DType, dtype_of
from webmm.engine.device import Array, Device, default_device
from webmm.engine.devices import named
from webmm.engine.moves import upload
from webmm.engine.view import imported, in_memory_order
from webmm.errors import MemoryLimitError, ProblemError
from webmm.problems.base import Problem
from webmm.wgsl.own import Epilogue

Operandish = Array | ArrayLike
Run = Callable[..., None]  # run(problem, device, *arrays) queues a kernel that computes the problem


def from_dlpack(x: Any, device: Device | str | None = None) -> Array:
    """Return a copy of `x` on a device.

    Arguments:

    - `x`: an array in host memory from any library that exports DLPack, such as a PyTorch tensor.
    - `device`: by default the most capable adapter.

    Raises ProblemError if `x` does not support DLPack, or is not in host memory; otherwise as `Device.array()`.
    """
    return (named(device) or default_device()).array(imported(x, dlpack=True))


def data_of(x: Operandish, *, floats: bool = False) -> Data:
    """Return `x`, as a NumPy array if it is not an `Array`; with `floats`, integers of lists as float32.

    Raises ProblemError for an unsupported dtype.
    """
    if isinstance(x, Array):
        return x
    host = imported(x)
    if floats and host.dtype == I32.numpy and not hasattr(x, "dtype"):
        host = host.astype(F32.numpy)
    dtype_of(host.dtype)
    return host


def operands_of(activation: Epilogue | str | None) -> tuple[Data, ...]:
    """Return the operands of a user's own function, in host memory or on a device."""
    return tuple(map(data_of, activation.operands)) if isinstance(activation, Epilogue) else ()


class Temporaries:
    """Device copies of one call's operands, freed when the call ends; and how its kernels are chosen and queued."""

    def __init__(self, device: Device, tune: Tune | None = None, other: Run | None = None) -> None:
        self.device, self.devices = device, [device]  # the first of the devices
        self.tune = tune  # None for the device's setting
        self._other = other  # runs the problems instead of `webmm.choose.run`
        self._owned: list[Array] = []
        self._sum: Array | None = None

    def __enter__(self) -> Temporaries:
        return self

    def __exit__(self, *_: object) -> None:
        for array in self._owned:
            array.free()

    def data(self, x: Operandish) -> Data:
        """Return `x` without moving it, as an `Array` or a NumPy array of a supported dtype."""
        return self.array(x) if isinstance(x, Array) else data_of(x)

    def result(self, shape: tuple[int, ...], dtype: DType, *operands: Data | None) -> Data:
        """Return an array for the result: an `Array` if any operand is one, else a NumPy array."""
        if any(isinstance(x, Array) for x in operands):
            return self.device.empty(shape, dtype)
        return np.empty(shape, dtype.numpy)

    def run(self, problem: Problem, *arrays: Array) -> None:
        """Queue the kernel that is chosen for a problem, on the device of its arrays."""
        if self._other:
            self._other(problem, arrays[0].device, *arrays)
        else:
            choose.run(problem, arrays[0].device, *arrays, tune=self.tune)

    def array(self, x: Operandish, dtype: DType | None = None) -> Array:
        """Return `x` on the device, as `dtype`; a transposed NumPy array is uploaded in its memory order."""
        return self.arrays(x, dtype=dtype)[0]

    def arrays(self, *operands: Operandish, dtype: DType | None = None) -> list[Array]:
        """Return each operand as `array()` does; the uploads of NumPy arrays overlap."""
        found: list[Array] = []
        uploads = []
        for x in operands:
            if isinstance(x, Array):
                if x.device is not self.device:
                    raise ProblemError("the operands live on different devices; copy one: device.array(x.numpy())")
                found.append(x if dtype in (None, x.element) else self._own(self.device.array(x.numpy(), dtype)))
                continue
            host = imported(x)
            stored = in_memory_order(host)
            array = self.empty(stored.shape, dtype or dtype_of(stored.dtype))
            uploads.append((stored, array))
            found.append(array if stored is host else array.mT)
        upload(self.device, *uploads)
        return found

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """Return an array whose contents are undefined."""
        return self._own(self.device.empty(shape, dtype))

    def sum(self, size: int, dtype: DType) -> Array:
        """Return an array for `size` partial sums; the same array is returned again while it is large enough."""
        if self._sum is None or self._sum.size < size:
            self._sum = self.empty((size,), dtype)
        return self._sum

    def _own(self, array: Array) -> Array:
        self._owned.append(array)
        return array


def number(name: str, x: Any) -> float:
    """Return `x` as a float; raises ProblemError with its `name` if it is not a number."""
    try:
        return float(x)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"{name} must be a number, not {x!r}") from error


def flag(name: str, x: Any) -> bool:
    """Return `x` as a bool; raises ProblemError with its `name` if it is neither a bool nor an integer, as in NumPy."""
    if not isinstance(x, (bool, int, np.bool_, np.integer)):
        raise ProblemError(f"{name} must be True or False, not {x!r}")
    return bool(x)


@contextmanager
def opened(
    call: str, device: Device | str | None, *operands: Operandish, devices: Devices | None = None
) -> Iterator[Temporaries]:
    """Start a call on the given device or devices, the device of the first `Array`, or the default device."""
    device = named(device)
    if devices is not None:
        check_divisible(device, *operands)
        several = chosen(devices)
    else:
        resident = (x.device for x in operands if isinstance(x, Array))
        several = [device or next(resident, None) or default_device()]
    with several[0].span(call, "call"), Temporaries(several[0]) as temporary:
        temporary.devices = several
        yield temporary


def returned(result: Data) -> Any:
    """Return the result of a call, a 0-D NumPy array as a scalar."""
    return result if isinstance(result, Array) else result[()]


def in_shape(x: Data, shape: tuple[int, ...]) -> Data:
    """Return `x` in another shape: a view if its strides are ≥ 0 and allow one, else a copy, where there is memory."""
    if not isinstance(x, Array):
        return x.reshape(shape)
    try:
        return x.reshape(shape, copy=True if any(stride < 0 for stride in x.strides) else None)
    except MemoryLimitError:
        return x.numpy().reshape(shape)
