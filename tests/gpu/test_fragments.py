"""Fragments of the matrix units of every vendor, emulated: each pair of shape, types, subgroup size and layout.

No driver of the tests has matrix units. Trials are those of the self-test, against float64 or integers in NumPy.
"""

import dataclasses
import itertools

import pytest
import test_byte_matrix_unit
from emulation import emulated, stand_in

from tests.sampled import covered, pairwise
from webmm.cases.fragments import BYTE_TYPES, BYTES, FLOATS, LANES, SPELLINGS, settings
from webmm.cases.quantized import scheme_of
from webmm.dtypes import F16, F32, I8, I32, U8
from webmm.kernels.gemm.matrix_unit import MatrixUnit, MatrixUnitF32
from webmm.kernels.quantized.matrix_unit import MatrixUnit as ByteUnit
from webmm.kernels.weights.matrix_unit import MatrixUnit as WeightUnit
from webmm.measure.selftest import prove
from webmm.problems.gemm import gemm
from webmm.problems.product import LAYOUTS, Operand, transposes
from webmm.problems.quantized import describe
from webmm.problems.weights import BITS, WeightOnly


def small(cls, shape, lanes, problem_of, **others):
    """Return the stage with two subgroups of at least 2 × 2 fragments of C each, and a problem that it suits.

    `problem_of` takes sizes m, n, k: of several tiles, and of parts of them.
    """
    m, n, _ = shape
    sizes = itertools.product((1, 2, 4), (1, 2, 4), (8, 16, 32, 64, 128))
    for down, across, bk in sorted(sizes, key=lambda each: (each[0] * each[1], each[2])):
        sm, sn = 2 * down * m, 2 * across * n
        tiles = {"bm": sm, "bn": 2 * sn, "bk": bk, "sm": sm, "sn": sn, "group": 1}
        kernel = cls(**tiles, **settings(shape, lanes), **others)
        problem = problem_of(kernel.bm + 3, kernel.bn + 5, kernel.bk + 7)
        if kernel.invalid() is None and kernel.unsuited(problem) is None:
            return kernel, problem
    raise AssertionError(f"no small tiles for {shape} with {lanes} lanes")


def prove_it(device, monkeypatch, kernel, problem, emulate=emulated):
    stand_in(device, monkeypatch, kernel, emulate=emulate)
    assert kernel.check(problem, device.capabilities) is None
    assert prove(kernel, problem, device) == "", kernel


STAGES = [(MatrixUnit, F16), (MatrixUnitF32, F32), (MatrixUnitF32, F16)]
FINISHES = [("float32", "", ""), ("float16", "column", "relu"), ("float32", "row", "gelu")]
PRODUCTS = pairwise(FLOATS, STAGES, LANES, LAYOUTS, FINISHES, SPELLINGS)
QUANTISED = pairwise(BYTES, BYTE_TYPES, LANES, LAYOUTS, (F32, I32, I8))
WEIGHTS = pairwise(FLOATS, BITS, LANES, (False, True))


@pytest.mark.parametrize(("shape", "stage", "lanes", "layout", "finish", "spelling"), covered(PRODUCTS))
def test_products(device, monkeypatch, shape, stage, lanes, layout, finish, spelling):
    (cls, dtype), (out, bias, activation) = stage, finish

    def product(m, n, k):
        plain = gemm(m, n, k, dtype=dtype, out_dtype=out, **transposes(layout))
        return dataclasses.replace(plain, bias=bias, activation=activation)

    prove_it(device, monkeypatch, *small(cls, shape, lanes, product, spelling=spelling))


@pytest.mark.parametrize(("shape", "types", "lanes", "layout", "out"), covered(QUANTISED))
def test_quantised_products(device, monkeypatch, shape, types, lanes, layout, out):
    operands, sums = types
    a, b = (U8, U8) if operands == "u8" else (I8, U8)

    def product(m, n, k):
        stored = gemm(m, n, k, **transposes(layout))
        return describe(m, n, k, (a, stored.a), (b, stored.b), scheme_of(n, k, a, b, out), out)[0]

    made = small(ByteUnit, shape, lanes, product, operands=operands, sums=sums)
    prove_it(device, monkeypatch, *made, test_byte_matrix_unit.emulated)


@pytest.mark.parametrize(("shape", "bits", "lanes", "transposed"), covered(WEIGHTS))
def test_weights(device, monkeypatch, shape, bits, lanes, transposed):
    def product(m, n, k):
        a = Operand(m if transposed else k, transposed=transposed)
        return WeightOnly(m, n, k, F16, F16, a, bits, 32)

    prove_it(device, monkeypatch, *small(WeightUnit, shape, lanes, product))
