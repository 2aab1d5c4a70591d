"""float64 max, min, argmax and argmin: exact on every device, since doubles are compared as integers."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from reductions import STAGES, check, every_stage, problem_of, reduce

import webmm
from tests.sampled import crossed
from webmm.dtypes import F64

EXTREMES = ("max", "min", "argmax", "argmin")
ONE = 1 + 2.0**-52  # the double after 1
every_extreme = pytest.mark.parametrize("operation", EXTREMES)


@pytest.fixture
def without(device, monkeypatch):
    """Return the device without the feature shader-f64."""
    features = device.capabilities.features - F64.features
    monkeypatch.setattr(device, "capabilities", dataclasses.replace(device.capabilities, features=features))
    return device


def similar_doubles(shape, seed=0):
    """Return doubles of both signs, most of which differ only in their last bits, and some of which are equal."""
    rng = np.random.default_rng(seed)
    return rng.choice([-1, 1], shape) * (1 + rng.integers(0, 2**33, shape) // 3 * 2.0**-52)


def check_same(got, want):
    got = got.numpy() if isinstance(got, webmm.Array) else np.asarray(got)
    np.testing.assert_array_equal(got, want, strict=got.dtype == np.float64)


@pytest.mark.parametrize(("kernel", "operation"), crossed(STAGES, EXTREMES), ids=str)
def test_every_stage_finds_extremes(without, kernel, operation):
    for shape in ((1, 1, 1), (5, 1, 1), (3, 31, 1), (65, 64, 1), (129, 9, 1), (1, 3001, 1), (2, 33, 37), (3, 64, 36)):
        check(without, kernel, problem_of(operation, shape, "float64"), similar_doubles(shape))
        check(without, kernel, problem_of(operation, shape, "float64"), np.round(similar_doubles(shape)))  # ties
    strided = problem_of(operation, (2, 30, 8), "float64", gaps=(1, 2, 3), offset=5, y_offset=3)
    check(without, kernel, strided, similar_doubles((2, 30, 8)))


@every_stage
@every_extreme
def test_special_values(without, kernel, operation):
    infinite, least = float("inf"), 2.0**-1074
    for shape in ((13, 31, 1), (1, 64, 13)):
        outer, length, inner = shape
        rows = np.tile(np.resize([-least, 0.0, least], length), (outer * inner, 1))
        for row, values in zip(
            rows,
            [
                {3: np.nan},
                {5: -np.nan, 9: infinite},
                {length - 1: np.nan, 2: np.nan},
                dict.fromkeys(range(length), np.nan),
                {0: infinite},
                {length - 1: -infinite},
                dict.fromkeys(range(length), -infinite),
                dict.fromkeys(range(length), infinite),
                {length - 2: 2 * least, 8: 2 * least, 4: -2 * least, 30: -2 * least},
                dict.fromkeys(range(length), 0.0) | {4: -0.0, 9: 0.0},
                dict.fromkeys(range(length), -0.0) | {4: 0.0},
                {2: ONE, 30: 1.0, 7: -ONE, 8: -1.0},
                {1: np.finfo(float).max, 7: -np.finfo(float).max},
            ],
            strict=True,
        ):
            row[list(values)] = list(values.values())
        x = np.moveaxis(rows.reshape(outer, inner, length), -1, 1)
        check(without, kernel, problem_of(operation, shape, "float64"), x)


def test_every_bit_pattern_of_nan(device):
    bits = [0x7FF0000000000001, 0xFFF0000000000001, 0x7FF0000100000000, 0xFFFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF]
    for nan in np.array(bits, np.uint64).view(np.float64):
        for kernel in STAGES:
            x = np.array([1.0, np.inf, nan, -np.inf]).reshape(1, 4, 1)
            for operation, want in (("max", np.nan), ("min", np.nan), ("argmax", 2), ("argmin", 2)):
                problem = problem_of(operation, x.shape, "float64")
                if not kernel.check(problem, device.capabilities):
                    check_same(reduce(device, kernel, problem, x)[0][0, 0], want)


@every_extreme
def test_axes_and_views(without, operation):
    x = similar_doubles((4, 50, 6))
    numpy = getattr(np, operation)
    with without.array(x) as resident:
        for axis in (None, 0, 1, -1):
            for given in (x, resident, resident):  # the second resident call uses a plan
                check_same(webmm.reduce(given, operation, axis=axis, device=without), numpy(x, axis=axis))
        if not operation.startswith("arg"):
            check_same(webmm.reduce(resident, operation, axis=(0, 2)), numpy(x, axis=(0, 2)))
        seen, same = resident[1:, ::3, 1:], x[1:, ::3, 1:]
        check_same(webmm.reduce(seen.mT, operation, axis=1), numpy(same.swapaxes(1, 2), axis=1))
        check_same(
            webmm.reduce(resident[:, ::-1], operation, axis=1, keepdims=True), numpy(x[:, ::-1], 1, keepdims=True)
        )
    check_same(webmm.reduce(x[:1, :1, :1], operation, device=without), numpy(x[:1, :1, :1]))
    with pytest.raises(webmm.ProblemError, match="over no elements"):
        webmm.reduce(x[:0], operation, device=without)


@every_extreme
def test_rows_larger_than_a_binding(device, operation, monkeypatch):
    x = similar_doubles((3, 5000))
    x[1, [777, 4000]] = np.nan
    limits = device.capabilities.limits | {"max-storage-buffer-binding-size": 2**14}
    monkeypatch.setattr(device, "capabilities", dataclasses.replace(device.capabilities, limits=limits))
    check_same(webmm.reduce(x, operation, axis=1, device=device), getattr(np, operation)(x, axis=1))


DAWN = """
import numpy as np, webmm
rng = np.random.default_rng(0)
x = rng.choice([-1, 1], (5, 300, 4)) * (1 + rng.integers(0, 2**33, (5, 300, 4)) * 2.0**-52)
x[1, [30, 200], 2] = np.nan
with webmm.Device(engine="dawn") as gpu:
    assert "shader-f64" not in gpu.capabilities.features
    for op in ("max", "min", "argmax", "argmin"):
        for axis in (None, 0, 1, 2):
            np.testing.assert_array_equal(webmm.reduce(x, op, axis, device=gpu), getattr(np, op)(x, axis=axis))
print("right")
"""


def test_dawn_without_float64(swiftshader):
    done = subprocess.run([sys.executable, "-c", DAWN], env=swiftshader, capture_output=True, text=True, timeout=280)
    assert done.stdout == "right\n", done.stdout + done.stderr
