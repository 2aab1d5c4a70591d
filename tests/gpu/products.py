"""Operands with a known product, laid out in memory as a problem describes, and checks of a kernel's result.

The positions of elements are computed by NumPy, independently of the shaders. Gaps between and after the matrices hold
NaN in A and B, which exposes stray reads, and `UNTOUCHED` in C, which exposes stray writes and missing elements.
"""

import re

import numpy as np
import pytest

from tests.sampled import sampled
from webmm.dtypes import F32, dtype_of
from webmm.errors import UnsupportedError
from webmm.kernels import LADDER
from webmm.kernels.gemm.blocked import RegisterTiled
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.measure.verify import bound, worst_error
from webmm.problems.gemm import Gemm
from webmm.problems.product import Operand

UNTOUCHED = -4096.0  # exact in f16, and larger than any product of these tests
SPARE = 1024  # elements after the last matrix of a buffer


def indices(operand, rows, columns, batch):
    """Return the index in its buffer of each element of (batch, rows, columns)."""
    i, row, column = np.ogrid[:batch, :rows, :columns]
    if operand.transposed:
        row, column = column, row
    return operand.offset + i * operand.batch_stride + row * operand.ld + column


def lay_out(matrices, operand, fill):
    """Return a buffer that holds `matrices` as `operand` describes, and `fill` everywhere else."""
    batch, rows, columns = matrices.shape
    where = indices(operand, rows, columns, batch)
    buffer = np.full(where.max() + 1 + SPARE, fill, matrices.dtype)
    buffer[where] = matrices
    return buffer


def multiply(device, kernel, problem, a, b, dispatch=None):
    """Return C (batch, m, n) = a (batch, m, k) · b (batch, k, n) by `kernel`, and the number of stray writes.

    `dispatch(a, b, c)`, if given, replaces `device.run`: for tests with a custom shader.
    """
    p = problem
    where = indices(p.c, p.m, p.n, p.batch)
    blank = np.full(where.max() + 1 + SPARE, UNTOUCHED, p.out_dtype.numpy)
    with (
        device.array(lay_out(a.astype(p.dtype.numpy), p.a, np.nan)) as a_array,
        device.array(lay_out(b.astype(p.dtype.numpy), p.b, np.nan)) as b_array,
        device.array(blank) as c_array,
    ):
        if dispatch is None:
            device.run(kernel, p, a_array, b_array, c_array)
        else:
            dispatch(a_array, b_array, c_array)
        result = c_array.numpy()
    outside = np.ones(result.size, bool)
    outside[where] = False
    return result[where], int(np.count_nonzero(result[outside] != UNTOUCHED))


def whole_numbers(problem, seed=0):
    """Return A and B of small whole numbers, none of them zero: every term counts, and f32 makes no rounding error."""
    rng = np.random.default_rng(seed)
    top = 8 if problem.out_dtype == F32 else 2  # f16 holds whole numbers up to 2048
    magnitude = np.arange(1, top + 1)
    values = np.concatenate([-magnitude, magnitude]).astype(np.float32)
    p = problem
    return rng.choice(values, (p.batch, p.m, p.k)), rng.choice(values, (p.batch, p.k, p.n))


def fractions(problem, seed=0):
    """Return A and B of normally distributed numbers that the operands' dtype can hold."""
    rng = np.random.default_rng(seed)
    p = problem
    shapes = ((p.batch, p.m, p.k), (p.batch, p.k, p.n))
    return [rng.standard_normal(shape).astype(p.dtype.numpy).astype(np.float32) for shape in shapes]


def exact(problem, a, b):
    """Return a·b, which `problem`'s result must hold without rounding."""
    c = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(c).max() <= (2**24 if problem.out_dtype == F32 else 2**11), "the test's numbers are too large"
    return c


def describe(kernel, problem):
    layouts = ", ".join(f"{name} {operand}" for name, operand, _, _ in problem.operands())
    return f"{kernel}: {problem} × {problem.batch}, {problem.dtype.name} → {problem.out_dtype.name}, {layouts}"


def check_exactly(device, kernel, problem, seed=0):
    """Assert that whole numbers give exact results, and that nothing outside C is written."""
    a, b = whole_numbers(problem, seed)
    got, strays = multiply(device, kernel, problem, a, b)
    wrong = np.argwhere(got != exact(problem, a, b))
    assert not len(wrong), f"{len(wrong)} wrong elements, first {tuple(wrong[0])}, in {describe(kernel, problem)}"
    assert not strays, f"{strays} elements outside of C were written by {describe(kernel, problem)}"


