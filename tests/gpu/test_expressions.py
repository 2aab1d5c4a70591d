"""Elementwise expressions: every dtype and layout, one dispatch and shader, NumPy's functions, self-tests, pickling."""

import copy
import functools
import pickle
import re

import numpy as np
import pytest

import webmm
from webmm import Device, choose
from webmm.cases import expression as cases
from webmm.dtypes import BOOL, F16, F32, I32
from webmm.errors import ProblemError
from webmm.kernels.elementwise.fused import Fused
from webmm.measure.selftest import prove, stand_ins
from webmm.problems.expression import Expression, Strided
from webmm.wgsl.compiler import REAL, SIGNATURES
from webmm.wgsl.expressions import FUNCTIONS, compiled, kind_of, reference

RNG = np.random.default_rng(3)


@pytest.mark.parametrize(("words", "problem"), [*cases.examples()], ids=lambda x: x if isinstance(x, str) else "")
def test_examples(device, words, problem):
    assert prove(Fused(), problem, device) == ""
    assert [prove(Fused(), small, device) for small in stand_ins(Fused(), problem, device)] == [""]


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("i % params.lengths.w);", "i / params.lengths.w);", "-x0 float32 float32 broadcast"),
        ("_offset + i) / 4u] = ", "_offset + i) / 8u] = ", "-x0 float32 float32 dense"),
        ("moved = min", "moved = 1u + min", "take"),
    ],
)
def test_the_self_test_detects_wrong_shaders(device, templates, right, wrong, words):
    file = templates / "elementwise/fused.wgsl"
    assert right in file.read_text()
    file.write_text(file.read_text().replace(right, wrong))
    device.launches.clear()  # a launch of the unedited shader may be cached for buffers from the pool
    assert "computes wrong results" in prove(Fused(), dict(cases.examples())[words], device)


REALS = np.array([1, -2, 0.5], np.float32)
WHOLES = np.array([2**31 - 1, -(2**31), 7], np.int32)


@pytest.mark.parametrize(
    ("text", "x", "expected"),
    [
        ("exp(x * 300)", REALS, [np.inf, 0, np.inf]),
        ("x * 100000.0", REALS.astype(np.float16), [np.inf, -np.inf, 50000]),
        ("x * x * 1e38 * x", 2 * REALS, [np.inf, -np.inf, 1e38]),
        ("x + exp(100.0)", REALS, [np.inf] * 3),
        ("x + 1e999", REALS, [np.inf] * 3),
        ("x / 0.0", REALS, [np.inf, -np.inf, np.inf]),
        ("x / (x - x)", REALS, [np.inf, -np.inf, np.inf]),
        ("x / -0.0", REALS, [-np.inf, np.inf, -np.inf]),
        ("x * 1e-30 * 0.0 + 1/4", REALS, [0.25] * 3),
        ("where(~(1 < 2), x, -x)", REALS, -REALS),
        ("where(x > 0, 1, 0) + True", REALS, [2, 1, 2]),
        ("isnan(log(x))", REALS, [False, True, False]),
        ("log(x * 0) ** 0.5", REALS, [np.inf] * 3),  # as in C: NumPy 2.4 has NaN
        ("log(x * 0)", abs(REALS), [-np.inf] * 3),
        ("(exp(x) * exp(-x) - 1) * 1e6 > 1e5", REALS, [False] * 3),  # rounding errors grow
        ("x + 1e8 - 1e8 < 10", REALS, [True] * 3),  # compilers may reorder the sum
        ("int32(x * 1e10)", REALS, [2**31 - 1, -(2**31), 2**31 - 1]),
        ("int32(x / 0.0)", REALS, [2**31 - 1, -(2**31), 2**31 - 1]),
        ("int32(x) + bool(x)", np.array([np.nan, np.inf, -1.9], np.float32), None),
        ("int32(log(x))", REALS, [0, 0, 0]),
        ("x + -2147483648", WHOLES, [-1, 0, -(2**31) + 7]),
        ("x * x - abs(x)", WHOLES, [-(2**31) + 2, -(2**31), 42]),
        ("x + False", WHOLES, WHOLES),
        ("+".join(["x"] * 100), REALS, 100 * REALS),
    ],
)
def test_results_at_the_ends_of_the_range(device, text, x, expected):
    call = lambda: webmm.elementwise(text, x=device.array(x)).numpy()  # noqa: E731
    if expected is None:
        with pytest.raises(ProblemError, match="bool and i32 cannot be combined"):
            call()
        return
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(call().astype(np.float64), np.array(expected, np.float64), rtol=1e-3)


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("other", ["y", "0", "-0.0", "1"])
def test_a_comparison_with_nan_is_false(device, sign, other):
    """And where() gives NaN for it, of which NVIDIA's driver made a maximum or minimum that lost it."""
    ends = np.array([np.nan, -np.nan, np.inf, -np.inf, 1, -1, 0, -0.0], np.float32)
    x, y = (each.reshape(-1) for each in np.meshgrid(ends, ends))
    z = y if other == "y" else np.float32(other)
    holds = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}[sign]
    for text, expected in (
        (f"where(x {sign} {other}, {other}, x)", np.where(holds(x, z), z, x)),
        (f"where({other} {sign} x, x, {other})", np.where(holds(z, x), x, z)),
    ):
        used = {"x": device.array(x), "y": device.array(y)} if other == "y" else {"x": device.array(x)}
        np.testing.assert_array_equal(webmm.elementwise(text, **used).numpy(), expected)


