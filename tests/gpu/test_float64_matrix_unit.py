"""float64 products by slices on matrix units: the shader for Tint, with fragments emulated as for 8-bit products.

The emulation adds loop iterations, of which lavapipe runs at most 65,535: k is short in these tests.
"""

import dataclasses

import numpy as np
import pytest
from emulation import stand_in
from test_byte_matrix_unit import SMALL, emulated
from test_float64 import ADVERSARIAL, excess, normal, run

import webmm.engine.launches
from webmm.kernels.gemm.slices import Slices
from webmm.kernels.gemm.slices_unit import SlicesUnit

BY_BYTES = """for (var k = 0u; k < FK * count; k++) {
            let a = a_tile[left.x][left.y + i * A_LINE + k / 16u][k / 4u % 4u];
            let b = b_tile[right.x][right.y + j * B_LINE + k / 16u][k / 4u % 4u];
            (*sums)[own] += byte(a, k % 4u) * byte(b, k % 4u);"""
BY_WORDS = """for (var k = 0u; k < FK / 4u * count; k++) {
            let a = a_tile[left.x][left.y + i * A_LINE + k / 4u][k % 4u];
            let b = b_tile[right.x][right.y + j * B_LINE + k / 4u][k % 4u];
            (*sums)[own] += dot4I8Packed(a, b);"""


def emulated_by_words(wgsl):
    """Return the shader with emulated fragments (if it has any), multiplied by words of four bytes."""
    if "subgroup_matrix_left" not in wgsl:
        return wgsl
    text = emulated(wgsl)
    assert BY_BYTES in text
    return text.replace(BY_BYTES, BY_WORDS)


@pytest.fixture
def small(device, monkeypatch):
    """Return the stage with small tiles, on a device with emulated matrix units."""
    kernel = SlicesUnit(lanes=device.capabilities.subgroup_size, **SMALL)
    return stand_in(device, monkeypatch, kernel, emulate=emulated_by_words)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_layouts_and_edges(device, small, layout):
    for m, n, k in ((64, 48, 128), (33, 35, 99), (1, 5, 63)):
        a, b = normal(m, k), normal(k, n, seed=1)
        got = run(small, device, a, b, layout)
        assert excess(got, a, b) <= 1
        np.testing.assert_array_equal(got, run(Slices(), device, a, b, layout))  # both sum exactly


@pytest.mark.parametrize("name", ["dense", "rows apart", "NaN and infinities", "wide integers"])
def test_adversarial_operands(device, small, name):
    a, b = ADVERSARIAL[name]
    a, b = a[:, :128], b[:128]
    assert excess(run(small, device, a, b), a, b) <= 1


@pytest.mark.parametrize("settings", [{"bn": 32, "group": 8}, {"bm": 16, "bn": 32, "sn": 32}])
def test_other_tiles(device, small, settings):
    kernel = dataclasses.replace(small, **settings)
    a, b = normal(50, 60), normal(60, 70, seed=1)
    np.testing.assert_array_equal(run(kernel, device, a, b), run(Slices(), device, a, b))


def test_a_batch_with_a_broadcast_operand(device, small, monkeypatch):
    a, b = normal(3, 20, 100), normal(100, 24, seed=1)
    monkeypatch.setattr(webmm.choose, "choose", lambda *_: small)
    got = (device.array(a.swapaxes(1, 2)).mT @ device.array(b)).numpy()
    assert excess(got, a, b) <= 1
