"""Every stage of reductions: shapes, strides, dtypes, special values, accuracy, limits."""

import math

import numpy as np
import pytest
from reductions import STAGES, check, every_stage, problem_of, reduce

from tests.sampled import crossed
from webmm import kernels
from webmm.cases import op_of
from webmm.kernels.base import LOOP_LIMIT
from webmm.kernels.reduce.base import CHAIN, levels
from webmm.kernels.reduce.per_row import PerRow
from webmm.kernels.reduce.serial import Serial
from webmm.kernels.reduce.tree import Alone, Tree
from webmm.kernels.reduce.two_pass import TwoPass
from webmm.kernels.reduce.vectorized import Vectorized
from webmm.measure.bench import measure
from webmm.measure.verify import sum_bound
from webmm.problems.reduce import OPERATIONS, reduction

# One element; one axis longer than 1; just above and below a tile of some stage; long and thin; many short rows;
# vec4 along k, along j, along neither.
SHAPES = [
    (1, 1, 1),
    (5, 1, 1),
    (1, 1, 5),
    (3, 31, 1),
    (2, 129, 1),
    (65, 64, 1),
    (300, 4, 1),
    (129, 9, 1),
    (67, 32, 1),
    (1, 3001, 1),
    (2, 33, 37),
    (3, 64, 36),
    (1, 260, 132),
]


def test_every_stage_is_tested():
    assert {type(kernel) for kernel in STAGES} == set(kernels.STAGES["reduce"].values())


@every_stage
def test_shapes(device, kernel):
    for shape in SHAPES:
        check(device, kernel, problem_of("sum", shape))
        check(device, kernel, problem_of("argmax", shape))


@pytest.mark.parametrize(("kernel", "operation"), crossed(STAGES, OPERATIONS), ids=str)
def test_operations(device, kernel, operation):
    for shape in ((3, 301, 1), (2, 64, 36)):
        problem = problem_of(operation, shape)
        check(device, kernel, problem, np.random.default_rng(1).standard_normal(shape))


@pytest.mark.parametrize(("kernel", "operation"), crossed(STAGES, OPERATIONS, step=3), ids=str)
def test_int32(device, kernel, operation):
    if not OPERATIONS[operation].integers:
        return
    for shape in ((3, 301, 1), (1, 3001, 1), (2, 64, 36), (2, 33, 37)):
        check(device, kernel, problem_of(operation, shape, "int32"))
    check(device, kernel, problem_of(operation, (2, 30, 8), "int32", gaps=(1, 2, 3), offset=5, y_offset=3))
    least = np.full((2, 37, 5), -(2**31))
    check(device, kernel, problem_of(operation, least.shape, "int32"), least)
    check(device, kernel, problem_of(operation, least.shape, "int32"), ~least)


@pytest.mark.parametrize(("kernel", "dtype"), crossed(STAGES, ["float16", "bfloat16"], step=4), ids=str)
def test_16_bit_types(device, kernel, dtype):
    for operation in ("sum", "prod", "max", "argmin", "logsumexp"):
        check(device, kernel, problem_of(operation, (3, 260, 1), dtype))
    check(device, kernel, problem_of("mean", (2, 37, 5), dtype, offset=3, y_offset=5))
    check(device, kernel, problem_of("max", (1, 37, 8), dtype, y_offset=1))


@every_stage
def test_float16_into_float32(device, kernel):
    check(device, kernel, problem_of("sum", (2, 4096, 1), "float16", out_dtype="float32"), np.full((2, 4096, 1), 100.0))


@every_stage
def test_strides_and_offsets(device, kernel):
    for shape, gaps, offset in (
        ((3, 40, 1), (4, 0, 0), 8),  # rows with a gap, still vec4
        ((3, 40, 1), (3, 0, 0), 0),
        ((3, 40, 1), (0, 0, 0), 3),
        ((2, 30, 8), (1, 2, 3), 5),
        ((2, 30, 8), (4, 4, 0), 4),  # columns with a gap, still vec4
    ):
        check(device, kernel, problem_of("sum", shape, gaps=gaps, offset=offset, y_offset=7))


