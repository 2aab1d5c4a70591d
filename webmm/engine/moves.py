"""Uploads, downloads and copies of arrays and views."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import ArrayLike, NDArray

from webmm.arguments.arrays import host_array, span_of
from webmm.engine.aliasing import overlap
from webmm.engine.core import Core
from webmm.engine.transfer import Upload
from webmm.engine.view import AnyView, View
from webmm.errors import ProblemError

ACTIVITIES = {"upload": "uploading", "download": "downloading", "copy": "copying"}


def upload(device: Core, *pairs: tuple[NDArray[Any], AnyView]) -> None:
    """Implement `Device.upload()` for several host arrays and targets, whose copies overlap."""
    uploads = [_upload(host, target) for host, target in pairs if host.size or target.size]
    if uploads:
        with _moving(device, "upload", sum(each.nbytes for each in uploads)):
            device.staging.upload(*uploads)


def _upload(host: NDArray[Any], target: AnyView) -> Upload:
    """Return the checked upload of `host` to `target`."""
    if host.size != math.prod(target.shape):
        raise ProblemError(f"{host.size:,} elements cannot fill an array of shape {target.shape}")
    start, nbytes = target.offset * target.element.itemsize, host.size * target.element.itemsize
    if not target.contiguous or start % 4 or (nbytes % 4 and start + nbytes < target.storage.nbytes):
        raise ProblemError("only a contiguous array that starts and ends at multiples of four bytes can be written to")
    return Upload(host, target.element.numpy, target.storage, start)


def assign(device: Core, target: AnyView, data: AnyView | ArrayLike) -> None:
    """Implement `Device.assign()`."""
    if target.device is not device or (isinstance(data, View) and data.device is not device):
        raise ProblemError("the arrays are on different devices; copy one: device.array(x.numpy())")
    split = target.nbytes % 4 and target.size < target.capacity
    if not target.contiguous or target.offset or split:
        raise ProblemError("only a whole, contiguous array can be assigned to")
    data = data if isinstance(data, View) else host_array(data, wide=True)
    count = math.prod(data.shape)
    if count != target.size:
        raise ProblemError(f"{count:,} elements cannot fill an array of shape {target.shape}")
    if isinstance(data, View) and data.element == target.element and _can_copy(data, target):
        _copy(device, data, target)
        return
    upload(device, (download(device, data) if isinstance(data, View) else data, target))


def download(device: Core, array: AnyView, out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Implement `Device.download()`."""
    dtype, strides, buffer = array.element.numpy, array.strides, array.storage.buffer
    if out is None:
        out = np.empty(array.shape, dtype)
    elif out.shape != array.shape:
        raise ProblemError(f"out has shape {out.shape}; the array's shape is {array.shape}")
    if not math.prod(array.shape):
        return out
    if not buffer.usage & device.engine.api.BufferUsage.COPY_SRC:
        raise ProblemError("the wrapped buffer was created without the usage COPY_SRC, which a readback needs")
    first, count = span_of(array, dtype.itemsize)
    direct = array.contiguous and first == array.offset
    span = out if direct else np.empty(count, dtype)
    with _moving(device, "download", span.size * dtype.itemsize):
        device.staging.download(array.storage, first * dtype.itemsize, dtype, span)
    if not direct:
        start = span[array.offset - first :]
        shown = as_strided(start, array.shape, [s * dtype.itemsize for s in strides], writeable=False)
        np.copyto(out, shown, casting="unsafe")
    return out


def _copy(device: Core, source: AnyView, target: AnyView) -> None:
    nbytes = -(-source.nbytes // 4) * 4
    with _moving(device, "copy", nbytes), device.guard.lock:
        start = source.offset * source.element.itemsize
        copy = source.storage.buffer, start, target.storage.buffer, 0, nbytes
        device.engine.submit(device.wgpu_device, (), copy)


@contextmanager
def _moving(device: Core, how: str, nbytes: int) -> Iterator[None]:
    """Return the context of every upload, download and copy: a use of the device, recorded by an active profile."""
    if how == "download":  # its copy is submitted together with the queued launches
        device.recordings.interrupt(ACTIVITIES[how])
        use: AbstractContextManager[None] = device.guard.using(ACTIVITIES[how])
    else:
        use = device.using(ACTIVITIES[how])
    with use, device.span(how, how, bytes=nbytes):
        yield


def _can_copy(array: AnyView, target: AnyView) -> bool:
    """Tell whether a copy between buffers suffices: they differ, and `array` starts and ends at whole words."""
    whole = array.offset * array.element.itemsize % 4 == 0 and array.nbytes % 4 == 0
    return whole and array.contiguous and not overlap(target, array)
