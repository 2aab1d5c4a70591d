"""Problems, the memory layout of operands, and element types."""

import dataclasses
import math
import sys

import ml_dtypes
import numpy as np
import pytest

from webmm.choose.gemm import asked
from webmm.cut.dispatches import dispatches
from webmm.cut.pieces import Limits
from webmm.dtypes import BF16, DTYPES, F16, F32, INTEGERS, MATRIX_DTYPES, dtype_of
from webmm.errors import ConfigError, ProblemError
from webmm.kernels.gemm.naive import Naive
from webmm.problems.gemm import Gemm, gemm
from webmm.problems.normalise import Normalisation
from webmm.problems.product import Operand
from webmm.problems.reduce import Reduction, Span
from webmm.wgsl.render import params_bytes


@pytest.mark.parametrize("name", ["m", "n", "k", "batch"])
@pytest.mark.parametrize("size", [0, -1])
def test_sizes_below_one_are_refused(name, size):
    sizes = {"m": 2, "n": 3, "k": 4, "batch": 1, name: size}
    with pytest.raises(ProblemError, match=f"{name} must be at least 1, not {size}"):
        gemm(sizes.pop("m"), sizes.pop("n"), sizes.pop("k"), **sizes)


def test_dense_row_major_is_the_default():
    problem = gemm(2, 3, 4)
    assert (problem.a, problem.b, problem.c) == (Operand(4, 8), Operand(3, 12), Operand(3, 6))
    assert problem.dtype == problem.out_dtype == F32


def test_transposed_operands_swap_rows_and_columns():
    problem = gemm(2, 3, 4, transpose_a=True, transpose_b=True)
    assert problem.a == Operand(2, 8, transposed=True)
    assert problem.b == Operand(4, 12, transposed=True)
    assert problem.c == Operand(3, 6)


def test_result_dtype_defaults_to_the_operands_dtype():
    assert gemm(1, 1, 1, dtype="float16").out_dtype == F16
    mixed = gemm(1, 1, 1, dtype="float16", out_dtype="float32")
    assert (mixed.dtype, mixed.out_dtype) == (F16, F32)
    assert mixed.features == {"shader-f16"}
    assert gemm(1, 1, 1, out_dtype="f16").features == {"shader-f16"}
    assert gemm(1, 1, 1).features == frozenset()


def test_end_is_one_past_the_last_element():
    def last(operand, rows, columns, batch):
        row, column = (columns, rows) if operand.transposed else (rows, columns)
        return operand.offset + (batch - 1) * operand.batch_stride + (row - 1) * operand.ld + column - 1

    for transposed in (False, True):
        operand = Operand(ld=9, batch_stride=100, offset=7, transposed=transposed)
        assert operand.end(4, 5, 3) == last(operand, 4, 5, 3) + 1
    assert Operand(5).end(4, 5, 1) == 20


@pytest.mark.parametrize(
    ("operand", "expected"),
    [
        (Operand(8), True),
        (Operand(12, 40, 4), True),
        (Operand(9), False),
        (Operand(8, batch_stride=2), False),
        (Operand(8, offset=1), False),
        (Operand(8, transposed=True), False),  # the contiguous length is then 6
    ],
)
def test_vec4_needs_lengths_and_offsets_divisible_by_four(operand, expected):
    assert operand.vectorizable(6, 8) is expected


