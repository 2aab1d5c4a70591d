"""Cutting products into dispatches: each is within the limits, and they cover every term of the product once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webmm.choose.gemm import asked
from webmm.cut.dispatches import dispatches
from webmm.cut.pieces import GRAIN, Limits
from webmm.dtypes import F16, F32
from webmm.problems.gemm import Gemm, gemm
from webmm.problems.product import Operand

WIDE = Limits(binding=2**31, flops=1e18)


def cut(problem, limits):
    return dispatches(problem, limits, asked)


def matrices(buffer, operand, rows, columns, batch):
    """Return a view of the (batch, rows, columns) matrices stored in `buffer` as `operand` describes."""
    strides = (1, operand.ld) if operand.transposed else (operand.ld, 1)
    return np.lib.stride_tricks.as_strided(
        buffer[operand.offset :],
        (batch, rows, columns),
        [buffer.itemsize * s for s in (operand.batch_stride, *strides)],
    )


def compute(problem, most):
    """Return C computed by the pieces and by NumPy, both in float64 from whole numbers."""
    rng = np.random.default_rng(0)
    spans = [extent.end for extent in problem.buffers()]
    a, b, c, *rest = (rng.integers(-4, 5, span).astype(np.float64) for span in spans)
    bias = rest[0] if rest else None

    def run(p, a, b, c, bias):
        left, right, into = (
            matrices(x, operand, rows, columns, p.batch)
            for x, (_, operand, rows, columns) in zip((a, b, c), p.operands(), strict=True)
        )
        value = p.alpha * (left @ right)
        if p.bias == "matrix":
            value += bias[p.bias_offset :][: p.m * p.n].reshape(p.m, p.n)
        elif p.bias:
            length = p.n if p.bias == "column" else p.m
            vector = bias[p.bias_offset :][:length]
            value += vector if p.bias == "column" else vector[:, None]
        value = np.maximum(value, 0) if p.activation else value
        into[...] = value + (p.beta * into if p.beta else 0)

    expected, summed = c.copy(), np.full(problem.m * problem.n, np.nan)
    run(problem, a, b, expected, bias)
    for piece in cut(problem, most):
        for extent in piece.problem.buffers():
            assert extent.nbytes <= most.binding
        assert piece.problem.flops <= max(most.flops, 2 * (4 * GRAIN) ** 2)
        run(
            piece.problem,
            a,
            b,
            summed if piece.apart and not piece.last else c,
            summed if piece.apart and piece.last else bias,
        )
    return c, expected


@st.composite
def problems(draw):
    m, n, k, batch = (draw(st.integers(1, high)) for high in (90, 90, 90, 3))
    operands = []
    for rows, columns in ((m, k), (k, n), (m, n)):
        transposed = draw(st.booleans()) and len(operands) < 2  # C is never transposed
        outer, inner = (columns, rows) if transposed else (rows, columns)
        ld = inner + draw(st.sampled_from([0, 0, 3, 300]))
        stride = 0 if len(operands) < 2 and draw(st.booleans()) else ld * outer
        operands.append(Operand(ld, stride, draw(st.sampled_from([0, 5, 64, 1001])), transposed))
    dtypes = draw(st.sampled_from([(F32, F32), (F16, F16), (F32, F16), (F16, F32)]))
    epilogue = {
        "alpha": draw(st.sampled_from([1.0, 2.0])),
        "beta": draw(st.sampled_from([0.0, 1.0, -3.0])),
        "bias": draw(st.sampled_from(["", "row", "column"])),
        "bias_offset": 3,
        "activation": draw(st.sampled_from(["", "relu"])),
    }
    return Gemm(m, n, k, batch, *dtypes, *operands, **epilogue)


@given(problems(), st.sampled_from([1 << 11, 1 << 13, 1 << 16]), st.sampled_from([1e4, 1e6, 1e18]))
def test_pieces_make_up_the_product(problem, binding, flops):
    got, expected = compute(problem, Limits(binding, flops))
    np.testing.assert_array_equal(got, expected)


def test_a_product_within_the_limits_is_one_piece():
    problem = gemm(16384, 16384, 16384)
    assert [piece.problem for piece in cut(problem, WIDE)] == [problem]


def test_large_products_are_cut_evenly_at_whole_tiles():
    found = [piece.problem for piece in cut(gemm(16384, 16384, 16384), replace(WIDE, flops=2.0**41))]
    assert [(p.m, p.n, p.k) for p in found] == [(8192, 8192, 16384)] * 4
    found = [piece.problem for piece in cut(gemm(100, 100, 2**24), replace(WIDE, binding=2**40, flops=2.0**34))]
    assert {(p.m, p.n) for p in found} == {(100, 100)}
    assert sum(p.k for p in found) == 2**24
    assert not any(p.k % GRAIN for p in found)


def test_products_are_cut_before_indices_exceed_32_bits():
    problem = gemm(2**20, 2**13, 16, dtype="float16")  # C has 2^33 elements
    for piece in cut(problem, Limits(binding=2**40, flops=1e18)):
        assert max(extent.end - extent.first for extent in piece.problem.buffers()) <= 2**32


def test_the_activation_is_applied_in_the_last_piece_of_k():
    problem = replace(gemm(64, 64, 2**20, transpose_a=True), activation="gelu", bias="column", beta=2.0)
    *early, last = cut(problem, replace(WIDE, binding=2**25))
    assert len(early) > 1
    assert all(piece.apart and not piece.problem.activation for piece in early)
    assert [piece.problem.bias for piece in early] == ["column", *[""] * (len(early) - 1)]
    assert last.apart
    assert (last.problem.activation, last.problem.bias, last.problem.beta) == ("gelu", "matrix", 2.0)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_partial_sums_are_float32(dtype):
    problem = gemm(64, 64, 2**20, dtype="float16", out_dtype=dtype, transpose_a=True)
    assert any(piece.apart for piece in cut(problem, replace(WIDE, binding=2**24))) == (dtype == "float16")
