"""Registration of `webmm.Array` as a chunk type of Dask arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask.array import dispatch
from dask.sizeof import sizeof

from webmm.calls.joined import concatenate, take
from webmm.calls.numpy_functions import tensordot
from webmm.engine.device import Array, default_device


def register() -> None:
    """Register the functions that Dask looks up by chunk type; calling it again has no effect."""
    dispatch.concatenate_lookup.register(Array, lambda arrays, axis=0: concatenate(arrays, axis))
    dispatch.tensordot_lookup.register(Array, lambda a, b, axes=2: tensordot(a, b, axes))
    dispatch.take_lookup.register(Array, lambda x, indices, axis=None, **_: take(x, indices, axis))
    dispatch.empty_lookup.register(Array, _empty)
    dispatch.divide_lookup.register(Array, lambda x, y, **_: x / y)
    dispatch.numel_lookup.register(Array, _numel)
    dispatch.nannumel_lookup.register(Array, _numel)
    dispatch.to_numpy_dispatch.register(Array, lambda x, **_: x.numpy())
    sizeof.register(Array, lambda x: x.nbytes)


def _empty(shape: Any, dtype: Any = "float32", **_: Any) -> Array:
    lengths = (shape,) if isinstance(shape, int) else tuple(shape)
    return default_device().empty(lengths, np.dtype(dtype).name)


def _numel(x: Array, axis: Any = None, keepdims: bool = False, **_: Any) -> Any:
    shown = np.broadcast_to(np.ones((), np.float32), x.shape)
    return x.device.array(np.sum(shown, axis=axis, keepdims=keepdims))