def check_closely(device, kernel, problem, seed=0):
    """Assert that fractions give results within the rounding error bound."""
    a, b = fractions(problem, seed)
    got, _ = multiply(device, kernel, problem, a, b)
    error = max(worst_error(c, x, y, problem.out_dtype) for c, x, y in zip(got, a, b, strict=True))
    assert error <= bound(problem), f"error {error:.2e} > {bound(problem):.2e} in {describe(kernel, problem)}"


def check(device, kernel, problem, seed=0):
    check_exactly(device, kernel, problem, seed)
    check_closely(device, kernel, problem, seed)


def runs(device, kernel, problem):
    """Return whether the device can run this; if not, assert that it refuses with the reason."""
    reason = kernel.check(problem, device.capabilities)
    if reason is None:
        return True
    a, b, c = (
        device.empty((operand.end(rows, columns, problem.batch),), problem.out_dtype if name == "C" else problem.dtype)
        for name, operand, rows, columns in problem.operands()
    )
    with a, b, c, pytest.raises(UnsupportedError, match=re.escape(reason)):
        device.run(kernel, problem, a, b, c)
    return False


def view(m, n, k, dtype="float32", *, batch=1, ta=False, tb=False, pads=(0, 0, 0), offsets=(0, 0, 0), out_dtype=None):
    """Return a problem whose rows are `pads` elements apart and whose buffers start with `offsets` unused elements."""
    operands = []
    for rows, columns, transposed, pad, offset in zip(
        (m, k, m), (k, n, n), (ta, tb, False), pads, offsets, strict=True
    ):
        outer, inner = (columns, rows) if transposed else (rows, columns)
        # Matrices of a batch are separated by a padded row.
        operands.append(Operand(inner + pad, (outer + bool(pad)) * (inner + pad), offset, transposed))
    dtype = dtype_of(dtype)
    return Gemm(m, n, k, batch, dtype, dtype if out_dtype is None else dtype_of(out_dtype), *operands)


def small(cls, **settings):
    """Return the stage, with small tiles if the default tiles take seconds to compile on a CPU."""
    tiles = {}
    if issubclass(cls, RegisterTiled):
        tiles = {"bm": 32, "bn": 32, "bk": 8, "tm": 4, "tn": 4, "unroll": 1}
    elif issubclass(cls, CpuLanes):
        tiles = {"tm": 16, "tn": 4}
    return cls(**(tiles | settings))


def smallest(cls):
    """Return the stage with its smallest valid tiles, so that small sizes already need a folded grid."""
    settings = {
        "workgroup_1d": {"size": 1},
        "workgroup_2d": {"bm": 1, "bn": 1},
        "tile_1d": {"wy": 1, "wx": 1},
        "tile_2d": {"wy": 1, "wx": 1, "tm": 1},
        "shared": {"tile": 1},
        "vectorized": {"bm": 4, "bn": 4, "bk": 4},
        "persistent": {"workgroups": 70_000},
        "gemv": {"lanes": 1, "groups": 1, "unroll": 1},
        "subgroup": {"lanes": 1, "ly": 1, "tm": 4, "tn": 4},
        "cpu_lanes": {"lanes": 1, "tm": 1, "tn": 4},
        "cpu_texture": {"lanes": 1, "tm": 1, "tn": 4},
    }.get(cls.name, {})
    if issubclass(cls, RegisterTiled):
        settings |= {"bm": 4, "bn": 4, "bk": 4, "unroll": 4}
    return small(cls, **settings)


def named(value):
    """Return a stage's name as a test's id; other parameters have ids by pytest."""
    return value.name if isinstance(value, type) else str(value)


def every_stage(test):
    """Run `test` for each stage."""
    return pytest.mark.parametrize("cls", LADDER, ids=named)(test)


def other_stages(first, step=2):
    """Run a test for every `step`-th stage from `first` on, and for the others in the long run."""
    return pytest.mark.parametrize("cls", sampled(LADDER, step, first), ids=named)


def every_dtype(test):
    """Run `test` for each element type."""
    return pytest.mark.parametrize("dtype", ["float32", "float16"])(test)
