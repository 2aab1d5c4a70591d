"""What NumPy has where a debug shader records: for one element, at each inner step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reference:
    """NumPy's values of one element by group, in float64, NaN where nobody knows any, and how far off others may be.

    `heads` are the tags of a group, and the heads of their columns; of the groups in `every`, a tag that is recorded at
    all must be at each of the `length` steps. Arrays may go beyond that: tiles do.
    """

    element: str  # such as C[3, 5]
    length: int
    heads: Mapping[str, Mapping[str, str]]
    numpy: Mapping[str, Floats]
    slack: Mapping[str, Floats]
    parts: NDArray[np.intp]  # where several invocations share an element, whose sum takes a step
    total: float  # the element
    allowed: float
    stored: Callable[[NDArray[Any]], float]  # what a result has there
    every: frozenset[str] = frozenset()
    places: Mapping[str, str] = field(default_factory=dict)  # what a value should have been, in words with {k}
    origin: Callable[[float], str] = lambda value: ""  # which element of which operand a wrong value is


def by_part(parts: NDArray[np.intp], values: Floats, running: Callable[[Floats], NDArray[Any]]) -> Floats:
    """Return `running` of the values of each part so far; NaN before its first."""
    result = np.full(values.shape, np.nan)
    for part in np.unique(parts):
        own = parts == part
        result[own] = running(values[own])
    return result


class Origins:
    """Where a value is from, of operands whose elements are mostly different."""

    def __init__(self, **operands: NDArray[Any]) -> None:
        self._operands = operands
        everything = np.concatenate([x.reshape(-1).astype(np.float64) for x in operands.values()])
        self._values, self._places, self._counts = np.unique(everything, return_index=True, return_counts=True)

    def __call__(self, value: float) -> str:
        """Return which element this is, such as A[3, 8], where it can only be one."""
        if value == 0:
            return "zero"
        i = int(np.searchsorted(self._values, value))
        if i == len(self._values) or self._values[i] != value or self._counts[i] > 1:
            return ""
        place = int(self._places[i])
        for name, x in self._operands.items():
            if place < x.size:
                return f"{name}[{', '.join(str(int(n)) for n in np.unravel_index(place, x.shape))}]"
            place -= x.size
        raise AssertionError("a place is in one of them")
