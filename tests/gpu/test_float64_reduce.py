"""Products and logsumexp of float64 on devices with shader-f64, compared with long double."""

import dataclasses

import numpy as np
import pytest
from reductions import STAGES, problem_of, reduce

import webmm
from tests.sampled import crossed
from webmm.dtypes import F64
from webmm.errors import UnsupportedError
from webmm.problems.reduce import OPERATIONS

NATIVE = ("prod", "logsumexp")
EPS = 2.0**-52

every_operation = pytest.mark.parametrize("operation", NATIVE)


@pytest.fixture
def native(device):
    if not F64.features <= device.capabilities.features:
        pytest.skip("the device has no shader-f64")
    return device


def drawn(shape, seed=0):
    """Return numbers near ±1, whose products neither overflow nor underflow."""
    rng = np.random.default_rng(seed)
    return np.exp(rng.standard_normal(shape) / 16) * rng.choice([-1, 1], shape)


def check(got, operation, x, axis=1):
    """Assert that products are within n·2⁻⁵² and logsumexp within 4·2⁻⁵² relative, and special values are NumPy's."""
    x = np.moveaxis(x, axis, -1)
    with np.errstate(all="ignore"):
        want = OPERATIONS[operation].exact(x)
        special = ~np.isfinite(want.astype(np.float64))
        largest = np.abs(np.where(np.isfinite(x), x, 0)).max(axis=-1)
    allowed = x.shape[-1] * EPS * abs(want) if operation == "prod" else 4 * EPS * (abs(want) + largest)
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got[special], want[special].astype(np.float64))
    assert (abs(got[~special] - want[~special]) <= allowed[~special]).all()


@pytest.mark.parametrize(("kernel", "operation"), crossed(STAGES, NATIVE), ids=str)
def test_stages(native, kernel, operation):
    for shape in ((1, 1, 1), (3, 301, 1), (2, 64, 36)):
        problem = problem_of(operation, shape, "float64")
        if kernel.check(problem, native.capabilities):
            continue
        x = drawn(shape)
        got, strays = reduce(native, kernel, problem, x)
        assert not strays
        check(got, operation, x)


def special(operation):
    """Return rows with NaN, infinities, zeros, the largest and the smallest numbers."""
    x = drawn((12, 133))
    x[0, 3], x[1, 2], x[2, 1], x[3], x[4, [1, 2]] = np.nan, np.inf, -np.inf, -np.inf, (np.inf, -np.inf)
    x[5, 7], x[6], x[7], x[8, :2], x[9, 132] = 0, 0, -1e308, (1e308, -1e308), np.nan
    x[10] = 700 * np.arange(133) if operation == "logsumexp" else 1
    x[11] = np.finfo(np.float64).max
    return x


@every_operation
def test_special_values(native, operation):
    x = special(operation)
    check(webmm.reduce(x, operation, axis=1, device=native), operation, x)
    check(webmm.reduce(np.ascontiguousarray(x.T), operation, axis=0, device=native), operation, x)


def test_logsumexp_of_any_magnitude(native):
    for scale in (1e-300, 1e-8, 1.0, 30.0, 1e5, 1e300):
        x = scale * np.random.default_rng(1).standard_normal((20, 100))
        check(webmm.reduce(x, "logsumexp", axis=1, device=native), "logsumexp", x)


@every_operation
def test_public_calls(native, operation, monkeypatch):
    x = drawn((4, 50, 6))
    with native.array(x) as resident:
        for axis in (0, 1, 2):
            for given in (x, resident, resident):  # the second resident call uses a plan
                check(np.asarray(webmm.reduce(given, operation, axis=axis, device=native)), operation, x, axis)
        check(webmm.reduce(resident[1:, ::2, ::-1], operation, axis=1).numpy(), operation, x[1:, ::2, ::-1])
    limits = native.capabilities.limits | {"max-storage-buffer-binding-size": 2**12}
    monkeypatch.setattr(native, "capabilities", dataclasses.replace(native.capabilities, limits=limits))
    long = drawn((2, 5000))
    check(webmm.reduce(long, operation, axis=1, device=native), operation, long)


@every_operation
def test_devices_without_float64_are_refused(device, operation, monkeypatch):
    features = device.capabilities.features - F64.features
    monkeypatch.setattr(device, "capabilities", dataclasses.replace(device.capabilities, features=features))
    wanted = rf"{operation} of float64 needs the feature shader-f64, which .* does not have; cast the operand, e\.g\. "
    with pytest.raises(UnsupportedError, match=wanted):
        webmm.reduce(np.ones((2, 3)), operation, device=device)
