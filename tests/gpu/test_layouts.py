"""Transposed operands, gaps between rows and matrices, batches, results of another dtype."""

import dataclasses
import itertools

import numpy as np
import pytest
from products import check, every_stage, exact, multiply, named, runs, small, view, whole_numbers

from tests.sampled import crossed, sampled
from webmm.kernels import LADDER
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.split_k import SplitK
from webmm.problems.gemm import gemm

# Whole tiles; edges with aligned vec4; edges without alignment.
SIZES = [(64, 64, 32), (36, 44, 28), (37, 41, 29)]
TRANSPOSED = list(itertools.product((False, True), repeat=2))


@pytest.mark.parametrize(("cls", "dtype"), crossed(LADDER, ["float32", "float16"]), ids=named)
def test_transposed_operands(device, cls, dtype):
    # Two layouts with whole tiles; at edges, and in float16, one: others in the next stage.
    turn = LADDER.index(cls) // 2  # every other stage is in the sample
    whole = TRANSPOSED[turn % 2 :: 2] if dtype == "float32" else TRANSPOSED[turn % 4 :][:1]
    edges = list(zip(SIZES[1:], (TRANSPOSED[turn % 4], TRANSPOSED[(turn + 2) % 4]), strict=True))
    for (m, n, k), (ta, tb) in (*itertools.product(SIZES[:1], whole), *(edges if dtype == "float32" else edges[1:])):
        problem = gemm(m, n, k, dtype=dtype, transpose_a=ta, transpose_b=tb)
        if runs(device, small(cls), problem):
            check(device, small(cls), problem)


@pytest.mark.parametrize(("cls", "dtype"), crossed(LADDER, ["float32", "float16"]), ids=named)
def test_views_with_gaps_and_offsets(device, cls, dtype):
    gaps = [
        {"pads": (4, 8, 4), "offsets": (8, 4, 12)},  # all operands aligned for vec4
        {"pads": (3, 1, 2), "offsets": (0, 0, 0)},
        {"pads": (0, 0, 0), "offsets": (1, 2, 3)},
        {"pads": (4, 0, 1), "offsets": (4, 5, 0)},  # one operand aligned
    ]
    layouts = [*zip(gaps, TRANSPOSED, strict=True)]
    # Each of them with one of the sizes, with another one in the next stage.
    turn = LADDER.index(cls)
    for i, (gap, (ta, tb)) in enumerate(layouts) if dtype == "float32" else [(turn, layouts[turn % 4])]:
        m, n, k = SIZES[(i + turn) % 3]
        problem = view(m, n, k, dtype, batch=1 + 2 * (i % 2), ta=ta, tb=tb, **gap)
        if runs(device, small(cls), problem):
            check(device, small(cls), problem)


@every_stage
def test_batches(device, cls):
    m, n, k = SIZES[LADDER.index(cls) % 3]
    check(device, small(cls), gemm(m, n, k, batch=5))


@every_stage
def test_an_operand_broadcast_over_the_batch(device, cls):
    # A batch stride of 0 means that every product takes the same matrix.
    problem = gemm(20, 24, 28, batch=3)
    shared = dataclasses.replace(problem, a=dataclasses.replace(problem.a, batch_stride=0))
    a, b = whole_numbers(problem)
    a[:] = a[0]
    got, strays = multiply(device, small(cls), shared, a, b)
    assert np.array_equal(got, exact(shared, a, b))
    assert not strays


@pytest.mark.parametrize(
    ("cls", "dtypes"), crossed(LADDER, [("float16", "float32"), ("float32", "float16")]), ids=named
)
def test_result_of_another_dtype(device, cls, dtypes):
    dtype, out_dtype = dtypes
    problem = gemm(*SIZES[1 + LADDER.index(cls) // 2 % 2], dtype=dtype, out_dtype=out_dtype)
    if runs(device, small(cls), problem):
        check(device, small(cls), problem)


@pytest.mark.parametrize("cls", sampled([Pipelined, SplitK, CpuLanes], 3), ids=named)  # each compiles for seconds
def test_default_tiles_with_transposed_operands_and_gaps(device, cls):
    # The default tiles where the tests above use small ones, with both operands transposed, unlike test_shapes.py.
    check(device, cls(), view(67, 131, 35, ta=True, tb=True, pads=(1, 2, 3), offsets=(3, 2, 1)))
