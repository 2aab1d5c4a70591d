"""The element types that matrices are stored in: one row each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from webmm.errors import ProblemError


@dataclass(frozen=True)
class DType:
    """A storage type: its NumPy and WGSL names, size in bytes, rounding unit and the features that it needs."""

    name: str
    wgsl: str
    itemsize: int
    eps: float
    tiny: float  # the spacing of subnormals: rounding to this type is never off by more than half of it, or by eps/2
    features: frozenset[str] = frozenset()

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype of the same layout."""
        return np.dtype(self.name)


F32 = DType("float32", "f32", 4, 2.0**-23, 2.0**-149)
F16 = DType("float16", "f16", 2, 2.0**-10, 2.0**-24, frozenset({"shader-f16"}))

DTYPES = {dtype.name: dtype for dtype in (F32, F16)}
_ALIASES = {dtype.wgsl: dtype for dtype in DTYPES.values()}


def dtype_of(spec: DType | DTypeLike | str) -> DType:
    """Return the `DType` for a NumPy dtype or a name such as "float16" or "f16".

    Raises ProblemError for a type that no kernel stores, naming what to cast to.
    """
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str) and spec in _ALIASES:
        return _ALIASES[spec]
    try:
        name = np.dtype(spec).name
    except TypeError as error:
        raise ProblemError(f"{spec!r} is not a dtype; use one of {', '.join(DTYPES)}") from error
    if name not in DTYPES:
        raise ProblemError(
            f"dtype {name} is not supported; cast to one of {', '.join(DTYPES)}, e.g. x.astype('float32')"
        )
    return DTYPES[name]
