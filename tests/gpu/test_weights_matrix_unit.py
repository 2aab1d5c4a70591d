"""Quantised weights on matrix units, with emulated fragments."""

import dataclasses

import emulation
import numpy as np
import pytest
from test_weights import check, random_weights

from tests.sampled import crossed
from webmm.choose.weights import on_matrix_units
from webmm.dtypes import F16, F32
from webmm.kernels.weights.matrix_unit import MatrixUnit
from webmm.problems.product import Operand
from webmm.problems.weights import WeightOnly

SMALL = {"bm": 16, "bn": 16, "bk": 8, "sm": 8, "sn": 16, "fm": 8, "fn": 8, "fk": 8, "group": 1}


@pytest.fixture
def small(device, monkeypatch):
    """Return the stage with small tiles, on a device with emulated matrix units."""
    kernel = MatrixUnit(lanes=device.capabilities.subgroup_size, **SMALL)
    return emulation.stand_in(device, monkeypatch, kernel)


@pytest.mark.parametrize(("bits", "transposed"), crossed([4, 8], [False, True]))
def test_shapes_and_layouts(device, small, bits, transposed):
    rng = np.random.default_rng(bits)
    for (m, n, k), pad, offset in (((32, 36, 64), 0, 8), ((19, 21, 45), 3, 1)):
        x = rng.standard_normal((m, k)).astype(np.float16)
        weights = random_weights(rng, k, n, bits, 32)
        check(device, small, x, weights, transposed=transposed, pad=pad, offset=offset)


def test_scales_of_any_magnitude(device, small):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((16, 64)).astype(np.float16)
    weights = random_weights(rng, 64, 16, 4, 32)
    scales = np.ldexp(weights.scales, np.arange(-24, 8, 2)[:, None]).astype(np.float32)
    x = (x * 2.0**-7).astype(np.float16)
    check(device, small, x, dataclasses.replace(weights, scales=scales))


def test_the_choice_by_shape_and_dtype(device):
    able = dataclasses.replace(
        device.capabilities, subgroup_size=32, matrix_shapes=frozenset({MatrixUnit().matrix_shape})
    )

    def made(dtype):
        return on_matrix_units(WeightOnly(1024, 4096, 4096, dtype, dtype, Operand(4096), 4, 32), able)

    assert {MatrixUnit(), MatrixUnit(bm=64, bk=64, slices=2)} <= set(made(F16))
    assert made(F32) == []
    assert MatrixUnit().unsuited(WeightOnly(64, 64, 64, F32, F32, Operand(64), 4, 32)) == (
        "reads and writes float16, not float32 and float32"
    )
