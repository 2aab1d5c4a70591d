"""Self-tests of every op: a fault in a template is detected before its first use, and another kernel is used."""

import dataclasses
import importlib
import itertools
import re

import numpy as np
import pytest

import webmm
from tests.sampled import sampled
from webmm import Device, choose
from webmm.cases import OPS, expression, op_of
from webmm.cases.base import Trial
from webmm.choose import verdicts
from webmm.dtypes import BF16, F16, F32, I8, I32, U8
from webmm.errors import UnsupportedError
from webmm.kernels import STAGES
from webmm.kernels.elementwise.fused import Fused
from webmm.kernels.elementwise.map import Map
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.kernels.gemm.workgroup_2d import Workgroup2D
from webmm.kernels.normalise.rows import Rows
from webmm.kernels.normalise.strips import Strips
from webmm.kernels.quantized.packed import Packed
from webmm.kernels.quantized.unpacked import Unpacked
from webmm.kernels.reduce.columns import Columns
from webmm.kernels.reduce.per_row import PerRow
from webmm.kernels.reduce.tree import Tree
from webmm.kernels.reduce.two_pass import ColumnsTwoPass, TwoPass
from webmm.kernels.reduce.vectorized import Vectorized
from webmm.kernels.weights.tiles import Tiles
from webmm.kernels.weights.vector import Vector
from webmm.measure import selftest
from webmm.problems.elementwise import Elementwise
from webmm.problems.gemm import gemm
from webmm.problems.normalise import NORMALISATIONS, Normalisation
from webmm.problems.product import Operand
from webmm.problems.quantized import Quantized
from webmm.problems.reduce import OPERATIONS, Reduction, Span
from webmm.problems.weights import WeightOnly

A = (np.arange(33 * 20, dtype=np.float32).reshape(33, 20) % 7) - 3
BYTES = (np.arange(33 * 20).reshape(33, 20) % 251).astype(np.uint8)
WEIGHTS = webmm.quantize_blocks(A, 8, 32)
PACKED = Packed(bm=32, bn=32, bk=8, tn=4, unroll=1)
SMALL_TILES = Tiles(bm=32, bn=32, tm=4, tn=4, unroll=1)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WEBMM_CACHE_DIR", str(tmp_path / "cache"))


def softmax(x):
    e = np.exp(x - x.max(axis=0))
    return e / e.sum(axis=0)


def integers(a):
    return a.astype(np.int64)


# By op: template, right text, wrong text, that kernel and another one, a call, its expected result.
FAULTS = {
    "gemm": (
        *("gemm/tile_2d.wgsl", "}}(a_reg{{ i }}), ", "}}(select(a_reg{{ i }}, 0.0, k == 7u)), "),
        *(Tile2D(), Workgroup2D()),
        *(lambda gpu: webmm.matmul(A.T, A, device=gpu), A.T @ A),
    ),
    "quantized": (
        *("quantized/unpacked.wgsl", "sums += a_reg * b_reg;", "sums += select(a_reg, 0, k == 7u) * b_reg;"),
        *(Unpacked(), PACKED),
        *(lambda gpu: webmm.qmatmul(BYTES, BYTES.T, 1, 3, 1, 5, out_dtype="int32", device=gpu),),
        (integers(BYTES) - 3) @ (integers(BYTES.T) - 5),
    ),
    "weights": (
        *("weights/vector.wgsl", "sums[local_index][0]);", "2.0 * sums[local_index][0]);"),
        *(Vector(8, 1), SMALL_TILES),
        *(lambda gpu: webmm.qmatmul_weights(A.T, WEIGHTS, device=gpu), A.T @ WEIGHTS.dequantize()),
    ),
    "reduce": (
        *("reduce/vectorized.wgsl", '"result(own)"', '"2.0 * result(own)"'),
        *(Vectorized(8, 1), PerRow(8)),
        *(lambda gpu: webmm.reduce(A, "sum", 1, device=gpu), A.sum(axis=1)),
    ),
    "normalise": (
        *("normalise/rows.wgsl", '"v." ~ c', '"2.0 * v." ~ c'),
        *(Rows(1, 4), Strips(8, 1, 4)),
        *(lambda gpu: webmm.softmax(A, 0, device=gpu), softmax(A)),
    ),
}


def plant(templates, template, right, wrong):
    file = templates / template
    assert right in file.read_text()
    file.write_text(file.read_text().replace(right, wrong))


