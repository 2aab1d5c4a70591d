"""Arrays to reduce, laid out in memory as a problem describes, and checks of a kernel's result.

As in products.py, the positions of elements are computed by NumPy, independently of the shaders; gaps hold NaN, and
`UNTOUCHED` around the results.
"""

from contextlib import ExitStack

import numpy as np
import pytest

from webmm import kernels
from webmm.dtypes import I32, dtype_of
from webmm.kernels.reduce.columns import Columns
from webmm.kernels.reduce.per_row import PerRow
from webmm.kernels.reduce.row_tiles import RowTiles
from webmm.kernels.reduce.serial import Serial
from webmm.kernels.reduce.tree import Alone, Subgroup, Tree
from webmm.kernels.reduce.two_pass import ColumnsTwoPass, TwoPass
from webmm.kernels.reduce.vectorized import Vectorized
from webmm.measure.verify import product_bound, sum_bound
from webmm.problems.reduce import OPERATIONS, Reduction, Span

UNTOUCHED = -77
SPARE = 64  # elements after the last one of a buffer

# Every stage, small enough that a short row takes several iterations of all workgroups.
STAGES = [
    Serial(),
    PerRow(8),
    Vectorized(8, 2),
    Tree(32, 1),
    Subgroup(64, 2),
    Alone(8, 2),
    TwoPass(32, 1, 4, "tree"),
    TwoPass(64, 1, 2, "subgroup"),
    TwoPass(8, 1, 8, "alone"),
    Columns(8, 4, 2),
    Columns(8, 1, 2),
    ColumnsTwoPass(8, 2, 1, 4),
    ColumnsTwoPass(8, 1, 2, 2),
    RowTiles(64, 1, 3),
    RowTiles(64, 4, 4),
    RowTiles(128, 8, 1, "subgroup"),
]
STAGES += [cls() for cls in kernels.STAGES["reduce"].values() if cls not in map(type, STAGES)]

every_stage = pytest.mark.parametrize("kernel", STAGES, ids=str)
every_operation = pytest.mark.parametrize("operation", OPERATIONS)


def problem_of(operation, shape, dtype="float32", *, gaps=(0, 0, 0), offset=0, y_offset=0, out_dtype=None):
    """Return the reduction of (outer, length, inner) = `shape`, with `gaps` unused elements after each i, k and j."""
    outer, length, inner = shape
    over_i, over_k, over_j = gaps
    inner_stride = 1 + over_j
    stride = inner * inner_stride + over_k
    span = Span(length * stride + over_i, stride, inner_stride, offset)
    dtype = dtype_of(dtype)
    out = OPERATIONS[operation].out_dtype(dtype) if out_dtype is None else dtype_of(out_dtype)
    return Reduction(operation, outer, length, inner, dtype, out, span, y_offset)


def laid_out(problem, span, x, dtype):
    """Return the buffer of `x` (outer, length, inner) with that layout."""
    p = problem
    i, k, j = np.ogrid[: p.outer, : p.length, : p.inner]
    where = span.offset + i * span.outer_stride + k * span.stride + j * span.inner_stride
    buffer = np.full(where.max() + 1 + SPARE, np.nan if dtype != I32 else -77, dtype.numpy)
    buffer[where] = x
    return buffer


def reduce(device, kernel, problem, x, *other):
    """Return y (outer, inner) of `x` (outer, length, inner) by `kernel`, and the number of stray writes."""
    p = problem
    buffers = [laid_out(p, p.x, x, p.dtype), *(laid_out(p, p.other.span, each, p.other.dtype) for each in other)]
    blank = np.full(p.y_offset + p.results + SPARE, UNTOUCHED, p.out_dtype.numpy)
    with ExitStack() as freed:
        first, y_array, *others = (freed.enter_context(device.array(b)) for b in (buffers[0], blank, *buffers[1:]))
        device.run(kernel, p, first, y_array, *others)
        result = y_array.numpy()
    inside = slice(p.y_offset, p.y_offset + p.results)
    strays = np.count_nonzero(np.delete(result, inside) != UNTOUCHED)
    return result[inside].reshape(p.outer, p.inner), int(strays)


def expected(problem, x):
    """Return the results in float64, or as indices."""
    with np.errstate(all="ignore"):
        return OPERATIONS[problem.operation].exact(np.moveaxis(x, 1, -1))


def whole_numbers(problem, seed=0):
    """Return numbers without rounding errors: small whole numbers, powers of 2 for products, or any int32."""
    rng, shape = np.random.default_rng(seed), (problem.outer, problem.length, problem.inner)
    if problem.dtype == I32:
        return rng.integers(-(2**31), 2**31, shape, np.int32) | 1  # odd: products of even numbers would become 0
    if problem.operation == "prod":
        return rng.choice([0.5, 1, -1, 2], shape, p=[0.1, 0.4, 0.4, 0.1] if shape[1] < 400 else [0, 0.5, 0.5, 0])
    top = 8 if problem.dtype.name == "float32" else 2
    return rng.integers(-top, top + 1, shape)


def tolerance(problem, x):
    """Return the allowed error of each result."""
    p = problem
    if p.operation == "prod" and p.dtype != I32:
        with np.errstate(all="ignore"):
            return product_bound(p.length, p.out_dtype) * np.abs(x.astype(np.float64).prod(axis=1)) + p.out_dtype.tiny
    if not p.rounded_sums:
        return 0.0
    magnitudes = np.abs(x.astype(np.float64)).sum(axis=1)
    if p.operation == "mean":
        magnitudes /= p.length
    if p.operation == "logsumexp":  # log(Σ) has Σ's relative error as absolute error; a driver's exp() is off by 2^-20
        magnitudes = 8 + np.abs(x.astype(np.float64)).max(axis=1)
    return sum_bound(p.length, p.out_dtype) * magnitudes + p.out_dtype.tiny


def check(device, kernel, problem, x=None, seed=0):
    """Assert that results are right, with special values as in NumPy, and that nothing else is written."""
    if kernel.check(problem, device.capabilities):
        return
    x = whole_numbers(problem, seed) if x is None else x
    x = x.astype(problem.dtype.numpy)
    got, strays = reduce(device, kernel, problem, x)
    what = f"{problem} by {kernel}, {problem.dtype.name}, {problem.x}"
    assert not strays, f"{strays} stray writes: {what}"
    want = expected(problem, x)
    with np.errstate(over="ignore"):
        special = ~np.isfinite(want.astype(problem.out_dtype.numpy))
    np.testing.assert_array_equal(got[special], want[special].astype(problem.out_dtype.numpy), err_msg=what)
    off = np.abs(got.astype(np.float64)[~special] - want[~special])
    allowed = np.broadcast_to(tolerance(problem, np.where(np.isfinite(x), x, 0)), want.shape)[~special]
    wrong = off > allowed
    assert not wrong.any(), (
        f"{wrong.sum()} wrong of {wrong.size}, {got[~special][wrong][:3]} for {want[~special][wrong][:3]}: {what}"
    )
