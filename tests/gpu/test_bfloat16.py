"""bfloat16 storage, two elements per word: every stage, aligned and not, with the rounding of ml_dtypes."""

import ml_dtypes
import numpy as np
import pytest
from products import check, named, runs, small, view

import webmm
from tests.sampled import crossed
from webmm.kernels import LADDER
from webmm.measure.verify import worst_error

PROBLEMS = [
    view(36, 44, 28, "bfloat16", pads=(4, 4, 4), offsets=(4, 8, 4)),
    view(7, 13, 9, "bfloat16", batch=2, ta=True, pads=(1, 0, 0), offsets=(1, 3, 1)),
    view(5, 6, 11, "bfloat16", tb=True, out_dtype="float32"),
    view(5, 6, 11, "float32", out_dtype="bfloat16", pads=(0, 0, 1)),
]


@pytest.mark.parametrize(("cls", "problem"), crossed(LADDER, PROBLEMS, step=4), ids=named)
def test_every_stage(device, cls, problem):
    kernel = small(cls)
    if runs(device, kernel, problem):
        check(device, kernel, problem)


def test_rounds_like_ml_dtypes(device):
    bits = np.random.default_rng(0).integers(0, 2**32, 4096, dtype=np.uint32)
    ties = (np.arange(256, dtype=np.uint32) << 16) + 0x3F80_8000
    special = np.array([0, 0x8000_0000, 0x7F80_0000, 0xFF80_0000, 0x7F80_0001, 0xFFFF_FFFF, 0x7F7F_FFFF], np.uint32)
    values = np.concatenate([bits, ties, special]).view(np.float32)
    values = values[(np.abs(values) >= 2.0**-126) | ~np.isfinite(values)]  # drivers may flush subnormals to zero
    for x in (values[: len(values) // 4 * 4], values[:4093]):
        got = webmm.matmul(x[:, None], np.ones((1, 1), np.float32), out_dtype="bfloat16", device=device)[:, 0]
        with np.errstate(all="ignore"):
            expected = x.astype(ml_dtypes.bfloat16)
        assert np.array_equal(np.isnan(got), np.isnan(expected))
        known = ~np.isnan(expected)
        assert np.array_equal(got[known].view(np.uint16), expected[known].view(np.uint16))


@pytest.mark.parametrize("n", [12, 13])
def test_epilogues_in_bfloat16(device, n):
    rng = np.random.default_rng(1)
    a, b, bias, c = ((rng.random(shape) - 0.5).astype(ml_dtypes.bfloat16) for shape in ((9, 8), (8, n), (n,), (9, n)))
    got = webmm.matmul(a, b, bias=bias, activation="relu", residual=c, device=device)
    assert got.dtype == ml_dtypes.bfloat16
    wide = [x.astype(np.float64) for x in (a, b, bias, c)]
    expected = np.maximum(wide[0] @ wide[1] + wide[2], 0) + wide[3]
    assert np.abs(got.astype(np.float64) - expected).max() <= 2.0**-8 * np.abs(expected).max() + 1e-6


def test_views_of_bfloat16_arrays(device):
    x = np.arange(35).reshape(5, 7).astype(ml_dtypes.bfloat16)
    with device.array(x) as array:
        assert array.dtype.name == "bfloat16"
        assert np.array_equal(array[1:, 1::2].numpy(), x[1:, 1::2])
        product = (array.T @ array).numpy()
    assert worst_error(product, x.T, x, array.element) <= 5 * 2.0**-23 + 2.0**-7