@pytest.mark.parametrize(("kernel", "operation"), crossed(STAGES, OPERATIONS), ids=str)
def test_special_values(device, kernel, operation):
    rng = np.random.default_rng(2)
    for shape in ((12, 133, 1), (1, 64, 12)):
        outer, length, inner = shape
        x = rng.standard_normal(shape)
        rows = np.moveaxis(x, 1, -1).reshape(-1, length)  # a copy unless inner is 1
        for i, values in enumerate(
            [
                [(3, np.nan)],
                [(0, np.inf)],
                [(length - 1, -np.inf)],
                [(5, np.inf), (77 % length, -np.inf)],
                [(5, np.nan), (9, np.inf)],
                [(9, np.inf), (5, -np.nan)],
                [(length - 1, np.nan), (2, np.nan)],
                [(k, -np.inf) for k in range(length)],
                [(k, np.nan) for k in range(length)],
                [(8, np.inf), (20, np.inf)],
                [(k, 1e-42) for k in range(length)],  # subnormal
                [(k, -0.0) for k in range(length)] + [(4, 0.0)],
            ]
        ):
            for k, value in values:
                rows[i, k] = value
        x = np.moveaxis(rows.reshape(outer, inner, length), -1, 1)
        if operation in ("sum", "mean", "prod", "logsumexp"):
            x[x == 1e-42] = 1e-30  # sums may flush subnormals
        if operation == "prod":  # near 1, so that products overflow only by special values
            x[np.isfinite(x) & (x != 0)] = np.exp(x[np.isfinite(x) & (x != 0)] / 16)
        check(device, kernel, problem_of(operation, shape), x)


@pytest.mark.parametrize(("operation", "sign"), [("argmax", 1), ("argmin", -1)])
def test_the_first_of_equal_extremes_wins(device, operation, sign):
    for kernel in STAGES:
        x = np.zeros((4, 1000, 1))
        x[1, [999, 400, 3]] = 7
        x[2, [998, 31, 32]] = np.nan
        x[3, 17:], x[3, 40] = -0.0, 0.0
        x[3, :17] = -1
        problem = problem_of(operation, x.shape)
        if not kernel.check(problem, device.capabilities):
            got, _ = reduce(device, kernel, problem, sign * x.astype(np.float32))
            assert got[:, 0].tolist() == [0, 3, 31, 17], kernel


# Accuracy: the error of a sum grows with the logarithm of its length


@pytest.fixture(scope="module")
def long_sums():
    """Three vectors, each with its exact sum and that of its magnitudes: of equal elements, a multiple of one."""
    rng, equal = np.random.default_rng(3), np.full(2**24, 0.1, np.float32)
    drawn = [rng.random(2**22, np.float32), rng.standard_normal(2**22).astype(np.float32)]
    exact = [(x, math.fsum(x.tolist()), math.fsum(np.abs(x).tolist())) for x in drawn]
    return [(equal, equal.size * float(equal[0]), equal.size * float(equal[0])), *exact]


@pytest.mark.parametrize("kernel", [TwoPass(8, 4, 64, "alone"), TwoPass(256, 4, 64), Alone(8, 4), Tree(64, 4)], ids=str)
def test_sums_of_millions_of_elements(device, kernel, long_sums):
    for x, exact, magnitude in long_sums:
        problem = reduction(1, x.size)
        if kernel.check(problem, device.capabilities):
            continue
        with device.array(x) as x_array, device.empty((1,)) as y:
            device.run(kernel, problem, x_array, y)
            error = abs(float(y.numpy()[0]) - exact) / magnitude
        assert error <= sum_bound(x.size), kernel
        assert error < 2e-6, kernel  # a chain of 2^15 additions (one invocation's) of 0.1 is off by 3e-4


@pytest.mark.parametrize("kernel", [Serial(), PerRow(8), Vectorized(8, 1)], ids=str)
def test_long_chains_of_one_invocation(device, kernel):
    x = np.full((1, 65_000, 1), 0.1, np.float32)
    got, _ = reduce(device, kernel, problem_of("sum", x.shape), x)
    exact = math.fsum(x.ravel().tolist())
    assert abs(float(got[0, 0]) - exact) / exact < 2e-6


def test_levels_reach_any_length():
    assert [levels(n) for n in (1, CHAIN, CHAIN + 1, CHAIN**2, CHAIN**2 + 1, 2**32)] == [1, 1, 2, 2, 3, 8]


# Limits


def test_a_folded_grid(device):
    rows = 65_535 + 3
    check(device, Alone(8, 1), problem_of("sum", (rows, 3, 1)))
    check(device, Tree(32, 1), problem_of("argmax", (rows, 2, 1)))


def test_loops_beyond_the_limit_are_refused(device):
    problem = reduction(1, LOOP_LIMIT + 1)
    if not device.capabilities.loop_limit:
        assert Serial().check(problem, device.capabilities) is None
        return
    for kernel in (Serial(), PerRow()):
        assert "loop iterations" in kernel.check(problem, device.capabilities)
    assert "loop iterations" in Serial().check(reduction(300, 300), device.capabilities)
    assert "loop iterations" in TwoPass(4, 1, 2).check(reduction(1, 2**22), device.capabilities)


@pytest.mark.parametrize("op", ["reduce:sum", "normalise:layer_norm", "elementwise"])
def test_benchmarks_accept_negative_results(device, op):
    known = op_of(op)
    for dtype in known.dtypes:
        record = measure(device, known.stages[0](), known.case(device, known.problem((9, 77, 1), dtype.name)))
        assert record.status == "ok", record.reason
