"""Results have NaN and infinities exactly where NumPy has them."""

import itertools

import numpy as np
import pytest
from products import describe, fractions, multiply, named, runs, small, view

from tests.sampled import crossed
from webmm.kernels import LADDER
from webmm.measure.verify import bound, worst_error

stage_and_dtype = pytest.mark.parametrize(("cls", "dtype"), crossed(LADDER, ["float32", "float16"]), ids=named)

# The last row, column and k are next to the padding of tiles, and next to the NaN between rows.
M, N, K = 35, 37, 33


def check(device, kernel, problem, a, b):
    got, strays = multiply(device, kernel, problem, a, b)
    error = worst_error(got[0], a[0], b[0], problem.out_dtype)
    assert error <= bound(problem), describe(kernel, problem)
    assert not strays


def problems(dtype):
    """Yield a problem loaded by single elements, and one loaded by vec4."""
    yield view(M, N, K, dtype, pads=(1, 2, 3))
    yield view(M + 1, N + 3, K + 3, dtype, pads=(4, 4, 4))


@stage_and_dtype
def test_one_special_value(device, cls, dtype):
    for problem in problems(dtype):
        if not runs(device, small(cls), problem):
            continue
        m, n, k = problem.m - 1, problem.n - 1, problem.k - 1
        for special, (row, column) in itertools.product((np.nan, np.inf, -np.inf), ((0, 0), (m, k), (m // 2, k))):
            a, b = fractions(problem)
            a[0, row, column] = special
            check(device, small(cls), problem, a, b)
        for special, (row, column) in itertools.product((np.nan, np.inf, -np.inf), ((0, 0), (k, n), (k, n // 2))):
            a, b = fractions(problem)
            b[0, row, column] = special
            check(device, small(cls), problem, a, b)


@stage_and_dtype
def test_products_of_special_values(device, cls, dtype):
    for problem in problems(dtype):
        if not runs(device, small(cls), problem):
            continue
        a, b = fractions(problem)
        a[0, 3, 5], b[0, 5, 7] = np.inf, 0.0  # inf · 0 = nan
        a[0, 9, 1], a[0, 9, 2], b[0, 1, 11], b[0, 2, 11] = np.inf, np.inf, 1.0, -1.0  # inf - inf = nan
        a[0, -1, -1], b[0, -1, -1] = -np.inf, -np.inf
        check(device, small(cls), problem, a, b)


@stage_and_dtype
def test_overflow_is_infinite(device, cls, dtype):
    for problem in problems(dtype):
        if not runs(device, small(cls), problem):
            continue
        a, b = fractions(problem)
        large = 60_000 if dtype == "float16" else 3e38
        b[0, 0] = 0.25  # one large term per element, so that no partial sum of a finite result overflows
        b[0, 0, [8, -1]] = 2.0
        a[0, 7, 0], a[0, -1, 0] = large, -large
        check(device, small(cls), problem, a, b)
        got, _ = multiply(device, small(cls), problem, a, b)
        assert got[0, 7, 8] == np.inf
        assert got[0, -1, -1] == -np.inf
