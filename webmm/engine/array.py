"""Matrices that live on a device."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from webmm.dtypes import DType, dtype_of
from webmm.engine.operators import Operators
from webmm.engine.pool import Block
from webmm.errors import FreedArrayError, ProblemError

if TYPE_CHECKING:
    from webmm.engine.device import Device

DLPACK_CPU = (1, 0)  # kDLCPU and its number


class Storage:
    """What owns a GPU buffer for as long as there are arrays over it, and then gives it back to the device's pool."""

    __slots__ = ("__weakref__", "block", "constant", "device", "nbytes")

    def __init__(self, device: Device, block: Block, nbytes: int) -> None:
        self.device = device
        self.block: Block | None = block
        self.nbytes = nbytes  # of data: the buffer may be larger
        self.constant = False  # whether calls share it, and nobody writes to it: see `Device.constant()`

    @property
    def alive(self) -> bool:
        """Whether the buffer is still there."""
        return self.block is not None

    @property
    def buffer(self) -> Any:
        """The wgpu buffer, None once it is freed."""
        return self.block and self.block.buffer

    def free(self) -> None:
        """Give the memory back; doing so again is harmless."""
        if self.block is not None:
            self.device.pool.give_back(self)

    def __del__(self) -> None:
        block = self.block
        if block is not None:
            self.device.pool.drop(block)


