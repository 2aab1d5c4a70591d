"""Reductions of your own by every stage, of any type and size, and ours that are declared in the same way."""

import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from reductions import STAGES, reduce

import webmm
from tests.sampled import sampled
from webmm import Device
from webmm.cases import op_of
from webmm.debug import inspect
from webmm.dtypes import BOOL, F32, I32, dtype_of
from webmm.errors import ProblemError, UnsupportedError
from webmm.measure.bench import measure
from webmm.measure.selftest import prove
from webmm.problems.declared import DECLARATIONS, declared
from webmm.problems.reduce import OPERATIONS, Other, Reduction, Span
from webmm.wgsl.reductions import OWN
from webmm.wgsl.render import render

ROOT = webmm.Reduction(map="x * x + 1", combine="a + b", identity=0, finish="sqrt(v / n)")
PLACE = webmm.Reduction(  # the position of the largest magnitude, the first of equal ones: a float and an int32
    {"top": "float32(abs(x))", "at": "i"},
    {
        "top": "maximum(a.top, b.top)",
        "at": "where(a.top > b.top, a.at, where(b.top > a.top, b.at, minimum(a.at, b.at)))",
    },
    {"top": -1.0, "at": 2**31 - 1},
    "at",
)
LOGSUMEXP = webmm.Reduction(  # the maximum, and the sum relative to it
    {"top": "x", "sum": "1.0"},
    {
        "top": "maximum(a.top, b.top)",
        "sum": "a.sum * exp(a.top - maximum(a.top, b.top)) + b.sum * exp(b.top - maximum(a.top, b.top))",
    },
    {"top": -1e30, "sum": 0.0},
    "top + log(sum)",
)
RNG = np.random.default_rng(9)
COSINE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "cosine.py"))["cosine"]
DOT = webmm.Reduction("x * y", "a + b", 0)
NUMPY_OF_TWO = {
    DOT: lambda x, y: (x * y).sum(-1),
    COSINE: lambda x, y: (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1)),
}
FIRST = {"m": "maximum(a.m, b.m)", "i": "where(a.m > b.m, a.i, b.i)"}
BITS = webmm.Reduction(map="x * x - i", combine="a + b", identity=0)
NUMPY = {
    ROOT: lambda x: np.sqrt((x**2 + 1).mean(-1)),
    PLACE: lambda x: np.argmax(np.abs(x), -1),
    LOGSUMEXP: lambda x: np.log(np.exp(x).sum(-1)),
    DECLARATIONS["var"]: lambda x: x.var(-1),
}
CASES = {  # rows, and columns: with vec4 and without, shorter and longer than a step, in padded buffers
    (3, 301, 1): (0, 0, 0),
    (2, 1024, 1): (0, 0, 0),
    (2, 64, 36): (0, 0, 0),
    (2, 33, 37): (1, 2, 3),
    (9, 5, 1): (2, 0, 0),
}


def problem(operation, shape, gaps=(0, 0, 0), dtype=F32):
    _, length, inner = shape
    step = 1 + gaps[2]
    stride = inner * step + gaps[1]
    out = operation.out_dtype(dtype)
    return Reduction(
        operation.name, *shape, dtype, out, Span(length * stride + gaps[0], stride, step, gaps[0]), gaps[1]
    )


@pytest.mark.parametrize("kernel", sampled(STAGES), ids=str)
def test_every_stage(device, kernel):
    own = list(NUMPY)[STAGES.index(kernel) // 2 % 4 :: 2]  # one or two of four, in turns, also of every other stage
    for shape, gaps in CASES.items():
        x = np.random.default_rng(3).standard_normal(shape).astype(np.float32) + 1
        for given in own:
            p = problem(declared(given), shape, gaps)
            if kernel.check(p, device.capabilities):
                continue
            got, strays = reduce(device, kernel, p, x)
            assert not strays
            want = NUMPY[given](np.moveaxis(x.astype(np.float64), 1, -1))
            np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6, err_msg=f"{kernel} {given}")


@pytest.mark.parametrize("kernel", STAGES, ids=str)
def test_two_arrays_by_every_stage(device, kernel):
    given = (DOT, COSINE)[STAGES.index(kernel) % 2]
    rng = np.random.default_rng(8)
    for shape in ((3, 301, 1), (9, 5, 1), (2, 33, 37)):
        x = rng.standard_normal(shape).astype(np.float32) + 1
        for other in (Span(0, 3, 0, 5), Span.dense(*shape[1:])):  # the same row for all, and a row for each
            y = rng.standard_normal((1, shape[1], 1) if other.offset else shape).astype(np.float32) - 1
            p = replace(
                problem(declared(DECLARATIONS["norm"]), shape), operation=declared(given).name, other=Other(F32, other)
            )
            if kernel.check(p, device.capabilities):
                continue
            got, strays = reduce(device, kernel, p, x, y)
            assert not strays
            want = NUMPY_OF_TWO[given](*(np.moveaxis(each.astype(float), 1, -1) for each in np.broadcast_arrays(x, y)))
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5, err_msg=f"{kernel} {p}")


