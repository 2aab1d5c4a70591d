"""Operands of calls: brought to the device, checked, and given back when the call is over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numpy.typing import ArrayLike

from webmm.calls.parts import matrix_operand
from webmm.dtypes import F32, DType
from webmm.engine.array import Array, host_array
from webmm.engine.device import Device, default_device
from webmm.errors import ProblemError

Operandish = Array | ArrayLike


def from_dlpack(x: Any, device: Device | None = None) -> Array:
    """Return a device copy of `x`, an array in host memory of any library that exports DLPack, such as a torch tensor.

    Raises ProblemError where `x` exports none, or lives on another device; else as `Device.array()`.
    """
    return (device or default_device()).array(host_array(x, dlpack=True))


class Temporaries:
    """Operands brought to the device for one call, and freed when it is over."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._owned: list[Array] = []
        self._sum: Array | None = None

    def __enter__(self) -> Temporaries:
        return self

    def __exit__(self, *_: object) -> None:
        for array in self._owned:
            array.free()

    def array(self, x: Operandish, dtype: DType | None = None) -> Array:
        """Return `x` on the device; a transposed NumPy array is uploaded as it lies."""
        if isinstance(x, Array):
            if x.device is not self.device:
                raise ProblemError("the operands live on different devices; copy one: device.array(x.numpy())")
            return x
        host = host_array(x)
        if host.ndim >= 2 and not host.flags.c_contiguous and host.swapaxes(-1, -2).flags.c_contiguous:
            return self._own(self.device.array(host.swapaxes(-1, -2), dtype)).mT
        return self._own(self.device.array(host, dtype))

    def readable(self, x: Array) -> Array:
        """Return `x`, or a contiguous copy where no kernel can read it as it lies."""
        return x if matrix_operand(x) else self._own(self.device.array(x.numpy()))

    def no_terms(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Return operands whose product is that of `a` and `b`, which have no inner elements: one of zeros each."""
        zero = self._own(self.device.empty((1,), a.dtype))
        return zero.broadcast_to((*a.shape[:-1], 1)), zero.broadcast_to((*b.shape[:-2], 1, b.shape[-1]))

    def bias(self, bias: Operandish | None, c: Array) -> Array | None:
        """Return the bias on the device; raises ProblemError where it is neither (n,) nor (m, 1)."""
        if bias is None:
            return None
        array = self.array(bias)
        rows, columns = c.shape[-2:]
        check_bias(array.shape, rows, columns)
        if array.strides[0] != 1 and array.shape[0] != 1:
            array = self._own(self.device.array(array.numpy()))
        return array

    def sum(self, size: int) -> Array:
        """Return an array that takes sums of `size` elements; the same one for as long as it is large enough."""
        if self._sum is None or self._sum.size < size:
            self._sum = self._own(self.device.empty((size,), F32))
        return self._sum

    def _own(self, array: Array) -> Array:
        self._owned.append(array)
        return array


def check_bias(shape: tuple[int, ...], rows: int, columns: int) -> None:
    """Raise ProblemError where `shape` is that of no bias of a (rows, columns) result."""
    if shape not in ((columns,), (rows, 1)):
        raise ProblemError(f"bias has shape {shape}; it must be ({columns},), or ({rows}, 1) for one per row")


def number(name: str, x: Any) -> float:
    """Return `x` as a float; raises ProblemError, naming it, where it is none."""
    try:
        return float(x)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"{name} is a number, not {x!r}") from error


@contextmanager
def opened(call: str, x: Operandish, device: Device | None) -> Iterator[tuple[Temporaries, Array]]:
    """Open the call on `x`'s device, the given or the default one, and bring `x` there."""
    device = device or (x.device if isinstance(x, Array) else default_device())
    with device.span(call, "call"), Temporaries(device) as temporary:
        yield temporary, temporary.array(x)


def returned(result: Array, x: Operandish) -> Any:
    """Return `result` as the caller of `x` has it: on the device, or in host memory."""
    if isinstance(x, Array):
        return result
    host = result.numpy()
    result.free()
    return host[()]  # a number where no axis is left