@pytest.mark.parametrize(
    ("text", "x", "words"),
    [
        ("x + 3000000000", WHOLES, "3000000000 does not fit int32"),
        ("x + 1.5", WHOLES, "f32 and i32 cannot be combined"),
        ("x * 1e39", REALS, "1e\\+39 does not fit float32"),
        ("x + 1" + "0" * 400, REALS, "an integer of 1,329 bits does not fit float32"),
        ("x + 1" + "0" * 5000, REALS, "is not an expression: Exceeds the limit"),
        ("x + 1/0", REALS, "division by zero in a part without operands"),
        ("x + 10**400", REALS, "an integer of 1,329 bits does not fit float32"),
        ("x + 9**9**9", REALS, r"9 \*\* 387420489 is too large in a part without operands"),
        ("x + (-8)**0.5", REALS, r"-8 \*\* 0.5 is not real"),
        ("x << 1", REALS, "x0 << 1 is not defined for f32"),
        ("sin(x)", WHOLES, r"sin\(\) is not defined for i32; cast its operands, e.g. x.astype"),
        ("0 < x < 1", REALS, r"write \(a < b\) & \(b < c\)"),
        ("x > 0 and x < 1", REALS, "use & and | instead of and, or"),
        ("not x", REALS, "use ~ of booleans instead of not"),
        ("x + nan", REALS, "nan was not given; the operands are x"),
        ("x + 1j", REALS, "1j is not allowed"),
        ("x \0", REALS, "is not an expression"),
        (5, REALS, "5 is not an expression"),
        ("+".join(["x"] * 500), REALS, "is too large: 999 parts, 500 levels deep, of at most 2,000 and 120"),
        ("+".join(["x"] * 5000), REALS, "is too large|is not an expression"),
        ("-" * 80 + "x", REALS, "more than 120 levels of brackets"),
        ("(" * 300 + "x" + ")" * 300, REALS, "is not an expression: too many nested parentheses"),
    ],
)
def test_invalid_expressions_have_one_clear_error(device, text, x, words):
    with pytest.raises(ProblemError, match=words) as caught:
        webmm.elementwise(text, x=x, device=device)
    assert len(str(caught.value)) < 400


