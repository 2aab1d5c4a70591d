"""Plans for repeated calls on `Array`s: the second call with the same key is a lookup; see `webmm.engine.plans`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from webmm.dtypes import DType
from webmm.engine import generation
from webmm.engine.device import Array, Device
from webmm.problems.weights import BlockWeights
from webmm.wgsl.own import Epilogue
from webmm.wgsl.reductions import Reduction

P = ParamSpec("P")
R = TypeVar("R")
HOST = (type(None), bool, int, float, str, bytes, tuple, type, np.dtype, np.generic)  # host values allowed in a key
RESIDENT = (Array, BlockWeights)  # operands on a device, or that may be
PLAIN = (*HOST, DType, Device, Reduction)  # all types allowed in a key
SMALL = 2**14  # the contents of a NumPy array up to this size (bytes) are part of the key


def planned(call: Callable[P, R]) -> Callable[P, R]:
    """Decorate `call` to replay the launches of an earlier call that differs only in the buffers of its `Array`s."""
    name = call.__name__

    @wraps(call)
    def repeated(*args: P.args, **kwargs: P.kwargs) -> R:
        if not (args and type(args[0]) is Array) and not any(type(x) in RESIDENT for x in (*args, *kwargs.values())):
            return call(*args, **kwargs)
        key, arrays = described(name, args, kwargs)
        if not arrays:
            return call(*args, **kwargs)
        plans = arrays[0]._storage.device.plans
        signature = tuple(key)
        try:
            plan = plans.kept.get(signature)
        except TypeError:  # an argument is not hashable
            return call(*args, **kwargs)
        if plan is None:
            again = partial(call, *args, **kwargs)
            return plans.record(signature, arrays, again) if all(isinstance(x, PLAIN) for x in key) else again()
        if (result := plan.run(arrays)) is not None:
            return result  # type: ignore[return-value]
        return call(*args, **kwargs)

    return repeated


def described(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], list[Array]]:
    """Return the key of a call, of everything that its launches depend on but for buffers, and its arrays."""
    arrays: list[Array] = []
    key: list[Any] = [name, generation.current]
    for x in args:
        if type(x) is Array:
            arrays.append(x)
            key.append(x.signature)
        else:
            _describe(x, key, arrays)
    for word, x in kwargs.items():
        key.append(word)
        _describe(x, key, arrays)
    if len(arrays) > 1:
        buffers = [x._storage.buffer for x in arrays]
        if len(set(buffers)) < len(buffers):
            key.append(tuple(map(buffers.index, buffers)))
    return key, arrays


def _describe(x: Any, key: list[Any], arrays: list[Array]) -> None:
    """Add to `key` everything about an argument that the launches depend on, and its Arrays to `arrays`."""
    kind = type(x)
    if kind is Array:
        arrays.append(x)
        key.append(x.signature)
    elif kind is BlockWeights and type(x.words) is Array:
        key += (x.shape, x.bits, x.block)
        for part in x.parts:
            _describe(part, key, arrays)
    elif kind is Epilogue:
        key += (kind, x.name, struct.pack(f"<{len(x.numbers)}d", *x.numbers))
        for operand in x.operands:
            _describe(operand, key, arrays)
    elif kind is np.ndarray and x.nbytes <= SMALL and not x.dtype.hasobject:
        key += (kind, x.dtype, x.shape, x.tobytes())
    else:
        key += (kind, _exact(x))  # the type, since 1, 1.0 and True are equal


def _exact(x: Any) -> Any:
    """Return `x` with floats replaced by their bits: 0.0 == -0.0, and NaN is not equal to itself."""
    if isinstance(x, float):
        return struct.pack("<d", x)
    if isinstance(x, np.generic):
        return x.dtype, x.tobytes()
    return tuple((type(each), _exact(each)) for each in x) if isinstance(x, tuple) else x
