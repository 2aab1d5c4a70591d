"""A case of the table of calls: operands seen through views, and the expected outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.problems.normalise import NORMALISATIONS

RNG = np.random.default_rng(16)
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10}
TINY = {"float64": 2.0**-1074, "float32": 2.0**-126, "float16": 2.0**-24}
FEATURES = {"float64": "shader-f64", "float16": "shader-f16"}
NAN, INF = float("nan"), float("inf")

Views = tuple[tuple[str, tuple[Any, ...]], ...]


@dataclass(frozen=True)
class X:
    """An operand: an array, and the views applied to it before the call."""

    data: NDArray[Any]
    views: Views = ()

    @property
    def seen(self) -> NDArray[Any]:
        """The operand of the call, as a NumPy array."""
        x: Any = self.data
        for name, arguments in self.views:
            x = VIEWS[name](x, *arguments)
        return np.asarray(x)


def sliced(x: Any, *ranges: Any) -> Any:
    """Return a slice by ranges as in webmm.js: None, an index, or [start, stop, step]."""
    keys = [
        slice(None) if r is None else r if isinstance(r, int) else slice(*(list(r) + [None] * (3 - len(r))))
        for r in ranges
    ]
    return x[(*keys, ...)]


def transposed(x: Any, *axes: int) -> Any:
    """Return NumPy's transpose, or for an `Array` the equivalent T or mT."""
    if isinstance(x, np.ndarray):
        return x.transpose(*axes) if axes else x.T
    if not axes:
        return x.T
    assert axes == (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2), "Array supports no other transposes"
    return x.mT


VIEWS = {
    "slice": sliced,
    "transpose": transposed,
    "reshape": lambda x, *shape: x.reshape(*shape),
    "broadcast_to": lambda x, *shape: np.broadcast_to(x, shape) if isinstance(x, np.ndarray) else x.broadcast_to(shape),
}


@dataclass(frozen=True)
class Case:
    """A call and its expected outcome: an array and the allowed error, or the name of an error."""

    name: str
    call: str
    operands: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    expected: NDArray[Any] | None = None
    allowed: NDArray[np.float64] | float = 0.0
    dtype: str = "float32"
    error: str = ""
    resident: bool = False

    @property
    def needs(self) -> set[str]:
        """The features that the call needs: those of float16, and of float64 unless it is emulated with integers."""
        arrays = [x.data for x in (*self.operands, *self.options.values()) if isinstance(x, X)]
        types = {self.dtype, *(a.dtype.name for a in arrays)}
        emulated = self.call not in NORMALISATIONS and self.options.get("op") not in ("prod", "logsumexp")
        native = {"float16"} | (set() if emulated else {"float64"})
        return {FEATURES[name] for name in types & native}


def drawn(*shape: int, dtype: str = "float32", scale: float = 1.0) -> NDArray[Any]:
    """Return random numbers that are exact in float16, or any integers of the dtype."""
    if dtype in ("int8", "uint8", "int32"):
        info = np.iinfo(dtype)
        return RNG.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
    return (scale * RNG.standard_normal(shape)).astype(np.float16).astype(dtype)
