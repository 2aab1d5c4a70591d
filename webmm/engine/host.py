"""NumPy functions that webmm does not implement: they run on copies of the arrays in host memory, and say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from webmm import log
from webmm.dtypes import DTYPES
from webmm.engine.view import View
from webmm.errors import UnsupportedError

_said: set[str] = set()  # the functions that the log has named


def computed(function: Callable[..., Any], args: Any, kwargs: Any, name: str = "") -> Any:
    """Return NumPy's result of `function`, with its arrays on the device of the first Array among the arguments.

    The log names each function once, at the level warning. int64 results become int32 if their values fit; arrays of
    other dtypes without a place on devices stay in host memory. Raises UnsupportedError if the setting
    `host_functions` is off.
    """
    name = f"numpy.{name or function.__name__}"
    device: Any = _device((args, kwargs))
    if not device.settings.host_functions:
        raise UnsupportedError(
            f"{name}() is not implemented on devices, and the setting host_functions is off: call it with x.numpy()"
        )
    if name not in _said:
        _said.add(name)
        log.host.warning("%s() runs in host memory: it is not implemented on devices", name)
    return _moved(function(*_copied(args), **_copied(kwargs)), device)


def _device(x: Any) -> Any:
    """Return the device of the first array in `x`, at any depth, or None."""
    if isinstance(x, View):
        return x.device
    parts = x.values() if isinstance(x, dict) else x if isinstance(x, (list, tuple)) else ()
    return next((device for each in parts if (device := _device(each)) is not None), None)


def _copied(x: Any) -> Any:
    """Return `x` with every array, at any depth, replaced by a copy in host memory."""
    if isinstance(x, View):
        return np.asarray(x)
    if isinstance(x, (list, tuple)):
        return type(x)(_copied(each) for each in x)
    return {name: _copied(each) for name, each in x.items()} if isinstance(x, dict) else x


def _moved(x: Any, device: Any) -> Any:
    """Return `x` with every NumPy array and number, at any depth, on the device, if it can store their dtype."""
    if isinstance(x, (list, tuple)):
        parts = [_moved(each, device) for each in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    if not isinstance(x, (np.ndarray, np.number)):
        return x
    if x.dtype == np.int64 and np.array_equal(narrow := np.asarray(x).astype(np.int32), x):
        x = narrow
    return device.array(np.asarray(x)) if x.dtype.name in DTYPES else x