def test_the_running_values_of_two_arrays(device):
    problem = op_of(f"reduce:{declared(COSINE).name}").problem((3, 45, 1), "float32")
    assert inspect(device, STAGES[2], problem, 1).right


def test_two_arrays_of_any_layout_and_type(device):
    x = RNG.standard_normal((4, 9, 21)).astype(np.float32)
    full, column, row = (RNG.standard_normal(shape).astype(np.float32) for shape in (x.shape, (9, 1), (21,)))
    for y in (full, column, row, np.float32(3)):
        for axis in (2, (0, 1)) if np.ndim(y) > 1 else (0,):
            want = (x.astype(float) * y).sum(axis)
            there = device.array(x), device.array(y) if np.ndim(y) else y
            for a, b in ((x, y), there, (x, there[1])):
                got = webmm.reduce(a, DOT, axis, y=b, device=device)
                np.testing.assert_allclose(np.asarray(got.numpy() if hasattr(got, "numpy") else got), want, atol=1e-4)
    a, b = device.array(x)[:, ::2, 1:], device.array(full).T[1:, ::2].T
    got = webmm.reduce(a, DOT, 1, keepdims=True, y=b).numpy()
    np.testing.assert_allclose(got, (x * full)[:, ::2, 1:].sum(1, keepdims=True), atol=1e-4)
    np.testing.assert_allclose(webmm.reduce(a, COSINE, y=a).numpy(), 1, rtol=1e-6)  # one buffer as both
    half = x.astype(np.float16), full.astype(dtype_of("bfloat16").numpy)
    got = webmm.reduce(half[0], DOT, 2, y=half[1], device=device)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, (half[0].astype(float) * half[1].astype(float)).sum(2), atol=1e-4)
    whole = RNG.integers(-(2**31), 2**31, (2, 3, 77), np.int32)
    with np.errstate(over="ignore"):
        want = (whole[0] * whole[1]).sum(1, dtype=np.int32)
    np.testing.assert_array_equal(webmm.reduce(whole[0], DOT, 1, y=whole[1], device=device), want)
    empty = np.zeros((2, 0), np.float32)
    assert webmm.reduce(empty, DOT, 1, y=empty, device=device).tolist() == [0, 0]


def test_a_plan_replays_with_another_second_array(device):
    x, kept = device.array(np.ones((4, 8), np.float32)), len(device.plans.kept)
    for value in (2, 3, 4):
        y = device.array(np.full(8, value, np.float32))
        assert webmm.reduce(x, DOT, 1, y=y).numpy().tolist() == [8 * value] * 4
    assert len(device.plans.kept) == kept + 1


def test_two_arrays_of_any_size_and_on_several_devices(device):
    x = RNG.standard_normal((3, 5001, 2)).astype(np.float32)
    y = RNG.standard_normal((5001, 1)).astype(np.float32)
    limits = {"max-buffer-size": 2**14, "max-storage-buffer-binding-size": 2**14}
    with Device(device.info.index, limits=limits) as small, Device(device.info.index) as other:
        for axis in (0, 1):
            got = webmm.reduce(x, DOT, axis, y=y, device=small)
            np.testing.assert_allclose(got, (x.astype(float) * y).sum(axis), atol=2e-3)
        many = RNG.standard_normal((1100, 1000)).astype(np.float32)  # enough for both
        for given, more in ((DOT, {"y": y[:1000, 0]}), (ROOT, {})):
            got = webmm.reduce(many, given, 1, devices=[device, other], **more)
            np.testing.assert_array_equal(got, webmm.reduce(many, given, 1, device=device, **more))


def test_a_second_array_that_does_not_suit_is_refused(device):
    x = np.ones((2, 3), np.float32)
    for op, y, words in (
        (DOT, None, "map has y: give the second array"),
        ("sum", x, "sum is of one array; y is for a Reduction whose map has y"),
        (ROOT, x, "a webmm.Reduction is of one array"),
        (DOT, x.astype(np.int32), r"x is float32 and y is int32; cast one, e.g. y.astype\('float32'\)"),
        (DOT, x.astype(np.float64), "x is float32 and y is float64"),
        (DOT, np.ones((2, 2), np.float32), r"y of shape \(2, 2\) does not broadcast to x, of shape \(2, 3\)"),
        (DOT, np.ones((5, 2, 3), np.float32), "does not broadcast to x"),
    ):
        with pytest.raises(ProblemError, match=words):
            webmm.reduce(x, op, 1, y=y, device=device)
    with pytest.raises(ProblemError, match="y is not allowed"):
        webmm.Reduction("x", "a + b * y", 0)


