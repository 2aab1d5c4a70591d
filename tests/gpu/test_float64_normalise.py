"""float64 softmax and norms on devices with shader-f64, compared with long double."""

import dataclasses

import numpy as np
import pytest

import webmm
from tests.sampled import crossed
from webmm.dtypes import F64
from webmm.errors import UnsupportedError
from webmm.kernels.normalise.rows import Rows
from webmm.problems.normalise import NORMALISATIONS, Normalisation
from webmm.problems.reduce import Span

EPSILON = 1e-5
KERNELS = (Rows(8, 4, "alone"), Rows(32, 2), Rows(64, 1, "subgroup"), Rows(1, 4))


@pytest.fixture(autouse=True)
def native(device):
    if not F64.features <= device.capabilities.features:
        pytest.skip("the device has no shader-f64")


def reference(function, x, axis=-1):
    """Return NumPy's result in long double."""
    rows = np.moveaxis(x.astype(np.longdouble), axis, -1)
    with np.errstate(all="ignore"):
        return np.moveaxis(NORMALISATIONS[function].reference(rows, EPSILON), -1, axis)


def check(got, want, axis=-1, tolerance=16):
    """Assert that results are within `tolerance`·2⁻⁵² of their row's largest, and NaN where NumPy has NaN."""
    assert got.dtype == np.float64
    want = want.astype(np.float64)
    largest = np.nanmax(np.where(np.isnan(want), 0, abs(want)), axis=axis, keepdims=True)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    assert np.nanmax(abs(got - want) / (largest + 2.0**-1000), initial=0) <= tolerance * 2.0**-52


@pytest.mark.parametrize(("kernel", "function"), crossed(KERNELS, NORMALISATIONS), ids=str)
def test_rows_of_any_length(device, kernel, function):
    for outer, length, inner in ((1, 1, 1), (5, 31, 1), (3, 3001, 1), (2, 33, 37)):
        x = np.random.default_rng(0).standard_normal((outer, length, inner))
        span, operation = Span.dense(length, inner), NORMALISATIONS[function].operation
        problem = Normalisation(
            *(operation, outer, length, inner), *(F64, F64, span), function=function, epsilon=EPSILON
        )
        if kernel.check(problem, device.capabilities):
            continue
        with device.array(x) as operand, device.empty(x.shape, "float64") as y:
            device.run(kernel, problem, operand, y)
            check(y.numpy(), reference(function, x, 1), 1)


def test_softmax_of_special_values(device):
    x = 3 * np.random.default_rng(0).standard_normal((11, 40))
    x[1, 3], x[2, 2], x[3, 1], x[4], x[5, [1, 2]] = np.nan, np.inf, -np.inf, -np.inf, (np.inf, -np.inf)
    x[6] *= 300  # most results are subnormal or 0
    x[7], x[8, :2], x[9], x[10] = -1e308, (1e308, -1e308), 0, x[0] * 1e-310
    check(webmm.softmax(x, device=device), reference("softmax", x), tolerance=2)


def test_small_softmax_results_are_accurate(device):
    x = -np.arange(0, 700, 7.3).reshape(1, -1)
    want = reference("softmax", x)
    assert (abs(webmm.softmax(x, device=device) / want - 1) < 1e-13).all()


def test_public_calls(device):
    rng = np.random.default_rng(1)
    x, (weight, bias) = rng.standard_normal((4, 50, 6)), rng.standard_normal((2, 6))
    with device.array(x) as resident:
        for axis in (0, 1, 2):
            for given in (x, resident, resident):  # the second resident call uses a plan
                got = webmm.softmax(given, axis, device=device)
                check(got if isinstance(got, np.ndarray) else got.numpy(), reference("softmax", x, axis), axis)
        check(webmm.softmax(resident.mT).numpy(), reference("softmax", x.swapaxes(1, 2)))
    check(webmm.layer_norm(x, weight, bias, device=device), reference("layer_norm", x) * weight + bias)
    check(webmm.rms_norm(x, weight, device=device), reference("rms_norm", x) * weight)
    with pytest.raises(webmm.ProblemError, match="must have shape"):
        webmm.rms_norm(x, weight.astype(np.float32), device=device)


@pytest.mark.parametrize("function", NORMALISATIONS)
def test_devices_without_float64_are_refused(device, function, monkeypatch):
    features = device.capabilities.features - F64.features
    monkeypatch.setattr(device, "capabilities", dataclasses.replace(device.capabilities, features=features))
    with pytest.raises(
        UnsupportedError, match=f"{function} of float64 needs the feature shader-f64, which .* cast the"
    ):
        getattr(webmm, function)(np.ones((2, 3)), device=device)
