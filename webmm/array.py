"""Matrices that live on a device."""

from __future__ import annotations

import itertools
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from webmm.dtypes import DType
from webmm.errors import FreedArrayError

if TYPE_CHECKING:
    from webmm.device import Device

_uids = itertools.count()


class Storage:
    """One GPU buffer and what was prepared for it; freed once, by hand or by the garbage collector."""

    def __init__(self, device: Device, buffer: Any) -> None:
        self.uid = next(_uids)
        self.device = device
        self.buffer = buffer
        self.launches: set[Any] = set()  # keys of prepared launches that bind this buffer

    def free(self) -> None:
        """Give the memory back; doing so again is harmless."""
        buffer, self.buffer = self.buffer, None
        if buffer is not None:
            self.device.forget(self)
            buffer.destroy()


class Array:
    """A dense row-major array on a device. It owns its buffer: `free()` it, use it in `with`, or let it go.

    Any use after `free()` raises FreedArrayError; freeing twice is harmless.
    """

    def __init__(self, storage: Storage, shape: tuple[int, ...], dtype: DType) -> None:
        self._storage = storage
        self._finalizer = weakref.finalize(self, storage.free)
        self._finalizer.atexit = False
        self.shape = shape
        self.dtype = dtype

    @property
    def device(self) -> Device:
        """The device that holds the array."""
        return self._storage.device

    @property
    def storage(self) -> Storage:
        """The buffer behind the array; raises FreedArrayError after `free()`."""
        if self._storage.buffer is None:
            raise FreedArrayError(f"this {'x'.join(map(str, self.shape))} {self.dtype.name} array was freed")
        return self._storage

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of data; the buffer is rounded up to a multiple of 16."""
        return self.size * self.dtype.itemsize

    def numpy(self) -> NDArray[Any]:
        """Return a copy in host memory, of the array's shape and dtype."""
        return self.device.download(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("the array lives on the device: NumPy can only have a copy")
        return self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)

    def free(self) -> None:
        """Give the buffer back now; doing so again is harmless."""
        self._finalizer()

    def __enter__(self) -> Array:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()

    def __repr__(self) -> str:
        state = "freed" if self._storage.buffer is None else f"on {self.device.info.name}"
        return f"<webmm.Array {'x'.join(map(str, self.shape))} {self.dtype.name} {state}>"
