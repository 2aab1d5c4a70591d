"""Views of buffers in device memory: where the elements of an array are."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from webmm import hooks
from webmm.arguments.arrays import check_plain, dense_strides, host_array, is_dense, reshaped
from webmm.dtypes import DType
from webmm.engine.pool import Owner, Owner_co, Storage
from webmm.errors import FreedArrayError, ProblemError

if TYPE_CHECKING:
    from typing_extensions import Self


Layout = tuple[tuple[int, ...], tuple[int, ...], int]  # shape, strides, and by how much the first element moves
MAX_LAYOUTS = 4096  # kept in a process
PLAIN = frozenset((int, str, type(None), type(Ellipsis)))  # types whose equal values mean the same: True == 1 does not


class View(Generic[Owner_co]):
    """Shape, dtype, strides and offset, in elements, of an array in the storage that it shares with others.

    Calls receive an `Array`, which is a view with the methods that need its device.
    """

    def __init__(
        self,
        storage: Storage[Owner_co],
        shape: tuple[int, ...],
        element: DType,
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> None:
        self._storage = storage
        self._shape = shape
        self.element = element  # webmm's dtype of the elements
        self._strides = dense_strides(shape) if strides is None else strides
        self._offset = offset

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes; they cannot be set: `reshape()` returns another view."""
        return self._shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The distances of neighbours along each axis, in elements."""
        return self._strides

    @property
    def offset(self) -> int:
        """The place of the first element in the storage, in elements."""
        return self._offset

    @property
    def device(self) -> Owner_co:
        """The device that holds the array."""
        return self._storage.device

    @property
    def storage(self) -> Storage[Owner_co]:
        """The storage behind the array.

        Raises FreedArrayError after `free()`, and the error of the dispatch that was to write the array, if the engine
        rejected it.
        """
        block = self._storage.block
        if block is None:
            raise FreedArrayError(f"this {'x'.join(map(str, self.shape))} {self.element.name} array was freed")
        if block.refused is not None:
            raise block.refused
        return self._storage

    @functools.cached_property
    def signature(self) -> Any:
        """The properties that a call's plan depends on, hashable: shape, strides, offset, dtype and buffer size."""
        block = self._storage.block
        return self.shape, self.strides, self.offset, self.element.name, block and block.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype of the elements; raises ConfigError for bfloat16 if ml_dtypes is not installed."""
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
        """Number of elements that fit in the buffer's data."""
        return self.storage.nbytes // self.element.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether the elements are in row-major order without gaps."""
        return is_dense(self)

    # Views

    @property
    def T(self) -> Self:  # noqa: N802 (NumPy's name)
        """The array with its dimensions reversed; no copy."""
        return self._view(lambda shadow: shadow.T, "T")

    @property
    def mT(self) -> Self:  # noqa: N802
        """Each matrix of a batch transposed; no copy. Raises ProblemError below two dimensions."""
        if self.ndim < 2:
            raise ProblemError(f"an array of shape {self.shape} holds no matrices to transpose")
        return self._view(lambda shadow: shadow.swapaxes(-1, -2), "mT")

    def __getitem__(self, key: Any) -> Self:
        """Return a view by integers, slices, None and `...`, with NumPy's meaning and NumPy's IndexError."""
        keys = key if isinstance(key, tuple) else (key,)
        plain = [k for k in keys if k is not None and k is not Ellipsis]
        if any(isinstance(k, bool) or not isinstance(k, (int, np.integer, slice)) for k in plain):
            raise ProblemError(
                "a device array is indexed by integers, slices, None and ...; use x.numpy()[...] for more"
            )
        if Ellipsis not in keys:
            keys = (*keys, Ellipsis)  # a view even of a single element
        return self._view(lambda shadow: shadow[keys], "[]", *keys)

    def reshape(self, *shape: Any, copy: bool | None = None) -> Self:
        """Return the array in another shape, given as numbers or as a tuple: a view where strides allow one, as NumPy.

        Otherwise the result is a copy, which is made on the device. With copy=True it is always a copy; with copy=False
        ProblemError is raised where one is needed.
        """
        wanted = shape[0] if len(shape) == 1 else shape
        if copy:
            return self._copied().reshape(wanted)
        if self.contiguous:
            return self._view(lambda shadow: shadow.reshape(wanted), "reshape", wanted)
        lengths = self._lengths(wanted)
        strides = reshaped(self.shape, self.strides, lengths)
        if strides is not None:
            return type(self)(self.storage, lengths, self.element, strides, self.offset)
        if copy is False:
            raise ProblemError(
                f"an array of shape {self.shape} and strides {self.strides} needs a copy to be {lengths}"
            )
        return self._copied().reshape(lengths)

    def _lengths(self, shape: Any) -> tuple[int, ...]:
        """Return `shape` with the length that -1 stands for; raises ProblemError if it does not fit."""
        try:
            return tuple(np.broadcast_to(np.empty((), np.uint8), self.shape).reshape(shape).shape)
        except ValueError as error:
            raise ProblemError(str(error)) from error

    def _copied(self) -> Self:
        copy: Self = hooks.above.copied(self)
        return copy

    def broadcast_to(self, shape: tuple[int, ...]) -> Self:
        """Return a view repeated along new or unit dimensions; raises ProblemError if `shape` does not fit."""
        return self._view(lambda shadow: np.broadcast_to(shadow, shape), "broadcast_to", shape)

    def _view(self, change: Callable[[NDArray[Any]], NDArray[Any]], name: str = "", *arguments: Any) -> Self:
        """Compute a view's shape, strides and offset by applying `change` to a NumPy array of the same strides.

        Layouts that are computed are kept under the change's `name` and `arguments`, if it has a name: NumPy takes two
        to six times as long. The elements of that array are never read. Raises ProblemError if NumPy raises ValueError.
        """
        exact = _exact(arguments) if name else None
        if exact is None:
            shape, strides, moved = self._changed(change)
        else:
            key = self.shape, self.strides, name, exact
            if (found := _layouts.get(key)) is None:
                if len(_layouts) >= MAX_LAYOUTS:
                    _layouts.clear()
                found = _layouts[key] = self._changed(change)
            shape, strides, moved = found
        return type(self)(self.storage, shape, self.element, strides, self.offset + moved)

    def _changed(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Layout:
        itemsize = self.element.itemsize
        base = np.empty(1, f"u{itemsize}")  # since NumPy makes no views of some types of ml_dtypes
        shadow = as_strided(base, self.shape, [s * itemsize for s in self.strides], writeable=False)
        try:
            changed = change(shadow)
        except ValueError as error:
            raise ProblemError(str(error)) from error
        moved = (changed.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // itemsize
        strides = tuple(s // itemsize for s in changed.strides)
        return changed.shape, strides, moved

    def free(self) -> None:
        """Release the buffer now, for every array that shares it; calling it again has no effect."""
        self._storage.free()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()


AnyView = View[Owner]  # on whatever device


_layouts: dict[Hashable, Layout] = {}


def _exact(arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return arguments in a form that is only equal for equal ones, or None if they are not just whole numbers."""
    found: list[Any] = []
    for x in arguments:
        if type(x) is slice:
            x = (x.start, x.stop, x.step, "slice")
        if not PLAIN.issuperset(map(type, x if type(x) is tuple else (x,))):
            return None
        found.append(x)
    return tuple(found)


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return `shape` as a tuple of int; raises ProblemError if it is not a sequence of integers from 0 on."""
    try:
        lengths = tuple(map(operator.index, shape))
    except TypeError as error:
        raise ProblemError(f"a shape is a tuple of whole numbers, not {shape!r}") from error
    if any(length < 0 for length in lengths):
        raise ProblemError(f"shape {shape} has a negative length")
    return lengths


def imported(x: Any, *, dlpack: bool = False, wide: bool = False) -> NDArray[Any]:
    """Return `x` as a NumPy array, as `host_array()`, or from its DLPack; with `dlpack` it must export that.

    Raises ProblemError if the import through DLPack fails, and as `host_array()` does.
    """
    if not dlpack and (isinstance(x, np.ndarray) or hasattr(x, "__array__") or not hasattr(x, "__dlpack__")):
        return host_array(x, wide=wide)
    check_plain(x)
    try:
        return np.from_dlpack(x)
    except (AttributeError, BufferError, RuntimeError, TypeError) as error:
        raise ProblemError(
            f"{type(x).__name__} cannot be read through DLPack: {error}; move it to host memory"
        ) from error


def in_memory_order(host: NDArray[Any]) -> NDArray[Any]:
    """Return `host`, or its transpose if that is nearer to its order in memory, in which it is read faster."""
    transposed = host.ndim > 1 and 0 < abs(host.strides[-2]) < abs(host.strides[-1])
    return host.swapaxes(-1, -2) if transposed else host
