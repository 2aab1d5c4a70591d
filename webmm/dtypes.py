"""The element types that arrays can store, as a table.

A new type is an entry here; if WGSL has no such type, its elements are packed into u32 words, and
`shaders/common/NAME.wgsl` packs and unpacks them.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from webmm.errors import ConfigError, ProblemError

WORD = 4  # bytes of a u32


@dataclass(frozen=True)
class DType:
    """A storage type: its NumPy and WGSL names, size in bytes, machine epsilon and required WebGPU features."""

    name: str
    wgsl: str
    itemsize: int
    eps: float
    tiny: float  # the spacing of subnormals; the rounding error is at most half of it, or eps/2 relative
    features: frozenset[str] = frozenset()
    extension: bool = True  # with features: a shader enables the WGSL extension of this name; naga's f64 has none
    packed: bool = False  # several per u32, lowest bits first; `wgsl` is the prefix of the functions that unpack it
    package: str = ""  # the Python package that defines the NumPy type
    wide: bool = False  # shaders compute in it, not in float32: only kernels that say so, with tiles of its own size
    exp_error: float = 2.0**-19  # of exp, and of activations that use it: for f32 the driver's

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype of the same layout; raises ConfigError if the package that defines it is not installed."""
        if self.package:
            try:
                import_module(self.package)  # the import registers the name with NumPy
            except ImportError as error:
                raise ConfigError(f"{self.name} arrays need {self.package}: pip install {self.package}") from error
        return np.dtype(self.name)

    @property
    def sums(self) -> DType:
        """The accumulator type of products of such elements."""
        return self if self.wide else F32

    @property
    def longer(self) -> type[np.floating[Any]]:
        """The NumPy type that results are checked in: longer than that of their sums."""
        return np.longdouble if self.wide else np.float64

    @property
    def vec4(self) -> str:
        """The WGSL type of four elements."""
        return f"vec4<{self.wgsl}>" if self.wide else "vec4f"

    @property
    def converted(self) -> bool:
        """Whether shaders convert elements to f32 as they load them, and back, as WGSL does."""
        return bool(self.features) and self.extension

    @property
    def per_word(self) -> int:
        """The number of elements in a u32."""
        return WORD // self.itemsize

    def array(self, vector: bool, *, shared: bool = False) -> str:
        """Return the WGSL type of a binding of such elements, as scalars or, with `vector`, as vec4.

        With `shared`, invocations write single packed elements, so that several of them write to the same u32.
        """
        if self.packed:
            words = "u32" if self.itemsize == 1 else f"vec{self.itemsize}u"  # the size of four elements
            return f"array<{words if vector else 'atomic<u32>' if shared else 'u32'}>"
        return f"array<vec4<{self.wgsl}>>" if vector else f"array<{self.wgsl}>"


F32 = DType("float32", "f32", 4, 2.0**-23, 2.0**-149)
F16 = DType("float16", "f16", 2, 2.0**-10, 2.0**-24, frozenset({"shader-f16"}))
BF16 = DType("bfloat16", "bf16", 2, 2.0**-7, 2.0**-133, packed=True, package="ml_dtypes")
F64 = DType(
    *("float64", "f64", 8, 2.0**-52, 2.0**-1074, frozenset({"shader-f64"})),
    extension=False,
    wide=True,
    exp_error=2.0**-50,  # webmm's own
)
WIDE = (F64,)
WIDE_FEATURES = frozenset({feature for dtype in WIDE for feature in dtype.features})
# The types of matrix products, reductions and normalisations (which also take WIDE), and of activations.
MATRIX_DTYPES = (F32, F16, BF16)
FLOATS = tuple(dtype for dtype in MATRIX_DTYPES if not dtype.packed)  # native WGSL types

REALS = (*FLOATS, *WIDE)  # those of files

# Buffers hold integers in NumPy's layout; shaders read 8-bit integers four per u32.
I32 = DType("int32", "i32", 4, 0.0, 0.0)
U32 = DType("uint32", "u32", 4, 0.0, 0.0)
I8 = DType("int8", "u32", 1, 0.0, 0.0)
U8 = DType("uint8", "u32", 1, 0.0, 0.0)
BYTES = (I8, U8)
INTEGERS = (I32, U32, *BYTES)
BOOL = DType("bool", "bool8", 1, 0.0, 0.0, packed=True)  # one byte, as in NumPy
COMPUTED = (*MATRIX_DTYPES, I32, BOOL)  # the types of elementwise expressions

_ADVISED = (*MATRIX_DTYPES, *WIDE)
DTYPES = {dtype.name: dtype for dtype in (*MATRIX_DTYPES, *WIDE, *INTEGERS, BOOL)}
_NAMES = {**{dtype.wgsl: dtype for dtype in (*MATRIX_DTYPES, *WIDE)}, **DTYPES}


def names(dtypes: Iterable[DType]) -> str:
    """Return the names of `dtypes`, for messages and help: "float32, float16"."""
    return ", ".join(dtype.name for dtype in dtypes)


_ELSE = f"or of {names(BYTES)} for qmatmul(); elements, sums and extremes may also be int32, and elements bool"


def dtype_of(spec: DType | DTypeLike | str) -> DType:
    """Return the `DType` for a NumPy dtype or a name such as "float16" or "f16".

    Raises ProblemError for a type that no kernel can store; the message names the types to cast to.
    """
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str) and spec in _NAMES:
        return _NAMES[spec]
    return _of_numpy(spec)


@lru_cache
def _name_of(dtype: np.dtype[np.generic]) -> str:
    """Return NumPy's name of `dtype`, which takes NumPy 3 µs to compute each time."""
    return str(dtype.name)


def _of_numpy(spec: DTypeLike) -> DType:
    try:
        name = _name_of(np.dtype(spec))
    except (TypeError, ValueError, SyntaxError) as error:
        raise ProblemError(f"{spec!r} is not a dtype; use one of {names(_ADVISED)}, {_ELSE}") from error
    if name not in DTYPES:
        raise ProblemError(
            f"dtype {name} is not supported; cast to one of {names(_ADVISED)}, e.g. x.astype('float32'), {_ELSE}"
        )
    return DTYPES[name]
