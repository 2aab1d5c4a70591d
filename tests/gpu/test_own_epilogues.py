"""Custom epilogues: results, identity, self-test, and errors if WGSL and NumPy function differ or are invalid."""

import dataclasses

import numpy as np
import pytest

import webmm
from webmm import Epilogue
from webmm.cases import OPS
from webmm.engine.plans import Plans
from webmm.errors import ProblemError, ShaderError, UnsupportedError
from webmm.measure.selftest import prove
from webmm.problems.elementwise import Elementwise
from webmm.problems.gemm import gemm
from webmm.wgsl.epilogues import OWN
from webmm.wgsl.render import render

SQUARE = Epilogue(wgsl="x * x", numpy=np.square)
WHOLE = """
const LIMIT: f32 = 2.0;

fn limited(x: vec4f) -> vec4f {
    return clamp(x, vec4f(-LIMIT), vec4f(LIMIT));
}

fn activate(x: vec4f) -> vec4f {
    if (all(x == vec4f(0.0))) {{
        return vec4f(0.0);
    }}
    return limited(x);
}
"""
CLIP = Epilogue(wgsl=WHOLE, numpy=lambda x: np.clip(x, -2, 2))
STEEP = {
    "cube": Epilogue(wgsl="x * x * x", numpy=lambda x: x**3),
    "exp": Epilogue(wgsl="exp(x)", numpy=np.exp),  # overflows above 88
    "root": Epilogue(wgsl="sqrt(x)", numpy=np.sqrt),  # NaN below 0
    "shifted": Epilogue(wgsl="exp(-x) - 1000.0", numpy=lambda x: np.exp(-x) - 1000),
}


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_custom_epilogues_of_products_and_maps(device, dtype, resident):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-2, 3, (9, 5)).astype(np.float32), rng.integers(-2, 3, (5, 7)).astype(np.float32)
    left, right = device.array(a, dtype), device.array(b, dtype)
    if not resident:
        left, right = left.numpy(), right.numpy()
    for own, f in ((SQUARE, np.square), (CLIP, lambda x: np.clip(x, -2, 2))):
        got = webmm.matmul(left, right, bias=right[0], activation=own, device=device)
        np.testing.assert_array_equal(np.asarray(got).astype(np.float32), f(a @ b + b[0]))
        got = webmm.map(left, own, device=device)
        np.testing.assert_array_equal(np.asarray(got).astype(np.float32), f(a))


def test_a_text_is_compiled_once(monkeypatch):
    first = Epilogue("x * y + 3 * slope", slope=0.5, y=np.ones(3, np.float32))
    monkeypatch.setattr("webmm.wgsl.own.renamed", None)
    again = Epilogue("x * y + 3 * slope", slope=0.25, y=np.ones((2, 3), np.float32))
    assert again.function == first.function
    assert again.numbers == (0.25,)
    with pytest.raises(TypeError):
        Epilogue("x * y + 3 * slope", slope=0.5, y=np.ones(3, np.float16))  # of another type: compiled


def test_map_takes_activations_by_name(device):
    x = np.array([-1.5, 0.0, 2.0], np.float32)
    np.testing.assert_array_equal(webmm.map(x, "relu", device=device), [0, 0, 2])
    for wrong in ("", None, "tan"):
        with pytest.raises(ProblemError, match=r"unknown activation|needs a function"):
            webmm.map(x, wrong, device=device)


def test_each_epilogue_has_its_own_shader():
    plain, square, clip = (
        render(OPS["elementwise"].stages[0](), Elementwise(name, 64, gemm(1, 1, 1).dtype)).wgsl
        for name in ("relu", SQUARE.name, CLIP.name)
    )
    assert len({plain, square, clip}) == 3
    assert f"// {SQUARE.name}\nfn activate(x: vec4f) -> vec4f {{\n    return x * x;\n}}\n" in square
    assert "if (all(x == vec4f(0.0))) {{" in clip, "its braces are not template syntax"


def test_equal_epilogues_share_plans(device, monkeypatch):
    again = Epilogue(wgsl="x * x", numpy=lambda x: x**2)
    assert (again, hash(again), again.name) == (SQUARE, hash(SQUARE), SQUARE.name)
    assert Epilogue(wgsl="x * x", numpy=lambda x: x**3).name != SQUARE.name
    x = device.array(np.ones((4, 4), np.float32))
    for _ in range(2):
        webmm.matmul(x, x, activation=SQUARE)
    monkeypatch.setattr(Plans, "record", lambda *_: pytest.fail("the call is planned already"))
    webmm.matmul(x, x, activation=again)


@pytest.mark.parametrize("name", STEEP)
def test_the_self_test_allows_rounding_errors(device, name):
    own = STEEP[name]
    for dtype in ("float32", "float16", "bfloat16"):
        for problem in (Elementwise(own.name, 100, gemm(1, 1, 1, dtype=dtype).dtype), gemm(64, 64, 256, dtype=dtype)):
            finished = dataclasses.replace(problem, activation=own.name)
            kernel = OPS[problem.op].stages[0]()
            assert prove(kernel, finished, device) == ""


def test_wgsl_that_differs_from_numpy_is_refused(device):
    wrong = Epilogue(wgsl="x * 1.01", numpy=lambda x: x)
    x = np.ones((2, 2), np.float32)
    words = r"epilogue 'x \* 1\.01' and its NumPy function differ: it computes wrong results"
    with pytest.raises(ShaderError, match=words):
        webmm.map(x, wrong, device=device)
    with pytest.raises(ShaderError, match=words):
        webmm.matmul(x, x, activation=wrong, device=device)


@pytest.mark.parametrize("text", ["x * y", "1", "fn activate(x: vec4f) -> f32 { return 1.0; }", "x; } }"])
def test_invalid_wgsl_is_refused(device, text):
    own = Epilogue(wgsl=text, numpy=lambda x: x)
    with pytest.raises(ShaderError) as failure:
        webmm.matmul(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32), activation=own, device=device)
    assert str(failure.value).startswith(f"epilogue {text!r}: ")


def test_products_quote_the_compiler_of_functions_that_do_not_fit_together(device):
    text = "fn half(x: vec4f) -> vec4f {{ return x / 2.0 + {0}; }} fn activate(x: vec4f) -> vec4f {{ return half(x); }}"
    first, second = (Epilogue(wgsl=text.format(n), numpy=lambda x, n=n: x / 2 + n) for n in (0.0, 1.0))
    x = np.ones((2, 2), np.float32)
    with pytest.raises(UnsupportedError, match=r"no kernel can compute .*redefinition of `half`"):
        webmm.matmul(x, x, activation=first.then(second), device=device)


@pytest.mark.parametrize(
    ("numpy", "words"),
    [
        (lambda x: x[:3], "numbers of the same shape"),
        (lambda x: x.astype(str), "must return an array of numbers"),
        (lambda x: x / nonsense, "fails: name 'nonsense' is not defined"),  # noqa: F821
    ],
)
def test_an_invalid_numpy_function_is_refused(numpy, words):
    before = dict(OWN)
    with pytest.raises(ProblemError, match=words):
        Epilogue(wgsl="x", numpy=numpy)
    assert before == OWN