def test_a_number_that_does_not_fit_is_an_error(device):
    for x, number in ((WHOLES, 3000000000), (REALS, 1e39), (REALS, 10**5000)):
        with pytest.raises(ProblemError, match=r"y = .* does not fit"):
            webmm.elementwise("x + y", x=x, y=number, device=device)


LEAVES = {"f32": ("x0", "x0", "x1", "1.5", "0.0", "1e38", "-1e-40", "3"), "i32": ("x2", "x2", "-2147483648", "7")}
FORMS = {
    "f32": (
        *("(f + f)", "(f - f)", "(f * f)", "(f / x1)", "exp(f)", "log(f)", "tanh(f)", "sqrt(abs(f))", "float32(i)"),
        *("maximum(f, f)", "minimum(f, -f)", "where(b, f, f)"),
    ),
    "i32": ("(i + i)", "(i - i)", "(i * x2)", "abs(-x2)", "maximum(i, x2)", "where(b, i, x2)", "int32(f)", "int32(b)"),
    "bool": ("(f < f)", "(i >= i)", "(f != f)", "(b & ~b)", "(b | b)", "isnan(f)", "bool(i)"),
}
SHORT = {"f": "f32", "i": "i32", "b": "bool"}


def drawn(rng, kind, depth):
    """Return a random expression."""
    if kind in LEAVES and (depth == 0 or rng.random() < 0.1):
        return rng.choice(LEAVES[kind])
    form = rng.choice(FORMS[kind])
    return re.sub(r"\b[fib]\b", lambda found: drawn(rng, SHORT[found[0]], max(depth - 1, 0)), str(form))


def test_random_expressions_are_within_their_intervals(device):
    rng, dtypes = np.random.default_rng(5), (F32, F16, I32)
    kinds = tuple((f"x{i}", kind_of(dtype)) for i, dtype in enumerate(dtypes))
    line = (0, 0, 0, 1)
    for i in range(60):
        text = drawn(rng, ("f32", "i32", "bool")[i % 3], 2)
        found = compiled(text, kinds)
        out = {"f32": F16 if i % 2 else F32, "i32": I32, "bool": BOOL}[found.kind]
        operands = tuple(Strided(dtype, line) for dtype in dtypes)
        problem = Expression(text, found.wgsl, found.kind, (1, 1, 1, 252), operands, Strided(out, line))
        assert prove(Fused(), problem, device) == "", text


SPECIAL = [0.0, -0.0, 1, -1, 0.5, 2, -2, 3, np.inf, -np.inf, np.nan, 1e5, -1e5, 3e38, 1e-5, 0.35, -0.4, 2.5, 1e10]
UNARY = [
    name for name, x in SIGNATURES.items() if x.arity == 1 and REAL in x.wgsl and not x.result and "lu" not in name
]
BINARY = ["x // y", "x % y", "x ** y", *(f"{name}(x, y)" for name, x in SIGNATURES.items() if x.arity == 2)]
WHOLE_ONES = ["x // y", "x % y", "x ** y", "x << y", "x >> y", "x & y", "x | y", "x ^ y", "~x", "sign(x)"]


def selected(texts):
    """Return one expression of all texts, of which i selects one."""
    return functools.reduce(lambda rest, x: f"where(i == {x[0]}, {x[1]}, {rest})", enumerate(texts), "x")


