"""The element types that arrays are stored in: one row each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from webmm.errors import ConfigError, ProblemError


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
        """The NumPy dtype of the same layout; raises ConfigError for bfloat16 where ml_dtypes is not installed."""
        if self.wgsl == "bf16":
            _register_bfloat16()
        return np.dtype(self.name)


F32 = DType("float32", "f32", 4, 2.0**-23, 2.0**-149)
F16 = DType("float16", "f16", 2, 2.0**-10, 2.0**-24, frozenset({"shader-f16"}))

# Two to a u32: WGSL has no such type. NumPy's is that of the package ml_dtypes.
BF16 = DType("bfloat16", "bf16", 2, 2.0**-7, 2.0**-133)

# Integers lie in buffers as NumPy stores them; shaders read those of eight bits four to a u32.
I32 = DType("int32", "i32", 4, 0.0, 0.0)
U32 = DType("uint32", "u32", 4, 0.0, 0.0)
I8 = DType("int8", "u32", 1, 0.0, 0.0)
U8 = DType("uint8", "u32", 1, 0.0, 0.0)

FLOATS = (F32, F16)
MATRIX_DTYPES = (*FLOATS, BF16)  # of products of floats
BYTES = (I8, U8)
INTEGERS = (I32, U32, *BYTES)
DTYPES = {dtype.name: dtype for dtype in (*MATRIX_DTYPES, *INTEGERS)}
_FLOATS, _BYTES = (", ".join(dtype.name for dtype in dtypes) for dtypes in (MATRIX_DTYPES, BYTES))
_ALIASES = {dtype.wgsl: dtype for dtype in MATRIX_DTYPES}


def _register_bfloat16() -> None:
    try:
        import ml_dtypes  # noqa: F401 (NumPy knows the name from then on)
    except ImportError as error:
        raise ConfigError("bfloat16 arrays need ml_dtypes: pip install 'webmm[bfloat16]'") from error


def dtype_of(spec: DType | DTypeLike | str) -> DType:
    """Return the `DType` for a NumPy dtype or a name such as "float16" or "f16".

    Raises ProblemError for a type that no kernel stores, naming what to cast to.
    """
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str) and spec in _ALIASES:
        return _ALIASES[spec]
    if spec == BF16.name:
        return BF16
    try:
        name = np.dtype(spec).name
    except (TypeError, ValueError, SyntaxError) as error:
        raise ProblemError(f"{spec!r} is not a dtype; use one of {_FLOATS}, or of {_BYTES} for qmatmul()") from error
    if name not in DTYPES:
        raise ProblemError(
            f"dtype {name} is not supported; cast to one of {_FLOATS}, e.g. x.astype('float32'), "
            f"or of {_BYTES} for qmatmul()"
        )
    return DTYPES[name]
