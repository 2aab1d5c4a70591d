"""Problems with exact results, so that one fingerprint verifies the whole result; the page's ladders consist of them.

Inputs are integers from a hash that JavaScript implements as well (`web/prepared.js`), small enough that every result
is exact, including sums of floats: the page generates its operands, and no data is downloaded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.dtypes import DType
from webmm.errors import ConfigError
from webmm.kernels.base import Kernel
from webmm.problems.base import Problem

Integers = NDArray[np.int32]
Words = NDArray[np.uint32]
Size = tuple[int, ...]

SEED_STEP = 0x9E3779B9  # distance of the seeds of a problem's inputs
PIECE = 2**16  # words hashed at a time: they stay in a cache, and no pages are made for what is dropped at once


@dataclass(frozen=True)
class Input:
    """An array of `count` integers between `low` and `high`, stored as `dtype`."""

    name: str
    dtype: DType
    count: int
    seed: int
    low: int
    high: int

    @property
    def start(self) -> int:
        """The hash's argument for the first element; the other elements use the following words."""
        return self.seed * SEED_STEP % 2**32

    @property
    def integers(self) -> Integers:
        """The integers."""
        return _draw(self.count, self.start, self.low, self.high)

    def to_json(self) -> dict[str, Any]:
        """Return the parameters from which JavaScript generates the integers."""
        kept = {"count": self.count, "start": self.start, "low": self.low, "high": self.high}
        return {"name": self.name, "dtype": self.dtype.name, **kept}


@dataclass(frozen=True)
class ExactCase:
    """A problem with its inputs, and a function that computes the result from their integers."""

    problem: Problem
    inputs: tuple[Input, ...]
    compute: Callable[..., NDArray[Any]]

    @property
    def expected(self) -> NDArray[Any]:
        """The result in the dtype of its buffer; raises ConfigError if that dtype rounds it."""
        (written,) = (extent.dtype for extent in self.problem.buffers() if extent.written)
        exact = self.compute(*(each.integers for each in self.inputs))
        stored = exact.astype(written.numpy)
        if not np.array_equal(stored, exact):
            raise ConfigError(f"the result of {self.problem} is not exact in {written.name}; use smaller integers")
        return stored


def mix(x: Words) -> Words:
    """Return a hash of each word (Wellons' lowbias32)."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return np.asarray(x ^ (x >> np.uint32(16)), np.uint32)


@functools.lru_cache(maxsize=2)
def _draw(count: int, start: int, low: int, high: int) -> Integers:
    drawn = np.empty(count, np.int32)
    for first in range(0, count, PIECE):
        words = np.arange(first, min(first + PIECE, count), dtype=np.uint32) + np.uint32(start)
        drawn[first : first + PIECE] = mix(words) % np.uint32(high - low + 1)
    drawn += np.int32(low)
    return drawn


def fingerprint(result: NDArray[Any]) -> int:
    """Return a 32-bit hash of the bits and positions of all elements; 64-bit elements count as two of 32 bits."""
    bits = result.reshape(-1).view(f"u{min(result.itemsize, 4)}")
    total = 0
    for first in range(0, bits.size, PIECE):
        piece = bits[first : first + PIECE].astype(np.uint32)
        places = np.arange(first, first + piece.size, dtype=np.uint32)
        total += int(mix(piece ^ mix(places)).sum(dtype=np.uint32))
    return total % 2**32


def product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Return A·B."""
    return np.asarray(a.astype(np.float64) @ b.astype(np.float64))


@dataclass(frozen=True, eq=False)
class Ladder:
    """The stages of an op on problems of one kind; `kernels` and `sizes` are keyed by the kind of adapter, gpu or cpu.

    The page replaces kernels for matrix units by those that the choice makes for the device's. Of several kernels of a
    stage, it shows the first that can run, those for emulated instructions besides. It uses the first size, which is
    small, to find stages that would take too long on a large one.
    """

    title: str
    kernels: Mapping[str, tuple[Kernel[Any], ...]]
    case: Callable[[Size, DType], ExactCase]
    sizes: Mapping[str, tuple[Size, ...]]
    dtypes: tuple[DType, ...]
    others: tuple[str, ...] = ()  # stages that the Explain panel shows besides

    @functools.cache  # noqa: B019 (the ladders live as long as the rows)
    def fingerprint(self, size: Size, dtype: DType) -> int:
        """Return the fingerprint of the expected result."""
        return fingerprint(self.case(size, dtype).expected)