@pytest.mark.parametrize("texts", [[f"{name}(x)" for name in UNARY], BINARY, WHOLE_ONES], ids=lambda x: x[0])
def test_every_function_and_operator_is_numpys(device, texts):
    """In one shader, for special values and others."""
    rng = np.random.default_rng(1)
    if texts is WHOLE_ONES:
        x, y = (rng.choice([0, 1, -1, 2, -2, 7, 31, 32, -40, 1000, 2**31 - 1, -(2**31)], 300) for _ in range(2))
        x, y = x.astype(np.int32), y.astype(np.int32)
    else:
        x, y = (np.append(rng.choice(SPECIAL, 300), rng.normal(0, s, 100)).astype(np.float32) for s in (30, 3))
    at = np.arange(len(texts), dtype=np.int32)[:, None]
    got = webmm.elementwise(selected(texts), x=x, i=at, device=device, **({"y": y} if "y" in "".join(texts) else {}))
    wide = {"x": x.astype(np.float64), "y": y.astype(np.float64)} if x.dtype == np.float32 else {"x": x, "y": y}
    with np.errstate(all="ignore"):
        for row, text in zip(got, texts, strict=True):
            expected = np.asarray(reference(text, wide)).astype(x.dtype)
            np.testing.assert_allclose(row, expected, rtol=3e-5, atol=1e-37, err_msg=text)
            zero = (expected == 0) & ("logaddexp" not in text)  # of a sum, a zero of either sign
            np.testing.assert_array_equal(np.signbit(row[zero]), np.signbit(expected[zero]), err_msg=text)


def test_one_dispatch_and_one_shader_for_any_names_and_numbers(device, monkeypatch):
    ran, run = [], choose.run
    monkeypatch.setattr(
        choose, "run", lambda problem, *rest, **more: (ran.append(problem), run(problem, *rest, **more))[1]
    )
    x, y = (device.array(RNG.random((40, 30)).astype(np.float32)) for _ in range(2))
    got = webmm.elementwise("where(a > b, exp(a) * s, sqrt(b)) + 1", a=x, b=y, s=3)
    a, b = x.numpy(), y.numpy()
    np.testing.assert_allclose(got.numpy(), np.where(a > b, np.exp(a) * 3, np.sqrt(b)) + 1, rtol=1e-5)
    webmm.elementwise("where(p > q, exp(p) * r, sqrt(q)) + 1", p=x, q=y, r=-2.5)
    assert len(ran) == 2
    assert ran[0].wgsl == ran[1].wgsl


def test_numpy_arrays_larger_than_a_buffer():
    with Device(limits={"max-buffer-size": 2**14, "max-storage-buffer-binding-size": 2**13}) as small:
        small.memory = 2**14
        x, y = RNG.random((300, 200)).astype(np.float32), RNG.random((300, 1)).astype(np.float32)
        got = webmm.elementwise("x * y", x=x, y=y, device=small)
        assert isinstance(got, np.ndarray)
        np.testing.assert_array_equal(got, x * y)


def test_numpy_and_arrays_mix(device):
    host = RNG.random((7, 5)).astype(np.float32)
    x = device.array(host)
    for got, expected in (
        (host + x, host + host),
        (x - host[0], host - host[0]),
        (np.float32(2) * x, 2 * host),
        (host @ x.T, host @ host.T),
        (np.matmul(x, host.T), host @ host.T),
        (np.exp(x), np.exp(host)),
        (np.maximum(host, x * 0.5), host),
        (np.where(x > 0.5, x, 0.0), np.where(host > 0.5, host, 0.0)),
        (np.sum(x, axis=1), host.sum(1)),
        (np.concatenate([x, x]), np.concatenate([host, host])),
        (np.tensordot(x, x, ((0,), (0,))), host.T @ host),
        (np.transpose(x)[::2], host.T[::2]),
        (x[:, ::-1] + x, host[:, ::-1] + host),
        (np.reshape(x.T, (5, 7, 1)), host.T.reshape(5, 7, 1)),
        (x.mean(axis=0, keepdims=True), host.mean(axis=0, keepdims=True)),
        (x.take([0, -1], axis=1), host[:, [0, -1]]),
    ):
        assert isinstance(got, webmm.Array)
        assert got.device is device
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5)
    np.testing.assert_array_equal(np.median(x), np.median(host))  # computed by NumPy from a copy
    with pytest.raises(TypeError):
        x + "one"
    assert (x == None) is False  # noqa: E711
    assert len({x, x.T}) == 2


