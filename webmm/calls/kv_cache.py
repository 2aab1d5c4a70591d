"""The keys and values of earlier tokens, kept on a device for attention."""

from __future__ import annotations

import operator
from types import TracebackType
from typing import Any

from numpy.typing import DTypeLike

from webmm.arguments.caches import check_layer, check_places, check_room, check_whole, new_tokens
from webmm.calls.executor import Data
from webmm.calls.expression import copy_into
from webmm.calls.joined import put
from webmm.calls.operands import Operandish, Temporaries, opened
from webmm.calls.planned import planned
from webmm.dtypes import DType, dtype_of
from webmm.engine.aliasing import overlap
from webmm.engine.device import Array, Device
from webmm.errors import ProblemError
from webmm.problems.base import check_floats


class KVCache:
    """The keys and values of each layer of a model, for up to `capacity` tokens; `append()` adds those of new tokens.

    `keys()` and `values()` are views of the tokens appended so far, which `attention()` reads in place: nothing is
    copied when they grow. A view that was taken earlier keeps its length.

    Arguments:

    - `device`: where the cache is.
    - `layers`, `batch`, `heads`, `capacity`: numbers from 1 on; `heads` are those of the keys, which may be fewer than
      those of the queries.
    - `width`: the length of a key, and of a value unless `value_width` is given.
    - `dtype`: one of `webmm.dtypes.MATRIX_DTYPES`; keys and values are converted to it.

    All memory is allocated at once, a buffer for the keys and one for the values of each layer. `free()`, or leaving a
    `with` block, releases it; any later use raises FreedArrayError. Threads must not append at the same time.

    Raises ProblemError for other arguments, UnsupportedError for a layer over the device's limits, and MemoryLimitError
    if the device is out of memory.

    Example: ``y = webmm.attention(q, *cache.append(layer, k, v), causal="end")``
    """

    def __init__(
        self,
        device: Device,
        layers: int,
        batch: int,
        heads: int,
        capacity: int,
        width: int,
        dtype: DTypeLike = "float32",
        *,
        value_width: int | None = None,
    ) -> None:
        if not isinstance(device, Device):
            raise ProblemError(f"KVCache() takes a webmm.Device first, not {type(device).__name__}")
        self.device = device
        self.element: DType = dtype_of(dtype)  # webmm's dtype of the elements
        check_floats("KVCache()", self.element)
        sizes = {"layers": layers, "batch": batch, "heads": heads, "capacity": capacity, "width": width}
        count, *rest = (_whole(name, size, 1) for name, size in sizes.items())
        self.capacity = rest[2]
        shape, wide = tuple(rest), _whole("value_width", width if value_width is None else value_width, 1)
        self._keys = [device.empty(shape, self.element) for _ in range(count)]
        self._values = [device.empty((*shape[:-1], wide), self.element) for _ in range(count)]
        self._lengths = [0] * count
        device.launches.reserve(count * self.capacity, self)  # each length of each layer has its own

    @property
    def lengths(self) -> tuple[int, ...]:
        """The number of tokens of each layer."""
        return tuple(self._lengths)

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values, empty places included."""
        return sum(x.nbytes for x in (*self._keys, *self._values))

    def length(self, layer: int) -> int:
        """Return the number of tokens of a layer."""
        return self._lengths[self._at(layer)]

    def keys(self, layer: int) -> Array:
        """Return a view of the keys of a layer, (batch, heads, tokens, width)."""
        return self._filled(self._keys, layer)

    def values(self, layer: int) -> Array:
        """Return a view of the values of a layer, (batch, heads, tokens, width of a value)."""
        return self._filled(self._values, layer)

    def append(self, layer: int, k: Operandish, v: Operandish, *, at: Array | None = None) -> tuple[Array, Array]:
        """Append keys and values of new tokens to a layer, and return `keys()` and `values()` with them.

        `k` and `v` have shape (batch, heads, new tokens, width), with any strides: those of heads that were split by
        ``x.reshape(b, t, h, d).swapaxes(1, 2)`` are read in place. It takes a dispatch for the keys and one for the
        values. Raises ProblemError for another shape, for dtypes that are not floats, for arrays on another device, for
        views of the same layer, and if the layer would hold more than `capacity` tokens; the cache is unchanged then.

        With `at`, an int32 array on the device of shape (1,) or (batch,), the first new token of each sequence takes
        this place, at most the one at which the last new token is the last of the cache. Nothing reads the array on
        the host: a captured function (`webmm.capture()`) appends so. The results are all places then, of which
        `attention()` takes ``lengths=at + tokens``; `lengths` stays as it is.
        """
        index = self._at(layer)
        into = [self._keys[index], self._values[index]]
        with opened("KVCache.append", self.device, k, v) as temporary:
            given = [temporary.data(k), temporary.data(v)]
            tokens = new_tokens(given[0], given[1], into[0].shape, into[1].shape)
            for name, x in zip("kv", given, strict=True):
                if any(overlap(cached, x) for cached in into):
                    raise ProblemError(f"{name} is a view of the cache's layer {index}; pass a copy of it")
            if at is not None:
                if not isinstance(at, Array):
                    raise ProblemError(f"at must be an int32 array on the device, not {type(at).__name__}")
                check_places(at, into[0].shape[0])
                check_room(index, 0, tokens, self.capacity)
                _put(*temporary.arrays(*given, at), *into)
                return into[0], into[1]
            if (recording := self.device.recordings.current()) and recording.captured:
                raise ProblemError("a captured function appends to a KVCache at=, an int32 array with the place")
            start = self._lengths[index]
            check_room(index, start, tokens, self.capacity)
            stop = start + tokens
            _write(*temporary.arrays(*given), *(x[:, :, start:stop] for x in into))
        self._lengths[index] = stop
        return self.keys(index), self.values(index)

    def truncate(self, length: int) -> None:
        """Forget all tokens but the first `length` of each layer; ProblemError unless it is a number from 0 on."""
        kept = _whole("length", length, 0)
        self._lengths = [min(kept, each) for each in self._lengths]

    def clear(self) -> None:
        """Forget all tokens."""
        self.truncate(0)

    def free(self) -> None:
        """Release the memory; calling it again has no effect."""
        for x in (*self._keys, *self._values):
            x.free()

    def __enter__(self) -> KVCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()

    def __repr__(self) -> str:
        batch, heads, _, width = self._keys[0].shape
        filled = f"{max(self._lengths)} of {self.capacity} tokens"
        return f"<webmm.KVCache {len(self._keys)} layers of {batch}x{heads}x{width} {self.element.name}, {filled}>"

    def _filled(self, of: list[Array], layer: int) -> Array:
        at = self._at(layer)
        return of[at][:, :, : self._lengths[at]]

    def _at(self, layer: int) -> int:
        """Return a layer's index; raises ProblemError if there is no such layer."""
        at = _whole("layer", layer, 0)
        check_layer(at, len(self._lengths))
        return at


@planned
def _write(k: Array, v: Array, keys: Array, values: Array) -> Array:
    """Write new keys and values to their places, views of the same shapes, and return those of the values.

    This is planned, so that only the first layer of a length prepares anything but bindings.
    """
    with Temporaries(keys.device) as call:
        return written(call, k, v, keys, values)


@planned
def _put(k: Array, v: Array, at: Array, keys: Array, values: Array) -> Array:
    """Write new keys and values from the places `at` on, and return all values."""
    places = at.reshape(-1, 1, 1, 1)
    for x, y in ((k, keys), (v, values)):
        put(y, x, places, 2)
    return values


def _whole(name: str, value: Any, least: int) -> int:
    """Return a whole number; raises ProblemError with its `name` if it is not one from `least` on."""
    try:
        found = operator.index(value)
    except TypeError:
        found = value
    check_whole(name, found, least)
    return int(found)


# The steps, in both languages


def written(call: Temporaries, k: Data, v: Data, keys: Array, values: Array) -> Array:
    """Write new keys and values to their places, views of the same shapes, and return those of the values."""
    copy_into(call, k, keys)
    copy_into(call, v, values)
    return values
