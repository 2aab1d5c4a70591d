"""The element types that arrays are stored in: one row each.

A new one is a row here; where WGSL has no such type, so that it lies packed in words, also `shaders/common/NAME.wgsl`,
which takes the words apart and puts them together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module

import numpy as np
from numpy.typing import DTypeLike

from webmm.errors import ConfigError, ProblemError

WORD = 4  # bytes of a u32


@dataclass(frozen=True)
class DType:
    """A storage type: its NumPy and WGSL names, size in bytes, rounding unit and the features that it needs."""

    name: str
    wgsl: str
    itemsize: int
    eps: float
    tiny: float  # the spacing of subnormals: rounding to this type is never off by more than half of it, or by eps/2
    features: frozenset[str] = frozenset()
    extension: bool = True  # with features: WGSL enables an extension of the type's name; not for naga's own f64
    packed: bool = False  # several to a u32, the first one lowest: `wgsl` is the prefix of the functions that unpack it
    package: str = ""  # which gives NumPy the type

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype of the same layout; raises ConfigError where the package that defines it is not installed."""
        if self.package:
            try:
                import_module(self.package)  # NumPy knows the name from then on
            except ImportError as error:
                raise ConfigError(f"{self.name} arrays need {self.package}: pip install {self.package}") from error
        return np.dtype(self.name)

    @property
    def sums(self) -> DType:
        """The type in which kernels add up products of such elements."""
        return F64 if self == F64 else F32

    @property
    def converted(self) -> bool:
        """Whether shaders convert elements to f32 as they load them, and back, as WGSL does."""
        return bool(self.features) and self.extension

    @property
    def per_word(self) -> int:
        """Elements in a u32."""
        return WORD // self.itemsize

    def array(self, vector: bool, *, shared: bool = False) -> str:
        """Return the WGSL type that a buffer of such elements is bound as, one by one or by fours.

        With `shared`, invocations write single elements, and so to words that others write to as well.
        """
        if self.packed:
            words = "u32" if self.itemsize == 1 else f"vec{self.itemsize}u"  # that four elements take
            return f"array<{words if vector else 'atomic<u32>' if shared else 'u32'}>"
        return f"array<vec4<{self.wgsl}>>" if vector else f"array<{self.wgsl}>"


F32 = DType("float32", "f32", 4, 2.0**-23, 2.0**-149)
F16 = DType("float16", "f16", 2, 2.0**-10, 2.0**-24, frozenset({"shader-f16"}))
BF16 = DType("bfloat16", "bf16", 2, 2.0**-7, 2.0**-133, packed=True, package="ml_dtypes")
F64 = DType("float64", "f64", 8, 2.0**-52, 2.0**-1074, frozenset({"shader-f64"}), extension=False)
# Of reductions, normalisations, activations, and of products, which take F64, too.
MATRIX_DTYPES = (F32, F16, BF16)
FLOATS = tuple(dtype for dtype in MATRIX_DTYPES if not dtype.packed)  # that WGSL has itself

# Integers lie in buffers as NumPy stores them; shaders read those of eight bits four to a u32.
I32 = DType("int32", "i32", 4, 0.0, 0.0)
U32 = DType("uint32", "u32", 4, 0.0, 0.0)
I8 = DType("int8", "u32", 1, 0.0, 0.0)
U8 = DType("uint8", "u32", 1, 0.0, 0.0)
BYTES = (I8, U8)
INTEGERS = (I32, U32, *BYTES)
BOOL = DType("bool", "bool8", 1, 0.0, 0.0, packed=True)  # NumPy's, of a byte
COMPUTED = (*MATRIX_DTYPES, I32, BOOL)  # of what is computed element by element

DTYPES = {dtype.name: dtype for dtype in (*MATRIX_DTYPES, F64, *INTEGERS, BOOL)}
_NAMES = {**{dtype.wgsl: dtype for dtype in (*MATRIX_DTYPES, F64)}, **DTYPES}


def names(dtypes: Iterable[DType]) -> str:
    """Return the names of `dtypes`, for messages and help: "float32, float16"."""
    return ", ".join(dtype.name for dtype in dtypes)


def dtype_of(spec: DType | DTypeLike | str) -> DType:
    """Return the `DType` for a NumPy dtype or a name such as "float16" or "f16".

    Raises ProblemError for a type that no kernel stores, naming what to cast to.
    """
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str) and spec in _NAMES:
        return _NAMES[spec]
    return _of_numpy(spec)


def _of_numpy(spec: DTypeLike) -> DType:
    try:
        name = np.dtype(spec).name
    except (TypeError, ValueError, SyntaxError) as error:
        floats, integers = names(MATRIX_DTYPES), names(BYTES)
        raise ProblemError(f"{spec!r} is not a dtype; use one of {floats}, or of {integers} for qmatmul()") from error
    if name not in DTYPES:
        raise ProblemError(
            f"dtype {name} is not supported; cast to one of {names(MATRIX_DTYPES)}, e.g. x.astype('float32'), "
            f"or of {names(BYTES)} for qmatmul()"
        )
    return DTYPES[name]