def test_int32_wraps_as_numpy_does(device):
    x = np.random.default_rng(4).integers(-(2**31), 2**31, (3, 301), np.int32)
    with np.errstate(over="ignore"):
        want = (x * x - np.arange(301, dtype=np.int32)).sum(-1, dtype=np.int32)
    np.testing.assert_array_equal(webmm.reduce(x, BITS, 1, device=device), want)
    np.testing.assert_array_equal(webmm.reduce(device.array(x), BITS, 1).numpy(), want)


@pytest.mark.parametrize("name", DECLARATIONS)
def test_ours_have_the_values_and_types_of_numpy(device, name):
    function = {"norm": np.linalg.norm}.get(name, getattr(np, name, None))
    x = np.random.default_rng(5).integers(-3, 4, (4, 9, 21))
    x[1, :, 3] = 0
    x[:, 2, 2] = np.arange(1, 5)
    for dtype in ("float32", "float16", "bfloat16", "int32"):
        given = x.astype(dtype_of(dtype).numpy)
        for axis in (2, 0):
            want = function(x.astype(np.float64), axis=axis)
            got = webmm.reduce(given, name, axis, device=device)
            kind = {"all": "bool", "any": "bool", "count_nonzero": "int32"}.get(name)
            assert got.dtype == (kind or ("float32" if dtype == "int32" else dtype_of(dtype).numpy))
            near = {"float16": 1e-3, "bfloat16": 1e-2}.get(dtype, 1e-6)
            np.testing.assert_allclose(got.astype(np.float64), want, rtol=near, atol=near / 10)
    assert webmm.reduce(given, name, device=device).shape == ()
    if name in ("var", "std"):
        got = getattr(device.array(x.astype(np.float32)), name)(axis=1, keepdims=True).numpy()
        np.testing.assert_allclose(got, function(x, axis=1, keepdims=True), rtol=1e-6, atol=1e-7)
        there, want = device.array(x.astype(np.float32)), function(x, axis=1, ddof=1)
        for found in (function(there, axis=1, ddof=1), getattr(there, name)(1, ddof=1)):
            np.testing.assert_allclose(found.numpy(), want, rtol=1e-6, atol=1e-7)
        with pytest.raises(ProblemError, match="ddof must be a number, not 'one'"):
            there.var(ddof="one")


def test_infinite_identities_and_reserved_words(device):
    x = np.array([[1, -np.inf, 4], [-np.inf] * 3], np.float32)
    top = webmm.Reduction("x", "maximum(a, b)", float("-inf"))
    assert webmm.reduce(x, top, 1, device=device).tolist() == [4, -np.inf]
    both = {"var": "a.var + b.var", "loop": "a.loop + b.loop"}  # words that WGSL reserves
    mean = webmm.Reduction({"var": "x", "loop": "1"}, both, dict.fromkeys(both, 0), "var / loop")
    assert webmm.reduce(x[:, ::2], mean, 1, device=device).tolist() == [2.5, -np.inf]


def test_over_no_elements(device):
    empty = np.zeros((3, 0), np.float32)
    got = {name: webmm.reduce(empty, name, 1, device=device).tolist() for name in ("norm", "all", "any")}
    assert got == {"norm": [0] * 3, "all": [True] * 3, "any": [False] * 3}
    assert np.isnan(webmm.reduce(empty, "var", 1, device=device)).all()


def test_any_size(device):
    x = np.random.default_rng(6).standard_normal((2, 9001, 3)).astype(np.float32) + 10
    limits = {"max-buffer-size": 2**14, "max-storage-buffer-binding-size": 2**14}
    with Device(device.info.index, limits=limits) as small:
        for axis in (0, 1):
            np.testing.assert_allclose(webmm.reduce(x, "var", axis, device=small), x.var(axis, float), rtol=1e-5)
        assert webmm.reduce(x, "count_nonzero", device=small) == x.size
        with pytest.raises(UnsupportedError, match="whose map uses i takes at most"):
            webmm.reduce(x, PLACE, 1, device=small)


def test_equal_declarations_share_a_plan_and_a_shader(device):
    again = webmm.Reduction("x * x + 1", "a + b", 0, finish="sqrt(v / n)")
    assert again == ROOT
    assert again != BITS
    assert hash(again) == hash(ROOT)
    x = device.array(np.ones((4, 8), np.float32))
    for given in (ROOT, again):
        np.testing.assert_allclose(webmm.reduce(x, given, 1).numpy(), np.sqrt(2), rtol=1e-6)
    assert len([key for key in device.plans.kept if ROOT in key]) == 1


