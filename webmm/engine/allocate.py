"""New arrays on a device: uninitialised, zeros, cached constants, and wrapped buffers of other libraries."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from webmm.dtypes import DType
from webmm.engine.array import Array, Storage, checked_shape
from webmm.engine.pool import Block
from webmm.errors import ProblemError

if TYPE_CHECKING:
    from webmm.engine.device import Device

MAX_CONSTANTS = 256  # cached per device


def new(device: Device, shape: tuple[int, ...], dtype: DType) -> tuple[Array, bool]:
    """Return a new array, and whether its buffer is newly allocated and therefore zero."""
    nbytes = math.prod(shape) * dtype.itemsize
    with device.guard.using("allocating"), device.guard.lock:
        block, fresh = device.pool.take(nbytes)
    storage = Storage(device, block, nbytes)
    if recording := device.plans.current():
        recording.made(storage)
    return Array(storage, shape, dtype), fresh


def zeros(device: Device, shape: tuple[int, ...], dtype: DType) -> Array:
    """Implement `Device.zeros()`."""
    array, fresh = new(device, shape, dtype)
    if not fresh:
        with device.using("clearing"), device.guard.lock:
            encoder = device.wgpu_device.create_command_encoder()
            encoder.clear_buffer(array.storage.buffer)
            device.wgpu_device.queue.submit([encoder.finish()])
    return array


def wrap(device: Device, buffer: Any, shape: tuple[int, ...], dtype: DType, offset: int) -> Array:
    """Implement `Device.wrap()`."""
    if not device.engine.is_buffer(buffer, device.wgpu_device):
        raise ProblemError("wrap() takes a wgpu.GPUBuffer of the same device; share a device with Device.from_wgpu()")
    if not buffer.usage & device.engine.buffer_usage.STORAGE:
        raise ProblemError("the buffer was created without the usage STORAGE, which kernels need")
    shape = checked_shape(shape)
    end = (offset + math.prod(shape)) * dtype.itemsize
    if offset < 0 or end > buffer.size:
        what = f"{dtype.name} of shape {shape} from element {offset:,} on"
        raise ProblemError(f"{what} ends at byte {end:,}; the buffer has {buffer.size:,} bytes")
    device.submissions.shared = True  # the buffer's owner may submit work with it at any time
    return Array(Storage(device, Block(buffer, buffer.size, owned=False), buffer.size), shape, dtype, offset=offset)


class Constants:
    """Cache of small arrays that are uploaded once; evicts the least recently used."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._kept: OrderedDict[Any, Array] = OrderedDict()

    def get(self, host: NDArray[Any]) -> Array:
        """Return the device copy of `host`."""
        key = (host.dtype.str, host.shape, host.tobytes())
        found = self._kept.get(key)
        if found is None or not found._storage.alive:
            found = self._kept[key] = self._device.array(host)
            found._storage.constant = True
        self._kept.move_to_end(key)
        while len(self._kept) > MAX_CONSTANTS:
            self._kept.popitem(last=False)
        return found