class Array(Operators):
    """An n-dimensional array on a device, or a view of one: slices and transposes share the buffer and copy nothing.

    The buffer lives as long as any array that shares it; `free()` gives it back at once, for all of them, and so does
    leaving a `with` block. Any use after that raises FreedArrayError; freeing twice is harmless. Strides and offset
    count elements. Long because it speaks the protocols of NumPy, of DLPack and of Python, a line or two each.
    """

    def __init__(
        self,
        storage: Storage,
        shape: tuple[int, ...],
        element: DType,
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> None:
        self._storage = storage
        self.shape = shape
        self.element = element  # the type of the elements, with what webmm knows of it
        self.strides = dense_strides(shape) if strides is None else strides
        self.offset = offset

    @property
    def device(self) -> Device:
        """The device that holds the array."""
        return self._storage.device

    @property
    def storage(self) -> Storage:
        """The buffer behind the array; raises FreedArrayError after `free()`, and what its result failed with."""
        block = self._storage.block
        if block is None:
            raise FreedArrayError(f"this {'x'.join(map(str, self.shape))} {self.element.name} array was freed")
        if block.refused is not None:
            raise block.refused
        return self._storage

    @functools.cached_property
    def signature(self) -> Any:
        """What a call's way depends on: shape, strides, offset, dtype, and the size of the buffer; it can be hashed."""
        block = self._storage.block
        return self.shape, self.strides, self.offset, self.element.name, block and block.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype of the elements; raises ConfigError for bfloat16 where ml_dtypes is not installed."""
        return self.element.numpy

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of the elements; the buffer is rounded up to a multiple of 16."""
        return self.size * self.element.itemsize

    @property
    def capacity(self) -> int:
        """Elements that the buffer holds."""
        return self.storage.nbytes // self.element.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        axes = zip(self.shape, self.strides, dense_strides(self.shape), strict=True)
        return all(length == 1 or stride == dense for length, stride, dense in axes)

    # Views

    @property
    def T(self) -> Array:  # noqa: N802 (NumPy's name)
        """The array with its dimensions reversed; no copy."""
        return self._view(lambda shadow: shadow.T)

    @property
    def mT(self) -> Array:  # noqa: N802
        """Each matrix of a batch transposed; no copy. Raises ProblemError below two dimensions."""
        if self.ndim < 2:
            raise ProblemError(f"an array of shape {self.shape} holds no matrices to transpose")
        return self._view(lambda shadow: shadow.swapaxes(-1, -2))

    def __getitem__(self, key: Any) -> Array:
        """Return a view by integers, slices, None and `...`, as NumPy has them; raises IndexError as NumPy does.

        Where one of them is a list of positions, those elements are copied, as `take()` does.
        """
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(k, (list, np.ndarray)) for k in keys):
            return self._taken(keys)
        plain = [k for k in keys if k is not None and k is not Ellipsis]
        if any(isinstance(k, bool) or not isinstance(k, (int, np.integer, slice)) for k in plain):
            raise ProblemError(
                "a device array is indexed by integers, slices, None and ...; use x.numpy()[...] for more"
            )
        if Ellipsis not in keys:
            keys = (*keys, Ellipsis)  # a view even of a single element
        return self._view(lambda shadow: shadow[keys])

    def reshape(self, *shape: int) -> Array:
        """Return a view of a contiguous array in another shape; raises ProblemError where it is not contiguous."""
        if not self.contiguous:
            raise ProblemError("only a contiguous array can be reshaped without a copy")
        return self._view(lambda shadow: shadow.reshape(shape))

    def broadcast_to(self, shape: tuple[int, ...]) -> Array:
        """Return a view repeated along new or unit dimensions; raises ProblemError where `shape` does not fit."""
        return self._view(lambda shadow: np.broadcast_to(shadow, shape))

    def _view(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Array:
        """Let NumPy do the arithmetic of views, on an array of the same strides that nobody reads.

        Raises ProblemError where NumPy finds that it does not fit.
        """
        itemsize = self.element.itemsize
        base = np.empty(1, self.element.numpy)
        shadow = as_strided(base, self.shape, [s * itemsize for s in self.strides], writeable=False)
        try:
            changed = change(shadow)
        except ValueError as error:
            raise ProblemError(str(error)) from error
        moved = (changed.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // itemsize
        strides = tuple(s // itemsize for s in changed.strides)
        return Array(self.storage, changed.shape, self.element, strides, self.offset + moved)

    # Data

    def numpy(self) -> NDArray[Any]:
        """Return a copy in host memory, of the array's shape and dtype."""
        return self.device.download(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("the array lives on the device: NumPy can only have a copy")
        return self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)

    async def numpy_async(self) -> NDArray[Any]:
        """Await `numpy()` in a thread of its own, so that no event loop waits for the device."""
        from asyncio import to_thread

        return await to_thread(self.numpy)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a DLPack capsule of a copy in host memory: WebGPU has no pointers that another library could use."""
        if copy is False or (dl_device or DLPACK_CPU) != DLPACK_CPU:
            raise BufferError("the array lives in a WebGPU buffer: DLPack can only have a copy in host memory")
        del stream, max_version  # NumPy's own capsule is of the version that every consumer reads
        return self.numpy().__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLPACK_CPU

    def free(self) -> None:
        """Give the buffer back now, for every array that shares it; doing so again is harmless."""
        self._storage.free()

    def __enter__(self) -> Array:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()

    def __repr__(self) -> str:
        place = "lost" if self.device.lost else f"on {self.device.info.name}"
        state = place if self._storage.alive else "freed"
        return f"<webmm.Array {'x'.join(map(str, self.shape))} {self.element.name} {state}>"


def _deep_copy(array: Array, memo: dict[int, Any]) -> Array:
    """Return a contiguous copy on the same device, made through the host."""
    del memo
    return array.device.array(array.numpy())


Array.__deepcopy__ = _deep_copy  # type: ignore[attr-defined]


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a row-major array of `shape`."""
    strides = [1]
    for length in shape[:0:-1]:
        strides.append(strides[-1] * length)
    return tuple(strides[: len(shape)][::-1])


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return `shape` as a tuple of int; raises ProblemError where it is none."""
    try:
        lengths = tuple(map(operator.index, shape))
    except TypeError as error:
        raise ProblemError(f"a shape is a tuple of whole numbers, not {shape!r}") from error
    if any(length < 0 for length in lengths):
        raise ProblemError(f"shape {shape} has a negative length")
    return lengths


def element_of(x: Array | NDArray[Any]) -> DType:
    """Return the type of the elements of an array on either side; raises ProblemError for one that no kernel stores."""
    return x.element if isinstance(x, Array) else dtype_of(x.dtype)


def host_array(x: Any, dlpack: bool = False) -> NDArray[Any]:
    """Return `x` as a NumPy array, without a copy where it is one or exports DLPack, as it must if `dlpack` is set.

    Raises ProblemError where that fails.
    """
    if not dlpack and (isinstance(x, np.ndarray) or hasattr(x, "__array__") or not hasattr(x, "__dlpack__")):
        return np.asarray(x)
    try:
        return np.from_dlpack(x)
    except (AttributeError, BufferError, RuntimeError, TypeError) as error:
        raise ProblemError(
            f"{type(x).__name__} cannot be read through DLPack: {error}; move it to host memory"
        ) from error
