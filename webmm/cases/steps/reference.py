"""NumPy's values for everything that a debug shader records: one element of the result, at each inner step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reference:
    """NumPy's values for one element by group, in float64 (NaN if unknown), and the allowed errors.

    `heads` has the tags of each group and the heads of their columns. A tag of a group in `every` must be recorded at
    each of the `length` steps if it is recorded at any. Arrays may be longer, because tiles extend beyond the end.
    """

    element: str  # such as C[3, 5]
    length: int
    heads: Mapping[str, Mapping[str, str]]
    numpy: Mapping[str, Floats]
    slack: Mapping[str, Floats]
    parts: NDArray[np.intp]  # the number of the partial sum of each step, if several invocations share an element
    total: float  # the element's value
    allowed: float  # its allowed error
    stored: Callable[[NDArray[Any]], float]  # gets the element from the result
    every: frozenset[str] = frozenset()
    places: Mapping[str, str] = field(default_factory=dict)  # the name of the expected value, with {k}
    origin: Callable[[float], str] = lambda value: ""  # the name of the operand's element with this value


def by_part(parts: NDArray[np.intp], values: Floats, running: Callable[[Floats], NDArray[Any]]) -> Floats:
    """Return `running`, a cumulative function, of the values of each part."""
    result = np.full(values.shape, np.nan)
    for part in np.unique(parts):
        steps = parts == part
        result[steps] = running(values[steps])
    return result


class Origins:
    """Lookup of an operand's element by its value, for operands whose elements are mostly distinct."""

    def __init__(self, **operands: NDArray[Any]) -> None:
        self._operands = operands
        everything = np.concatenate([x.reshape(-1).astype(np.float64) for x in operands.values()])
        self._values, self._places, self._counts = np.unique(everything, return_index=True, return_counts=True)

    def __call__(self, value: float) -> str:
        """Return the name of the element, such as A[3, 8]; empty if no element or several have this value."""
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
        raise AssertionError("the position is in one of the operands")