@pytest.mark.parametrize(
    ("template", "right", "wrong", "first", "second", "call", "expected"), FAULTS.values(), ids=FAULTS
)
def test_another_kernel_takes_over(
    templates, monkeypatch, caplog, template, right, wrong, first, second, call, expected
):
    plant(templates, template, right, wrong)
    monkeypatch.setattr(choose, "candidates", lambda *_: {first: "first", second: "second"})
    with Device() as gpu:
        np.testing.assert_allclose(call(gpu), expected, rtol=1e-5, atol=1e-5)
        assert set(gpu.choices.values()) == {second}
        (line,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
        assert line.startswith(f"{first} is not used on {gpu.info}: it computes wrong results: ")
        assert sorted(map(bool, verdicts.verdicts(selftest.verdicts_key(gpu)).values())) == [False, True]


def test_wrong_shaders_give_an_error_and_no_result(templates):
    plant(
        templates,
        "common/stored.wgsl",
        "if type.converted else value }};",
        'if type.converted else "2.0 * (%s)" % value }};',
    )
    x = np.ones((3, 65), np.float32)
    with Device() as gpu:
        for call in (lambda: webmm.gelu(x, device=gpu), lambda: webmm.reduce(x, "sum", 1, device=gpu)):
            with pytest.raises(UnsupportedError, match="it computes wrong results"):
                call()


# Problems with offsets and gaps, for every conditional of the templates


def quantized_problems():
    operands = itertools.product((False, True), ((0, 0), (4, 4), (1, 0)))
    for (transposed, (gap, offset)), out in itertools.product(operands, (I8, U8, I32, F32)):
        a = Operand((300 if transposed else 500) + gap, offset=offset, transposed=transposed)
        b = Operand((500 if transposed else 400) + gap, offset=offset, transposed=transposed)
        plain = Quantized(300, 400, 500, U8, I8, out, a, b, 0, 3, multiplier=(2**30, 40))
        yield plain
        scaled = out != I32
        yield dataclasses.replace(
            plain, zero_a=None, zero_b=None, scaled_rows=scaled, scaled_columns=scaled, bias=True, multiplier=(0, 0)
        )


def weight_problems():
    for dtype, bits, gap in itertools.product((F32, BF16), (4, 8), (0, 4, 1)):
        for m, transposed in ((1, False), (301, True)):
            a = Operand((m if transposed else 333) + gap, offset=gap, transposed=transposed)
            yield WeightOnly(m, 200, 333, dtype, F32, a, bits, 32)


SPANS = {
    "rows": (1, Span(3001, 1, 1, 1)),
    "rows of vec4": (1, Span(3000, 1, 1, 4)),
    "every other": (1, Span(6000, 2, 1)),
    "columns": (36, Span(36 * 3000, 36, 1)),
    "columns with gaps": (36, Span(37 * 3000, 37, 1, 3)),
    "transposed": (36, Span(36 * 3000, 1, 3000)),
}


def reductions():
    for name, (inner, span), dtype in itertools.product(OPERATIONS, SPANS.values(), (F32, BF16, I32)):
        if dtype == I32 and not OPERATIONS[name].integers:
            continue
        yield Reduction(name, 50, 3000, inner, dtype, OPERATIONS[name].out_dtype(dtype), span, 3)


def normalisations():
    for name, (inner, span), scaled in itertools.product(NORMALISATIONS, SPANS.values(), (False, True)):
        operation, scaled = NORMALISATIONS[name].operation, scaled and name != "softmax"
        yield Normalisation(operation, 50, 3000, inner, F32, F32, span, 4, name, scaled, scaled, 1e-5)


PROBLEMS = {
    "quantized": (list(quantized_problems()), (Unpacked(), PACKED)),
    "weights": (list(weight_problems()), (Vector(8, 1), SMALL_TILES)),
    "reduce": (
        list(reductions()),
        (PerRow(8), Vectorized(8, 2), Tree(32, 1), TwoPass(32, 1, 4), Columns(8, 2, 1), ColumnsTwoPass(8, 1, 1, 4)),
    ),
    "normalise": (
        list(normalisations()),
        (Rows(32, 1), Rows(32, 4), Rows(32, 1, splits=4), Strips(8, 1, 4), Strips(8, 1, 4, 4)),
    ),
    "elementwise": (
        [Elementwise(name, 99_999 - 3 * vec, F32, 4, 4 * vec) for name in ("gelu", "silu") for vec in (0, 1)],
        (Map(), Map(32, 2)),
    ),
}


@pytest.mark.parametrize("op", sampled(PROBLEMS))
def test_right_shaders_pass_and_small_errors_do_not(device, op):
    problems, kernels = PROBLEMS[op]
    proven = set()
    for problem, kernel in itertools.product(problems, kernels):
        if kernel.check(problem, device.capabilities):
            continue
        small = next(selftest.stand_ins(kernel, problem, device), None)
        assert small is not None, (kernel, problem)
        assert small.flops <= problem.flops
        text = verdicts.text_of(kernel, small, device)
        assert text == verdicts.text_of(kernel, problem, device)
        if text in proven or len(proven) >= 12:
            continue
        proven.add(text)
        assert selftest.prove(kernel, small, device) == "", (kernel, problem)
        trial = OPS[op].trial(small)
        off = trial.expected + 2 * (np.abs(trial.expected) * 0.02 + trial.allowed + (op == "quantized"))
        for at in (0, -1):
            got = trial.expected.astype(np.float64)
            got.reshape(-1)[at] = off.reshape(-1)[at]
            assert selftest._wrong(got, trial).count == 1


# By what they compute: template, right and wrong text, kernel, problem, what the self-test says
ENDS = {
    "log of 0": (
        *(
            "elementwise/functions_of.wgsl",
            "let real = select(finite, {{ f }}(bitcast<f32>(0xff800000u ^ params.zero)), infinite);",
            "let real = max(finite, {{ f }}(-88.0));",
        ),
        *(Fused(), expression.expression("log(x0)", F32, F32, (1, 1, 1, 512)), "expected -inf, got -88"),
    ),
    "exp of NaN": (
        *(
            "elementwise/functions_of.wgsl",
            'select(exp(x), x, {{ is_nan("x") }})',
            'select(exp(x), {{ f }}(), {{ is_nan("x") }})',
        ),
        *(Fused(), expression.expression("exp(x0)", F32, F16, (1, 1, 1, 512)), "expected nan, got 0"),
    ),
    "logsumexp of -inf": (
        *(
            "reduce/operations/logsumexp.wgsl",
            "part.top + log(part.sum), params.outside",
            "part.top + log(part.sum), -MOST",
        ),
        *(PerRow(8), op_of("reduce", "logsumexp").problem((5, 300, 1), "float32"), r"expected -inf, got -3\.4"),
    ),
    "softmax of inf": (
        *("common/normalise.wgsl", "0x7fc00000u, all.sum > MOST", "0x7fc00000u, all.sum > MOST && false"),
        *(Rows(32, 1), op_of("normalise", "softmax").problem((5, 300, 1), "float32"), "expected nan"),
    ),
    "silu of the largest float": (
        *("epilogues/silu.wgsl", "return x /", "return min(x, vec4f(3e38)) /"),
        *(Map(), Elementwise("silu", 500, F32), r"expected 3.40282e\+38, got 3e\+38"),
    ),
}


@pytest.mark.parametrize(("template", "right", "wrong", "kernel", "problem", "words"), ENDS.values(), ids=ENDS)
def test_ends_of_the_range_are_tested(device, templates, template, right, wrong, kernel, problem, words):
    assert selftest.prove(kernel, problem, device) == ""
    plant(templates, template, right, wrong)
    importlib.import_module("webmm.wgsl.render")._render.cache_clear()
    device.launches.clear()
    assert re.search(words, selftest.prove(kernel, problem, device))


def test_an_infinite_result_must_be_infinite():
    trial = Trial({}, np.array([np.inf, np.nan, 1.0, 7.0]), np.array([1e9, 0.0, 0.1, np.inf]))
    assert selftest._wrong(np.array([np.inf, np.nan, 1.05, np.nan]), trial) is None
    assert selftest._wrong(np.array([3e38, 5.0, 1.05, 0.0]), trial).count == 2


def test_a_missing_element_is_detected():
    for name, dtype in itertools.product(OPERATIONS, (F32, I32)):
        if dtype not in op_of("reduce", name).dtypes:
            continue
        problem = op_of("reduce", name).problem((3, 1000, 1), dtype.name)
        trial = OPS["reduce"].trial(problem)
        shorter = OPERATIONS[name].exact(trial.buffers["x"].reshape(3, 1000)[:, :-1])
        assert selftest._wrong(shorter.reshape(3, 1), trial), (name, dtype)


@pytest.mark.parametrize("op", STAGES)
def test_every_stage_has_a_stand_in_for_each_example(device, op):
    for stage, (words, problem) in itertools.product(
        STAGES[op].values(), itertools.islice(OPS[op].examples(), 0, None, 3)
    ):
        kernel = stage()
        scaled_sums = op == "quantized" and problem.out_dtype == I32 and problem.scaled_rows  # no public call uses it
        if kernel.unsuited(problem) or "naga" in kernel.not_in or scaled_sums or stage.name == "gemv":
            continue
        small = next(selftest.stand_ins(kernel, problem, device), None)
        assert small is not None, (kernel, words)
        assert small.flops <= max(2**31, problem.flops // 8)


def test_refusals_under_low_limits_are_not_kept_for_the_driver():
    """A refusal due to lowered limits is no verdict on the shader, and is not stored for the driver."""
    a = np.ones((33, 35), np.float32)
    with Device() as gpu:
        usual = choose.choose(gemm(33, 33, 35), gpu)
        known = verdicts.verdicts(selftest.verdicts_key(gpu))
    with Device(limits={"max-storage-buffers-per-shader-stage": 1}) as low:
        with pytest.raises(UnsupportedError, match="refused"):
            webmm.matmul(a, a.T.copy(), device=low)
        assert selftest.verdicts_key(low) != selftest.verdicts_key(gpu)
        assert verdicts.verdicts(selftest.verdicts_key(low)) == {}
        assert all(low.verdicts.values())
    with Device() as gpu:
        assert verdicts.verdicts(selftest.verdicts_key(gpu)) == known
        assert choose.choose(gemm(33, 33, 35), gpu) == usual
