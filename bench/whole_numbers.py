"""Operands of whole numbers for `calls.py` and its peers."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, ...]


@cache
def _drawn() -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(-2, 3, 2**20 + 7)


def whole_numbers(dtype: str, *shape: int) -> NDArray[Any]:
    """Return an array of small whole numbers, drawn once and repeated; non-negative if `dtype` is unsigned."""
    drawn = _drawn()
    return np.resize((drawn + 2 if dtype.startswith("uint") else drawn).astype(dtype), shape)