@pytest.mark.parametrize(("text", "right", "wrong"), [("x * 3", "f32(3.0)", "f32(3.01)"), ("y * x", "y * x", "x * x")])
def test_the_self_test_finds_a_wrong_shader(device, monkeypatch, text, right, wrong):
    given = webmm.Reduction(map=text, combine="a + b", identity=0)
    p, kernel = op_of(f"reduce:{declared(given).name}").problem((3, 300, 1), "float32"), STAGES[2]
    broken = SimpleNamespace(template=given.template.replace(right, wrong), terms=given.terms)
    monkeypatch.setitem(OWN, given.name, broken)
    assert wrong in render(kernel, p).wgsl
    assert "wrong results" in prove(kernel, p, device)


def test_benchmarks_check_ours(device):
    for name, dtype in (("var", "float32"), ("any", "int32"), (declared(COSINE).name, "float32")):
        op = op_of(f"reduce:{name}")
        record = measure(device, STAGES[2], op.case(device, op.problem((9, 77, 1), dtype)))
        assert record.status == "ok", record.reason


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("x", "a - b", 0), "not commutative"),
        (("x", "a + b + a * a * b * b", 0), "not associative"),
        (("x", "a + b", 1), "identity 1 is none"),
        (("x", "a + c", 0), "c is not allowed"),
        (("x > 0", "a", 0), "use int32"),
        (({"m": "x"}, "a + b", 0), "same keys"),
        (({"m": "x"}, {"m": "a.m + b.m"}, {"k": 0}), "same keys"),
        (({"m": "x"}, {"m": "a.m + b.m"}, {"m": 0}), "finish is missing"),
        (({f"v{i}": "x" for i in range(5)},) * 2 + (dict.fromkeys([f"v{i}" for i in range(5)], 0), "v0"), "1 to 4"),
        (("x", "a + b", "zero"), "must be numbers"),
        (("x", "a + b", float("nan")), "identity nan is none"),
        (("int32(x)", "maximum(a, b)", float("-inf")), "identity -inf is no int32"),
        (("x", "maximum(a, b)", -100), "identity -100 is none"),
        (({"m": "x", "i": "i"}, FIRST, {"m": -1e30, "i": 0}, "i"), "not commutative"),  # of equal ones, any
        (("x", "a + b", 10**400), "must be numbers"),
        ((abs, "a + b", 0), "is no expression"),
        (("x +", "a + b", 0), "not an expression"),
        (("float32(x)", "int32(a + b)", 0), "is i32, but map"),
    ],
)
def test_what_is_no_reduction_is_refused(given, words):
    with pytest.raises(ProblemError, match=words):
        webmm.Reduction(*given)


def test_types_are_refused_in_words(device):
    with pytest.raises(ProblemError, match="computed in float32; cast its operand"):
        webmm.reduce(np.zeros(3), ROOT, device=device)
    with pytest.raises(ProblemError, match=r"a webmm\.Reduction does not take int32.*exp"):
        webmm.reduce(np.zeros(3, np.int32), webmm.Reduction("exp(x)", "a + b", 0), device=device)
    with pytest.raises(ProblemError, match="any of float32 results in bool, not in float32"):
        webmm.reduce(np.zeros(3, np.float32), "any", out_dtype="float32", device=device)
    with pytest.raises(ProblemError, match=r"choose from sum, .*count_nonzero, or pass a webmm\.Reduction"):
        webmm.reduce(np.zeros(3, np.float32), "median", device=device)
    assert declared(BITS).out_dtype(I32) == I32
    assert declared(DECLARATIONS["all"]).out_dtype(F32) == BOOL
    assert not set(DECLARATIONS) & set(OPERATIONS)


DAWN = """
import numpy as np, webmm
x = np.random.default_rng(7).standard_normal((3, 700)).astype(np.float32) + 3
with webmm.Device(engine="dawn") as gpu:
    assert np.allclose(webmm.reduce(x, "std", 1, device=gpu), x.std(1, float), rtol=1e-6)
    assert webmm.reduce(gpu.array(x), "all").numpy()
    dot = webmm.Reduction("x * y", "a + b", 0)
    assert np.allclose(webmm.reduce(x, dot, 1, y=x[0], device=gpu), x @ x[0], rtol=1e-5)
print("right")
"""


def test_on_dawn(swiftshader):
    done = subprocess.run([sys.executable, "-c", DAWN], env=swiftshader, capture_output=True, text=True, timeout=280)
    assert done.stdout == "right\n", done.stdout + done.stderr
