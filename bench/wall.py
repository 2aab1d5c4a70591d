"""What `calls.py` and its peers share: how a call is timed by the wall clock, and whole numbers to compute with."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.engine.timing import Timing

ROUNDS = 5
WARM_UP = 0.4  # of the time that a measurement takes

Shape = tuple[int, ...]


def per_call(call: Callable[[], object], wait: Callable[[], object], seconds: float) -> Timing:
    """Return the time of a call, of many that are queued before one wait: five rounds, in some `seconds` together."""

    def batch() -> float:
        start = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        return time.perf_counter() - start

    count, spent = 1, 0.0
    batch()  # what is made once
    while (taken := batch()) + spent < WARM_UP * seconds:
        count, spent = 2 * count, spent + taken
    count = max(1, round((1 - WARM_UP) * seconds / ROUNDS * count / taken))
    return Timing.of([batch() / count for _ in range(ROUNDS)], "wall")


@cache
def _drawn() -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(-2, 3, 2**20 + 7)


def whole_numbers(dtype: str, *shape: int) -> NDArray[Any]:
    """Return an array of small whole numbers, drawn once and repeated; from 0 on where `dtype` has no sign."""
    drawn = _drawn()
    return np.resize((drawn + 2 if dtype.startswith("uint") else drawn).astype(dtype), shape)
