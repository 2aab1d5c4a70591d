"""The error measure and its bounds, on which all other tests rely."""

import numpy as np
import pytest

from webmm.dtypes import F16, F32
from webmm.measure.verify import Checker, bound, worst_error
from webmm.problems.gemm import gemm


def operands(m=17, n=13, k=300, dtype=np.float32):
    rng = np.random.default_rng(0)
    return rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)


def test_bound_grows_with_k_and_with_a_shorter_result():
    assert bound(gemm(1, 1, 1000)) == 1000 * 2.0**-23
    assert bound(gemm(1, 1, 1000, dtype="f16")) == 1000 * 2.0**-23 + 2.0**-10
    assert bound(gemm(1, 1, 1000, dtype="f16", out_dtype="f32")) == 1000 * 2.0**-23


@pytest.mark.parametrize("dtype", [F32, F16], ids=lambda dtype: dtype.name)
def test_numpys_product_is_within_the_bound(dtype):
    a, b = operands(dtype=dtype.numpy)
    got = (a.astype(np.float32) @ b.astype(np.float32)).astype(dtype.numpy)
    problem = gemm(17, 13, 300, dtype=dtype)
    assert 0 < worst_error(got, a, b, dtype) <= bound(problem)
    assert Checker(problem, a, b).error(got) == worst_error(got, a, b, dtype)


def test_the_worst_summation_order_is_within_the_bound():
    # With terms of one sign summed sequentially, almost every addition rounds in the same direction.
    k = 20_000
    a, b = np.full((1, k), np.float32(0.1)), np.ones((k, 1), np.float32)
    got = np.cumsum(a, axis=1, dtype=np.float32)[:, -1:]
    assert worst_error(got, a, b) <= bound(gemm(1, 1, k))


@pytest.mark.parametrize("where", [(0, 0), (16, 12), (8, 5)])
@pytest.mark.parametrize("change", [0.5, -0.5])
def test_one_wrong_element_is_found(where, change):
    a, b = operands()
    got = a @ b
    got[where] += change
    assert worst_error(got, a, b) > bound(gemm(17, 13, 300))


def test_a_missing_term_is_found_if_k_is_small():
    a, b = operands(k=8)
    assert worst_error(a[:, :7] @ b[:7], a, b) > bound(gemm(17, 13, 8))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_an_unexpected_special_value_is_found(wrong):
    a, b = operands()
    got = a @ b
    got[3, 4] = wrong
    assert worst_error(got, a, b) == np.inf


@pytest.mark.parametrize(("special", "wrong"), [(np.nan, 0.0), (np.inf, -np.inf), (np.inf, np.nan), (np.inf, 3e38)])
def test_an_expected_special_value_must_be_there(special, wrong):
    a, b = operands()
    a[3, 0], b[0] = special, 1.0
    got = np.float32(a.astype(np.float64) @ b)
    assert worst_error(got, a, b) <= bound(gemm(17, 13, 300))
    got[3, 4] = wrong
    assert worst_error(got, a, b) == np.inf


def test_overflow_of_the_result_type_is_expected_as_infinity():
    a, b = np.full((1, 4), 200.0, np.float16), np.full((4, 1), 200.0, np.float16)  # 160,000 > 65,504
    assert worst_error(np.array([[np.inf]], np.float16), a, b, F16) == 0.0
    assert worst_error(np.array([[65_504]], np.float16), a, b, F16) == np.inf


def test_underflow_is_within_the_bound():
    a = b = np.full((1, 1), 1e-4, np.float16)  # 1e-8 is less than half of the smallest f16
    assert worst_error(np.zeros((1, 1), np.float16), a, b, F16) <= bound(gemm(1, 1, 1, dtype="f16"))


def test_large_products_are_checked_on_sampled_rows_and_columns(monkeypatch):
    monkeypatch.setattr("webmm.measure.verify.FULL_CHECK", 1000)
    monkeypatch.setattr("webmm.measure.verify.SAMPLED", 4)
    a, b = operands(m=50, n=40, k=20)
    problem = gemm(50, 40, 20)
    right = a @ b
    assert Checker(problem, a, b).error(right) <= bound(problem)
    for where in ((0, 7), (49, 31), (5, 0), (23, 39)):  # first and last rows and columns are always sampled
        wrong = right.copy()
        wrong[where] += 1
        assert Checker(problem, a, b).error(wrong) > bound(problem), where