def test_indexing_with_lists(device):
    host = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    x, whole = device.array(host), slice(None)
    for key in (
        [0, 2],
        (whole, [1, -1]),
        (..., [0, 3]),
        ([2, 0], ...),
        (None, [2, 1]),
        (slice(2), whole, np.array([4, 4])),
    ):
        np.testing.assert_array_equal(x[key].numpy(), host[key])
    for key, words in (
        (([0], [1]), "one index may be a list"),
        (([0], 1), "one index may be a list"),
        ([True, False, True], r"the length of x\[mask\] depends on its values"),
        ([3], "an index is out of range for 3 elements"),
    ):
        with pytest.raises(ProblemError, match=words):
            x[key]


def test_arrays_are_pickled_onto_the_default_device(device, monkeypatch):
    monkeypatch.setattr("webmm.engine.device.default_device", lambda: device)
    x = device.array(RNG.random((7, 5)).astype(np.float16))
    for copied in (pickle.loads(pickle.dumps(x[:, 1:])), copy.copy(x[:, 1:])):
        np.testing.assert_array_equal(copied.numpy(), x.numpy()[:, 1:])
        assert copied.device is device


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_compiled_for_its_dtypes(name):
    function = FUNCTIONS[name]
    for kind in ("f32", "i32", "bool"):
        arguments = ", ".join(f"x{i}" for i in range(function.arity))
        kinds = tuple((f"x{i}", kind) for i in range(function.arity))
        if kind in function.wgsl:
            assert compiled(f"{name}({arguments})", kinds).wgsl.startswith(function.wgsl[kind])
        else:
            with pytest.raises(ProblemError, match=f"not defined for {kind}"):
                compiled(f"{name}({arguments})", kinds)


