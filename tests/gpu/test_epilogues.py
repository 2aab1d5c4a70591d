"""Every stage applies the same epilogue: alpha, bias, activation, and beta times the old C, in whole numbers."""

import dataclasses

import numpy as np
import pytest
from products import UNTOUCHED, indices, lay_out, runs, small, view, whole_numbers

import webmm
from tests.sampled import crossed
from webmm.errors import ProblemError
from webmm.kernels import LADDER
from webmm.kernels.gemm.gemv import Gemv
from webmm.kernels.gemm.split_k import SplitK

STAGES = [*map(small, LADDER), small(SplitK, slices=1, splits=2), Gemv(lanes=8, groups=4, tj=4)]
SHAPES = {
    "aligned": view(36, 44, 28, pads=(4, 4, 4), offsets=(4, 8, 4)),
    "ragged": view(13, 7, 19, batch=2, ta=True, pads=(1, 0, 2), offsets=(1, 3, 1)),
    "wide": view(3, 37, 17, tb=True, pads=(0, 0, 1)),
}
KINDS = {
    "aligned": ("", "row", "column", "matrix"),
    "ragged": ("row", "column"),
    "wide": ("column", "matrix"),
}  # of bias; every stage takes half of them, the next stage the other half


def run_with_epilogue(device, kernel, problem, a, b, bias, c):
    """Return C after `kernel` ran `problem` with `c` (batch, m, n) as old values, and the number of stray writes."""
    p = problem
    where = indices(p.c, p.m, p.n, p.batch)
    before = lay_out(c, p.c, UNTOUCHED)
    padded = np.concatenate([np.full(p.bias_offset, np.nan, np.float32), bias.ravel(), np.full(64, np.nan, np.float32)])
    with (
        device.array(lay_out(a, p.a, np.nan)) as left,
        device.array(lay_out(b, p.b, np.nan)) as right,
        device.array(before) as result,
        device.array(padded) as terms,
    ):
        device.run(kernel, p, left, right, result, *([terms] if p.bias else []))
        after = result.numpy()
    outside = np.ones(after.size, bool)
    outside[where] = False
    return after[where], int(np.count_nonzero(after[outside] != UNTOUCHED))


@pytest.mark.parametrize(("kernel", "shape"), crossed(STAGES, SHAPES), ids=str)
def test_every_stage_applies_the_epilogue(device, kernel, shape):
    p, rng = SHAPES[shape], np.random.default_rng(2)
    if not runs(device, kernel, p):
        return
    a, b = whole_numbers(p)
    c = rng.integers(-9, 9, (p.batch, p.m, p.n)).astype(np.float32)
    forms = {"": (1,), "row": (p.m, 1), "column": (p.n,), "matrix": (p.m, p.n)}
    for kind in KINDS[shape][STAGES.index(kernel) % 2 :: 2]:
        bias = rng.integers(-50, 50, forms[kind]).astype(np.float32)
        whole = dataclasses.replace(p, alpha=2.0, beta=-3.0, bias=kind, bias_offset=3, activation="relu")
        got, strays = run_with_epilogue(device, kernel, whole, a, b, bias, c)
        expected = np.maximum(2 * (a @ b) + (bias if kind else 0), 0) - 3 * c
        np.testing.assert_array_equal(got, expected, err_msg=f"{kernel} {shape} {kind}")
        assert not strays


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_float32_bias_is_rounded_to_the_operands_dtype(device, dtype, resident):
    a, bias = np.ones((3, 3), np.float32), np.array([0.5, 2.0, -3.0], np.float32)
    left = device.array(a, dtype)
    given = device.array(bias) if resident else bias
    got = webmm.matmul(left, left, bias=given, out_dtype="float32", device=device)
    np.testing.assert_array_equal(got.numpy(), a @ a + bias)
    with pytest.raises(ProblemError, match="bias is float64; it must be"):
        webmm.matmul(left, left, bias=bias.astype(np.float64), device=device)
