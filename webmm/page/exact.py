"""Problems with exact results, so that one fingerprint verifies the whole result.

Inputs are integers from a hash that JavaScript implements as well (`web/prepared.js`), small enough that every result
is exact, including sums of floats: the page generates its operands, and no data is downloaded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.arguments.quantized import integer_range
from webmm.cases.quantized import scheme_of
from webmm.dtypes import F16, F32, F64, U8, DType
from webmm.errors import ConfigError
from webmm.problems.base import Problem
from webmm.problems.gemm import gemm
from webmm.problems.product import Operand
from webmm.problems.quantized import describe
from webmm.problems.reduce import operation_of, reduction
from webmm.problems.scheme import reference
from webmm.problems.weights import BLOCKS, BlockWeights, WeightOnly

Integers = NDArray[np.int32]
Words = NDArray[np.uint32]
Size = tuple[int, ...]

SEED_STEP = 0x9E3779B9  # distance of the seeds of a problem's inputs
# Ranges of integers whose sums over the longest rows are exact: below 2^24 for float32, 2^11 for float16.
SUMMED = {F32: (-128, 127), F16: (-1, 1)}
COMPARED = (-(2**23), 2**23 - 1)
# Ranges of factors whose products are exact for the largest k: below 2^53 for float64, and far below 2^24 for float32.
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
    drawn = mix(np.arange(count, dtype=np.uint32) + np.uint32(start))
    return np.asarray((drawn % np.uint32(high - low + 1)).astype(np.int32) + np.int32(low))


def fingerprint(result: NDArray[Any]) -> int:
    """Return a 32-bit hash of the bits and positions of all elements; 64-bit elements count as two of 32 bits."""
    bits = result.reshape(-1).view(f"u{min(result.itemsize, 4)}").astype(np.uint32)
    return int(mix(bits ^ mix(np.arange(bits.size, dtype=np.uint32))).sum(dtype=np.uint32))


def reduced(operation: str, size: Size, dtype: DType) -> ExactCase:
    """Return the reduction of each row of a matrix."""
    rows, length = size
    problem = reduction(rows, length, operation, dtype=dtype)
    low, high = SUMMED[dtype] if operation_of(operation).sums else COMPARED
    drawn = Input("x", dtype, rows * length, 1, low, high)
    return ExactCase(problem, (drawn,), lambda x: operation_of(operation).reference(x.reshape(rows, length)))


def multiplied(size: Size, dtype: DType) -> ExactCase:
    """Return a product of matrices of 8-bit integers, with a zero point and a scale for each matrix."""
    (n,) = size
    scheme = scheme_of(1, n, dtype, dtype, dtype)
    problem, _ = describe(n, n, n, (dtype, Operand(n)), (dtype, Operand(n)), scheme, dtype)
    inputs = tuple(Input(name, dtype, n * n, seed, *integer_range(dtype)) for seed, name in enumerate("ab", 1))

    def compute(a: Integers, b: Integers) -> NDArray[Any]:
        a_q, b_q = (x.reshape(n, n).astype(dtype.numpy) for x in (a, b))
        return reference(a_q, b_q, scheme, dtype)

    return ExactCase(problem, inputs, compute)


def thin(size: Size, dtype: DType) -> ExactCase:
    """Return a floating-point product."""
    m, n, k = size
    inputs = tuple(
        Input(name, dtype, count, seed, *MULTIPLIED[dtype])
        for seed, (name, count) in enumerate((("a", m * k), ("b", k * n)))
    )
    return ExactCase(gemm(m, n, k, dtype=dtype), inputs, lambda a, b: _product(a.reshape(m, k), b.reshape(k, n)))


def weighted(size: Size, dtype: DType) -> ExactCase:
    """Return a product with 4-bit weights, with a zero point for each block, and all scales equal to one."""
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

    return ExactCase(problem, inputs, compute)


def _product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(a.astype(np.float64) @ b.astype(np.float64))