# Calls of NumPy's functions of x (2, 3), a scalar s and a vector v, with every argument that webmm's versions take.
AS_NUMPY = {
    "zeros_like shape": lambda x, s, v: np.zeros_like(x, shape=(5, 4)),
    "zeros_like shape number": lambda x, s, v: np.zeros_like(x, np.int32, "C", True, np.int64(4)),
    "zeros_like a=": lambda x, s, v: np.zeros_like(a=x, dtype="float16", order="A", subok=False),
    "zeros_like shape -1": lambda x, s, v: np.zeros_like(x, shape=(-1,)),
    "empty_like shape": lambda x, s, v: np.empty_like(x, shape=(5, 0)),
    "empty_like prototype=": lambda x, s, v: np.empty_like(prototype=x, shape=()) * 0 == 2,
    "sum keepdims=1": lambda x, s, v: np.sum(x, axis=0, keepdims=1),
    "sum keepdims=0": lambda x, s, v: np.sum(x, -1, None, None, 0),
    "sum keepdims='x'": lambda x, s, v: np.sum(x, keepdims="x"),
    "sum a=": lambda x, s, v: np.sum(a=x, axis=(0, 1), dtype=np.float32, out=None, where=True),
    "sum no axes": lambda x, s, v: np.sum(x, axis=()),
    "sum axis 2": lambda x, s, v: np.sum(x, axis=2),
    "sum axis 0.5": lambda x, s, v: np.sum(x, axis=0.5),
    "sum axes twice": lambda x, s, v: np.sum(x, axis=(0, -2)),
    "prod keepdims": lambda x, s, v: np.prod(x, 1, keepdims=1),
    "mean keepdims": lambda x, s, v: np.mean(x, axis=1, keepdims=1, where=True),
    "max keepdims": lambda x, s, v: np.max(x, 1, None, 1),
    "amin keepdims": lambda x, s, v: np.amin(x, axis=0, keepdims=1),
    "argmax keepdims": lambda x, s, v: np.argmax(x, axis=0, keepdims=1),
    "argmin all": lambda x, s, v: np.argmin(x, keepdims=True),
    "argmin axis 7": lambda x, s, v: np.argmin(x, 7),
    "method keepdims": lambda x, s, v: x.sum(axis=1, keepdims=1),
    "method shape tuple": lambda x, s, v: x.reshape((3, -1)),
    "reshape numpy number": lambda x, s, v: np.reshape(x, np.int64(6)),
    "reshape -1 twice": lambda x, s, v: np.reshape(x, (-1, -1)),
    "reshape half": lambda x, s, v: np.reshape(x, (0.5, 2)),
    "reshape copy": lambda x, s, v: np.reshape(x, shape=(3, 2), order="C", copy=True),
    "reshape no copy": lambda x, s, v: np.reshape(x, (3, 2), copy=False),
    "reshape no copy possible": lambda x, s, v: np.reshape(x.T, (6,), copy=False),
    "transpose a=": lambda x, s, v: np.transpose(a=x, axes=(1, 0)),
    "transpose twice": lambda x, s, v: np.transpose(x, (0, 0)),
    "swapaxes": lambda x, s, v: np.swapaxes(x, axis1=0, axis2=-1),
    "moveaxis": lambda x, s, v: np.moveaxis(x, source=0, destination=-1),
    "expand_dims": lambda x, s, v: np.expand_dims(x, axis=(0, 3)),
    "squeeze long": lambda x, s, v: np.squeeze(x, axis=0),
    "broadcast_to": lambda x, s, v: np.broadcast_to(array=x, shape=(2, 2, 3), subok=True),
    "broadcast_to short": lambda x, s, v: np.broadcast_to(x, (3,)),
    "size": lambda x, s, v: np.size(x),
    "size axis": lambda x, s, v: np.size(x, axis=1),
    "size axis 4": lambda x, s, v: np.size(x, 4),
    "shape": lambda x, s, v: np.shape(a=x),
    "ndim": lambda x, s, v: np.ndim(a=x),
    "concatenate None": lambda x, s, v: np.concatenate([x, x.T], axis=None),
    "concatenate casting": lambda x, s, v: np.concatenate((x, x), axis=-1, out=None, casting="same_kind"),
    "concatenate axis": lambda x, s, v: np.concatenate((x, x), axis=2),
    "stack": lambda x, s, v: np.stack(arrays=[v, v], axis=-1),
    "stack shapes": lambda x, s, v: np.stack([x, v]),
    "where": lambda x, s, v: np.where(x > 1, x, s),
    "where one": lambda x, s, v: np.where(x > 1),
    "where two": lambda x, s, v: np.where(x > 1, x),
    "take": lambda x, s, v: np.take(x, indices=[2, -3], axis=1, out=None, mode="raise"),
    "take out of range": lambda x, s, v: np.take(x, [3], axis=1),
    "tensordot 1": lambda x, s, v: np.tensordot(x, x.T, axes=1),
    "tensordot numpy number": lambda x, s, v: np.tensordot(x, x, np.int64(2)),
    "tensordot 0": lambda x, s, v: np.tensordot(x, v, 0),
    "tensordot -1": lambda x, s, v: np.tensordot(x, v, -1),
    "tensordot 3": lambda x, s, v: np.tensordot(x, x, 3),
    "tensordot axis": lambda x, s, v: np.tensordot(x, v, (1, 0)),
    "tensordot negative": lambda x, s, v: np.tensordot(x, x, axes=([-1], [1])),
    "tensordot out of range": lambda x, s, v: np.tensordot(x, x.T, axes=([5], [0])),
    "tensordot below": lambda x, s, v: np.tensordot(x, x.T, axes=([-3], [0])),
    "tensordot twice": lambda x, s, v: np.tensordot(x, x, axes=([1, 1], [1, 1])),
    "tensordot unequal": lambda x, s, v: np.tensordot(x, x, axes=([0, 1], [0])),
    "tensordot lengths": lambda x, s, v: np.tensordot(x, x, axes=([0], [1])),
    "tensordot host": lambda x, s, v: np.tensordot(np.ones((4, 2), np.float32), x, 1),
    "dot number": lambda x, s, v: np.dot(x, 2.0),
    "dot number first": lambda x, s, v: np.dot(2.0, x),
    "dot scalars": lambda x, s, v: np.dot(s, s),
    "dot scalar": lambda x, s, v: np.dot(s, x),
    "dot vectors": lambda x, s, v: np.dot(v, v),
    "dot matrix vector": lambda x, s, v: np.dot(x, b=v, out=None),
    "dot batch": lambda x, s, v: np.dot(x, np.reshape(x, (1, 3, 2))),
    "dot host": lambda x, s, v: np.dot(np.ones((4, 2), np.float32), x),
    "dot lengths": lambda x, s, v: np.dot(x, x),
    "einsum": lambda x, s, v: np.einsum(
        "ij,j->i", x, v, out=None, optimize=True, dtype=None, order="K", casting="safe"
    ),
    "copyto a host array": lambda x, s, v: np.copyto(np.zeros((2, 3)), x),
}
REFUSED = {  # right in NumPy; here one error says what is not supported
    "sum where": lambda x, s, v: np.sum(x, where=x.T.T > 1),
    "sum initial": lambda x, s, v: np.sum(x, None, None, None, False, 5),
    "sum out": lambda x, s, v: np.sum(x, axis=0, out=v),
    "max initial": lambda x, s, v: np.max(x, initial=9.0),
    "mean where": lambda x, s, v: np.mean(x, where=[True, False, True]),
    "reshape order": lambda x, s, v: np.reshape(x, (3, 2), order="F"),
    "zeros_like order": lambda x, s, v: np.zeros_like(x, order="F"),
    "zeros_like device": lambda x, s, v: np.zeros_like(x, device="cpu"),
    "take mode": lambda x, s, v: np.take(x, [5], axis=1, mode="wrap"),
    "take out": lambda x, s, v: np.take(v, [0, 1, 2], out=v),
    "dot out": lambda x, s, v: np.dot(x, v, v[:2]),
    "concatenate out": lambda x, s, v: np.concatenate([v[:1], v[:2]], out=v),
    "concatenate dtype": lambda x, s, v: np.concatenate([v, v], dtype=np.float64),
    "stack dtype": lambda x, s, v: np.stack([v, v], dtype=np.float64),
    "einsum out": lambda x, s, v: np.einsum("ij->j", x, out=v),
    "out of a function on the host": lambda x, s, v: np.cumsum(v, out=v),
    "out by position": lambda x, s, v: np.cumsum(v, 0, None, v),
    "copyto": lambda x, s, v: np.copyto(v, x[0]),
    "put": lambda x, s, v: np.put(v, [0], [1.0]),
    "fill_diagonal": lambda x, s, v: np.fill_diagonal(x, 7.0),
}


@pytest.mark.parametrize("name", [*AS_NUMPY, *REFUSED])
def test_arguments_of_numpy_functions(device, name):
    """Each is honoured, as in NumPy, or refused."""
    hosts = np.arange(6, dtype=np.float32).reshape(2, 3), np.float32(3), np.float32([1, 4, 2])
    arrays = [device.array(host) for host in hosts]
    if name in REFUSED:
        with pytest.raises(ProblemError):
            REFUSED[name](*arrays)
        REFUSED[name](*hosts)
        return
    try:
        expected = AS_NUMPY[name](*hosts)
    except (ValueError, TypeError, IndexError):
        with pytest.raises((ProblemError, ValueError, TypeError, IndexError)):
            AS_NUMPY[name](*arrays)
        return
    got = AS_NUMPY[name](*arrays)
    if isinstance(expected, tuple):
        assert len(got) == len(expected)
    assert np.shape(got) == np.shape(expected)
    if expected is not None:
        np.testing.assert_array_equal(np.asarray(got), expected)
