"""Storages of new arrays on a device: uninitialised, zeros, wrapped buffers of other libraries, cached constants."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

from webmm.dtypes import DType
from webmm.engine.core import Core
from webmm.engine.pool import Block, Storage
from webmm.engine.view import AnyView
from webmm.errors import ProblemError

MAX_CONSTANTS = 256  # cached per device
AnyDevice = TypeVar("AnyDevice", bound=Core)
Constant = TypeVar("Constant", bound=AnyView)


def new(device: AnyDevice, nbytes: int) -> tuple[Storage[AnyDevice], bool]:
    """Return a new storage, and whether its buffer is newly allocated and therefore zero."""
    with device.guard.using("allocating"), device.guard.lock:
        block, fresh = device.pool.take(nbytes)
    storage = Storage(device, block, nbytes)
    if recording := device.recordings.current():
        recording.made(storage)
    return storage, fresh


def zeros(device: AnyDevice, nbytes: int) -> Storage[AnyDevice]:
    """Return a new storage of zeros."""
    storage, fresh = new(device, nbytes)
    device.recordings.interrupt("clearing")  # a new buffer is clear, but that of a repeated call may be none
    if not fresh:
        with device.using("clearing"), device.guard.lock:
            encoder = device.wgpu_device.create_command_encoder()
            encoder.clear_buffer(storage.buffer)
            device.wgpu_device.queue.submit([encoder.finish()])
    return storage


def wrapped(device: AnyDevice, buffer: Any, shape: tuple[int, ...], dtype: DType, offset: int) -> Storage[AnyDevice]:
    """Return a storage for `Device.wrap()`, after checking its arguments."""
    if not (isinstance(buffer, device.engine.api.GPUBuffer) and buffer._device is device.wgpu_device):
        raise ProblemError("wrap() takes a wgpu.GPUBuffer of the same device; share a device with Device.from_wgpu()")
    if not buffer.usage & device.engine.api.BufferUsage.STORAGE:
        raise ProblemError("the buffer was created without the usage STORAGE, which kernels need")
    end = (offset + math.prod(shape)) * dtype.itemsize
    if offset < 0 or end > buffer.size:
        what = f"{dtype.name} of shape {shape} from element {offset:,} on"
        raise ProblemError(f"{what} ends at byte {end:,}; the buffer has {buffer.size:,} bytes")
    device.submissions.shared = True  # the buffer's owner may submit work with it at any time
    return Storage(device, Block(buffer, buffer.size, owned=False), buffer.size)


class Constants(Generic[Constant]):
    """Cache of small arrays that `upload` uploads once; evicts the least recently used."""

    def __init__(self, upload: Callable[[NDArray[Any]], Constant]) -> None:
        self._upload = upload
        self._kept: OrderedDict[Any, Constant] = OrderedDict()

    def get(self, host: NDArray[Any]) -> Constant:
        """Return the device copy of `host`."""
        key = (host.dtype.str, host.shape, host.tobytes())
        found = self._kept.get(key)
        if found is None or not found._storage.alive:
            found = self._kept[key] = self._upload(host)
            found._storage.constant = True
        self._kept.move_to_end(key)
        while len(self._kept) > MAX_CONSTANTS:
            self._kept.popitem(last=False)
        return found
