"""Inspection in the Python array API standard: the dtypes, their limits and how they combine, and the devices.

The standard: https://data-apis.org/array-api/2024.12/API_specification/inspection.html.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from webmm.engine.device import Device, default_device
from webmm.engine.devices import devices
from webmm.errors import ProblemError

float32, float16, int32 = np.dtype("float32"), np.dtype("float16"), np.dtype("int32")
bool = np.dtype("bool")
e, inf, nan, newaxis, pi = np.e, np.inf, np.nan, None, np.pi
DTYPES = {"bool": bool, "int32": int32, "float16": float16, "float32": float32}
KINDS = {
    **{"bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu"},
    **{"real floating": "f", "complex floating": "c", "numeric": "iufc"},
}


class _Limits(NamedTuple):
    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Any


def finfo(of: Any, /) -> _Limits:
    """Return the limits of a float dtype, or of an array's dtype: bits, eps, max, min and smallest_normal."""
    found = np.finfo(getattr(of, "dtype", of))
    eps, most, least, normal = (float(each) for each in (found.eps, found.max, found.min, found.smallest_normal))
    return _Limits(found.bits, eps, most, least, normal, found.dtype)


def iinfo(of: Any, /) -> Any:
    """Return the limits of an integer dtype, or of an array's dtype, as `numpy.iinfo`."""
    return np.iinfo(getattr(of, "dtype", of))


def isdtype(dtype: Any, kind: Any) -> Any:
    """Return whether `dtype` is `kind`: a dtype, the standard's name of several, or any of a tuple of both."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, each) for each in kind)
    if isinstance(kind, str) and kind not in KINDS:
        raise ProblemError(f"{kind!r} is no kind of dtypes; choose from {', '.join(KINDS)}")
    found = np.dtype(dtype)
    return found.kind in KINDS[kind] if isinstance(kind, str) else found == np.dtype(kind)


def _dtype(x: Any) -> Any:
    return np.dtype(getattr(x, "dtype", x))


def can_cast(from_: Any, to: Any, /) -> Any:
    """Return whether a dtype, or an array's dtype, converts to another without loss, by the standard's rules."""
    return np.can_cast(_dtype(from_), np.dtype(to))


def result_type(*arrays_and_dtypes: Any) -> Any:
    """Return the dtype of a result of arrays, dtypes and Python numbers; raises ProblemError for those that differ in
    kind, which the standard does not combine.
    """
    numbers = [x for x in arrays_and_dtypes if isinstance(x, (int, float, complex))]
    dtypes = [_dtype(x) for x in arrays_and_dtypes if not isinstance(x, (int, float, complex))]
    kinds = {x.kind for x in dtypes}
    if len(kinds) != 1:
        words = ", ".join(str(x) for x in dict.fromkeys(dtypes))
        raise ProblemError(f"the dtypes {words or 'of numbers alone'} have no common dtype; cast one with astype()")
    ranks = {"b": 0, "i": 1, "f": 2}
    (kind,) = kinds
    most = max([0 if type(x).__name__ == "bool" else 1 if isinstance(x, int) else 2 for x in numbers], default=0)
    if any(isinstance(x, complex) for x in numbers) or most > ranks.get(kind, 0):
        raise ProblemError(f"{numbers} and {dtypes[0]} have no common dtype; cast with astype()")
    return np.result_type(*dtypes)


class Info:
    """What `__array_namespace_info__()` returns: capabilities, devices and dtypes."""

    def capabilities(self) -> dict[str, Any]:
        """Return what depends on values: neither masks as indices nor results of such shapes; up to 64 axes."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 26}

    def default_device(self) -> Device:
        """Return the default device."""
        return default_device()

    def devices(self) -> list[Device]:
        """Return all devices, opened."""
        return devices()

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """Return the dtypes of new arrays: float32 and int32; there are no complex numbers."""
        del device
        return {"real floating": float32, "complex floating": None, "integral": int32, "indexing": int32}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """Return the dtypes by name, all or those of a kind."""
        del device
        return {name: x for name, x in DTYPES.items() if kind is None or isdtype(x, kind)}
