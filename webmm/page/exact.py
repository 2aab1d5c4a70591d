"""Problems whose results are exact, so that one number tells whether all of a result is right.

Inputs are integers out of a hash that JavaScript has, too (`web/prepared.js`), small enough that every result is exact,
sums of floats among them: a page makes its operands itself, and no data travels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.cases.quantized import scheme_of
from webmm.dtypes import F16, F32, F64, U8, DType
from webmm.errors import ConfigError
from webmm.problems.base import Problem
from webmm.problems.gemm import gemm
from webmm.problems.product import Operand
from webmm.problems.quantized import describe
from webmm.problems.reduce import operation_of, reduction
from webmm.problems.scheme import limits, reference
from webmm.problems.weights import BLOCKS, BlockWeights, WeightOnly

Integers = NDArray[np.int32]
Words = NDArray[np.uint32]
Size = tuple[int, ...]

SEED_STEP = 0x9E3779B9  # between the seeds of a problem's inputs
# Sums of integers between these over the longest rows are exact: below 2^24 for float32, 2^11 for float16.
SUMMED = {F32: (-128, 127), F16: (-1, 1)}
COMPARED = (-(2**23), 2**23 - 1)
# Factors of which products are exact, up to so long a k: below 2^53 for float64, which float32 is far from.
MULTIPLIED = {F32: (-8, 7), F64: (-(2**19), 2**19 - 1)}


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
        """What the hash takes for the first element; for the others, the words that follow."""
        return self.seed * SEED_STEP % 2**32

    @property
    def integers(self) -> Integers:
        """The integers."""
        return _draw(self.count, self.start, self.low, self.high)

    def to_json(self) -> dict[str, Any]:
        """Return what JavaScript draws the integers by."""
        kept = {"count": self.count, "start": self.start, "low": self.low, "high": self.high}
        return {"name": self.name, "dtype": self.dtype.name, **kept}


@dataclass(frozen=True)
class Case:
    """A problem with its inputs, and what becomes of their integers."""

    problem: Problem
    inputs: tuple[Input, ...]
    compute: Callable[..., NDArray[Any]]

    @property
    def expected(self) -> NDArray[Any]:
        """The result as its buffer holds it; raises ConfigError where its type would round it."""
        (written,) = (extent.dtype for extent in self.problem.buffers() if extent.written)
        exact = self.compute(*(each.integers for each in self.inputs))
        stored = exact.astype(written.numpy)
        if not np.array_equal(stored, exact):
            raise ConfigError(f"{self.problem} of these integers is no {written.name}")
        return stored


def mix(x: Words) -> Words:
    """Return a hash of each word (Wellons' lowbias32)."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return np.asarray(x ^ (x >> np.uint32(16)), np.uint32)


@functools.lru_cache(maxsize=2)
def _draw(count: int, start: int, low: int, high: int) -> Integers:
    drawn = mix(np.arange(count, dtype=np.uint32) + np.uint32(start))
    return np.asarray((drawn % np.uint32(high - low + 1)).astype(np.int32) + np.int32(low))


def fingerprint(result: NDArray[Any]) -> int:
    """Return 32 bits that depend on the bits and the place of every element, or of each half of one of 64 bits."""
    bits = result.reshape(-1).view(f"u{min(result.itemsize, 4)}").astype(np.uint32)
    return int(mix(bits ^ mix(np.arange(bits.size, dtype=np.uint32))).sum(dtype=np.uint32))


def reduced(operation: str, size: Size, dtype: DType) -> Case:
    """Return the reduction of each row of a matrix."""
    rows, length = size
    problem = reduction(rows, length, operation, dtype=dtype)
    low, high = SUMMED[dtype] if operation_of(operation).sums else COMPARED
    drawn = Input("x", dtype, rows * length, 1, low, high)
    return Case(problem, (drawn,), lambda x: operation_of(operation).reference(x.reshape(rows, length)))


def multiplied(size: Size, dtype: DType) -> Case:
    """Return a product of matrices of 8-bit integers, with a zero point and a scale for each matrix."""
    (n,) = size
    scheme = scheme_of(1, n, dtype, dtype, dtype)
    problem, _ = describe(n, n, n, (dtype, Operand(n)), (dtype, Operand(n)), scheme, dtype)
    inputs = tuple(Input(name, dtype, n * n, seed, *limits(dtype)) for seed, name in enumerate("ab", 1))

    def compute(a: Integers, b: Integers) -> NDArray[Any]:
        a_q, b_q = (x.reshape(n, n).astype(dtype.numpy) for x in (a, b))
        return reference(a_q, b_q, scheme, dtype)

    return Case(problem, inputs, compute)


def thin(size: Size, dtype: DType) -> Case:
    """Return a product of floats."""
    m, n, k = size
    inputs = tuple(
        Input(name, dtype, count, seed, *MULTIPLIED[dtype])
        for seed, (name, count) in enumerate((("a", m * k), ("b", k * n)))
    )
    return Case(gemm(m, n, k, dtype=dtype), inputs, lambda a, b: _product(a.reshape(m, k), b.reshape(k, n)))


def weighted(size: Size, dtype: DType) -> Case:
    """Return a product with weights of 4 bits, each block with its zero point, all scales one."""
    m, n, k = size
    block = BLOCKS[0]
    problem = WeightOnly(m, n, k, dtype, dtype, Operand(k), 4, block)
    extents = {extent.name: extent for extent in problem.buffers()}
    inputs = (
        Input("a", dtype, m * k, 1, -8, 7),
        Input("b", U8, extents["b"].end * 4, 2, 0, 255),
        Input("scales", F32, extents["scales"].end, 3, 1, 1),
        Input("zeros", U8, extents["zeros"].end, 4, 0, 15),
    )

    def compute(a: Integers, b: Integers, scales: Integers, zeros: Integers) -> NDArray[Any]:
        words = b.astype(np.uint8).view("<u4").reshape(n, -1)
        parts = scales.astype(np.float32).reshape(n, -1), zeros.astype(np.uint8).reshape(n, -1)
        return _product(a.reshape(m, k), BlockWeights((k, n), 4, block, words, *parts).dequantize())

    return Case(problem, inputs, compute)


def _product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(a.astype(np.float64) @ b.astype(np.float64))