def test_a_window_is_aligned_to_256_bytes_and_covers_every_element():
    for dtype, step in ((F32, 64), (F16, 128)):
        problem = Gemm(
            3, 4, 5, 1, dtype, F32, Operand(5, offset=1000), Operand(4), Operand(4, offset=64), bias="column"
        )
        a, b, c, bias = problem.buffers()
        assert (a.first, a.start, a.end) == (1000 // step * step, 1000, 1015)
        assert a.offset % 256 == 0
        assert a.offset + a.nbytes == -(-1015 * dtype.itemsize // 16) * 16
        assert (b.first, c.first, bias.first) == (0, 64, 0)
        within = problem.within(tuple(extent.first for extent in problem.buffers()))
        assert (within.a.offset, within.b.offset, within.c.offset) == (1000 % step, 0, 0)
    far = Gemm(1, 1, 1, 1, F32, F32, Operand(1, offset=2**40 + 7), Operand(1), Operand(1))
    assert far.buffers()[0].nbytes == 32
    assert far.within((2**40, 0, 0)).a.offset == 7


def test_work_is_counted_over_the_batch():
    problem = gemm(2, 3, 4, batch=5, dtype="float16", out_dtype="float32")
    assert problem.flops == 2 * 2 * 3 * 4 * 5
    assert problem.bytes == 5 * (2 * (2 * 4 + 4 * 3) + 4 * 2 * 3)
    assert str(problem) == "2x3x4"


def test_dtypes_agree_with_numpy():
    for name, dtype in DTYPES.items():
        assert (dtype.name, dtype.itemsize) == (name, dtype.numpy.itemsize)
    for dtype in MATRIX_DTYPES:
        info = ml_dtypes.finfo(dtype.numpy)
        assert dtype.numpy == info.dtype
        assert dtype.eps == info.eps
        assert dtype.tiny == float(info.smallest_subnormal)


def test_dtypes_have_wgsl_array_types():
    assert [dtype.array(vector=True) for dtype in (F32, F16, BF16)] == [
        "array<vec4<f32>>",
        "array<vec4<f16>>",
        "array<vec2u>",
    ]
    assert [dtype.array(vector=False, shared=True) for dtype in (F32, BF16)] == ["array<f32>", "array<atomic<u32>>"]
    eighth = dataclasses.replace(BF16, itemsize=1)
    assert (eighth.array(vector=True), eighth.array(vector=False), eighth.per_word) == ("array<u32>", "array<u32>", 4)


def test_a_dtype_of_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    assert dtype_of("bfloat16") is dtype_of("bf16") is BF16
    with pytest.raises(ConfigError, match="bfloat16 arrays need ml_dtypes: pip install ml_dtypes"):
        BF16.numpy  # noqa: B018 (reading it is what raises)


@pytest.mark.parametrize("spec", ["float16", "f16", np.float16, np.dtype("<f2"), F16])
def test_dtype_spellings(spec):
    assert dtype_of(spec) is F16


@pytest.mark.parametrize("spec", ["longdouble", np.int64, object, "complex64", ">c8"])
def test_unsupported_dtypes_say_what_to_cast_to(spec):
    with pytest.raises(ProblemError, match="cast to one of float32, float16, bfloat16"):
        dtype_of(spec)


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda dtype: dtype.name)
def test_integer_dtypes_are_refused_by_float_products(dtype):
    assert dtype_of(dtype.name) is dtype
    with pytest.raises(ProblemError, match="cast to one of float32, float16, bfloat16"):
        gemm(1, 1, 1, dtype=dtype)


@pytest.mark.parametrize("spec", ["float99", 3.5])
def test_nonsense_is_refused_as_dtype(spec):
    with pytest.raises(ProblemError, match="is not a dtype"):
        dtype_of(spec)


def test_problems_compare_their_numbers_by_bits():
    """Uniforms, tokens of launches and parts of products are cached by their problem."""
    zero, minus, nan = (dataclasses.replace(gemm(2, 3, 4), alpha=x) for x in (0.0, -0.0, float("nan")))
    assert zero != minus
    assert len({zero, minus, dataclasses.replace(minus), nan, dataclasses.replace(nan, alpha=float("nan"))}) == 3
    assert params_bytes(Naive(), zero) != params_bytes(Naive(), minus)
    most = Limits(2**30, 2.0**50)
    assert [math.copysign(1, dispatches(each, most, asked)[0].problem.alpha) for each in (zero, minus)] == [1, -1]
    norm = Normalisation("sum", 2, 3, 1, F32, F32, Span(3, 1, 1), epsilon=0.0)
    assert norm != dataclasses.replace(norm, epsilon=-0.0)
    assert norm == dataclasses.replace(norm)


def test_buffers_are_described_once_and_those_of_a_base_class_apart():
    problem = Normalisation("sum", 3, 8, 1, F32, F32, Span.dense(8, 1), function="layer_norm", weight=True)
    extents = problem.buffers()
    assert problem.buffers() is extents
    assert [extent.name for extent in extents] == ["x", "y", "weight"]
    assert [extent.name for extent in Reduction.buffers(problem)] == ["x", "y"]
    assert problem.buffers() is extents
