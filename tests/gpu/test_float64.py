"""float64 on devices with and without shader-f64, compared with results of higher precision."""

import dataclasses
import itertools
import math
import subprocess
import sys
from contextlib import nullcontext
from decimal import Decimal, localcontext

import numpy as np
import pytest
from products import small

import webmm
from tests.sampled import crossed
from webmm import Device
from webmm import choose as choosing
from webmm.cases import OPS
from webmm.choose import choose
from webmm.dtypes import F64
from webmm.errors import ProblemError, UnsupportedError
from webmm.kernels import LADDER
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.slices import CHUNK, ENOUGH, Slices, Software
from webmm.kernels.gemm.split_k import SplitK
from webmm.problems.gemm import HIGH_F64, gemm
from webmm.problems.product import LAYOUTS, transposes
from webmm.report.choice import explain
from webmm.wgsl.own import Epilogue

K = 200
WITHOUT_F64 = (Slices(), Software())
NATIVE = [cls() for cls in LADDER if cls.doubles] + [SplitK(bm=32, bn=32, tm=4, tn=4, splits=2)]


@pytest.fixture(scope="module")
def native(device):
    if not F64.features <= device.capabilities.features:
        pytest.skip("the device has no shader-f64")
    return device


@pytest.fixture(scope="module")
def without():
    """Return a device without the feature shader-f64."""
    with Device() as device:
        features = device.capabilities.features - F64.features
        device.capabilities = dataclasses.replace(device.capabilities, features=features)
        yield device


@pytest.fixture(params=["native", "without"])
def either(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def few_registers(monkeypatch):
    """Choose a kernel with one sum per invocation where float64 is native: a tile of activations compiles for 10 s."""
    chosen = choosing.candidates

    def candidates(problem, device, mode):
        has_f64 = F64.features <= device.capabilities.features
        return {Naive(): "small"} if has_f64 else chosen(problem, device, mode)

    monkeypatch.setattr(choosing, "candidates", candidates)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def spread(shape, bits, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) * 2.0 ** rng.integers(-bits, bits, shape)


def excess(got, a, b, more=0.0):
    """Return the largest error as a multiple of the documented bound; `more` is an epilogue's addition to |A|·|B|."""
    assert got.dtype == np.float64
    with np.errstate(all="ignore"):
        a, b = a.astype(np.longdouble), b.astype(np.longdouble)
        expected = a @ b
        scale = a.shape[-1] * (2.0**-52 * (abs(a) @ abs(b) + more) + np.longdouble(2) ** -1074)
        stored = expected.astype(np.float64)
        special = ~np.isfinite(stored)
        np.testing.assert_array_equal(got[special], stored[special])
        return float((abs(got - expected) / scale)[~special].max(initial=0))


def run(kernel, device, a, b, layout="nn", precision="highest"):
    problem = gemm(a.shape[0], b.shape[1], a.shape[1], dtype="float64", precision=precision, **transposes(layout))
    arrays = (x.T if letter == "t" else x for x, letter in zip((a, b), layout, strict=True))
    c = device.empty((problem.m, problem.n), "float64")
    assert kernel.check(problem, device.capabilities) is None
    device.run(kernel, problem, *map(device.array, arrays), c)
    return c.numpy()


# Default tiles, which take seconds to compile in float64, for odd sizes of some stages; small ones otherwise, in one
# layout of a stage.
DEFAULT_TILES = ("pipelined", "cpu_lanes")


@pytest.mark.parametrize(
    ("kernel", "layout"),
    crossed(NATIVE, LAYOUTS, step=4),
    ids=lambda x: getattr(x, "name", x),
)
def test_every_stage_computes_in_float64(native, kernel, layout):
    if kernel.subgroup > native.capabilities.subgroup_size:
        pytest.skip("the device has no such subgroups")
    whole = layout[0] == "t"
    if (whole or kernel.name not in DEFAULT_TILES) and not (isinstance(kernel, SplitK) and kernel.splits > 1):
        kernel = small(type(kernel))
    for m, n, k in ((64, 64, 64),) if whole else ((33, 67, 131),):
        a, b = normal(m, k), normal(k, n, seed=1)
        assert excess(run(kernel, native, a, b, layout), a, b) <= 1


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", WITHOUT_F64, ids=lambda kernel: kernel.name)
def test_integer_stages_support_every_layout(without, kernel, layout):
    for m, n, k in ((1, 1, 1), (64, 64, 64), (33, 67, 131), (3, 130, 70)):
        a, b = normal(m, k), normal(k, n, seed=1)
        assert excess(run(kernel, without, a, b, layout), a, b) <= 1


HALVES = normal(K // 2, 19, seed=2)
SPECIAL = normal(17, K)
SPECIAL[3, 4], SPECIAL[5, 6], SPECIAL[7, 8], SPECIAL[9, 3:5] = np.nan, np.inf, -np.inf, (np.inf, -np.inf)
ADVERSARIAL = {
    "dense": (normal(17, K), normal(K, 19)),
    "all ones": (np.ones((17, K)), np.ones((K, 19))),
    "spread within rows": (spread((17, K), 20), spread((K, 19), 20)),
    "spread by hundreds": (spread((17, K), 300), spread((K, 19), 300)),
    "rows apart": (
        normal(17, K) * 2.0 ** np.arange(-500, 520, 60)[:, None],
        normal(K, 19) * 2.0 ** np.arange(-360, 400, 40),
    ),
    "Hilbert": (1 / (1 + np.add.outer(np.arange(17.0), np.arange(K))), normal(K, 19)),
    "cancelling": (np.tile(normal(17, K // 2), 2), np.concatenate([HALVES, -HALVES * (1 + 2.0**-40)])),
    "a large one in each row": (normal(17, K) + 2.0**60 * np.eye(17, K), normal(K, 19)),
    "subnormal": (normal(17, K) * 2.0**-1060, normal(K, 19)),
    "subnormal result": (normal(17, K) * 2.0**-530, normal(K, 19) * 2.0**-530),
    "overflow": (np.full((17, K), 2.0**600), np.full((K, 19), 2.0**430)),
    "zeros": (np.zeros((17, K)), normal(K, 19)),
    "identity": (np.eye(K), normal(K, 19)),
    "NaN and infinities": (SPECIAL, np.where(np.arange(19) == 5, np.nan, normal(K, 19))),
    "one term": (normal(17, 1), normal(1, 19)),
    "wide integers": tuple(np.trunc(normal(*shape) * 2.0**26) for shape in ((17, K), (K, 19))),
}


@pytest.mark.parametrize("kernel", WITHOUT_F64, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_adversarial_operands(without, kernel, name):
    assert excess(run(kernel, without, *ADVERSARIAL[name]), *ADVERSARIAL[name]) <= 1


def test_integers_are_exact_in_slices(without):
    a, b = (np.trunc(normal(*shape) * 2.0**20) for shape in ((40, K), (K, 40)))
    np.testing.assert_array_equal(run(Slices(), without, a, b), a @ b)


def test_a_sum_is_rounded_once(without):
    a, b = normal(20, 4096), normal(4096, 3, seed=1)
    expected = [[math.fsum(a[i] * b[:, j]) for j in range(3)] for i in range(20)]  # sums of rounded products
    error = abs(run(Slices(), without, a, b) - expected) / (abs(a) @ abs(b))
    assert error.max() <= 2.0**-52


@pytest.mark.parametrize("k", [4, 5000])
def test_short_sums_use_all_slices(k):
    a, b, problem = normal(8, k), spread((k, 9), 1), gemm(8, 9, k, dtype="float64")
    wide = next(left for left in Slices().scratch(problem) if left.name == "wide")
    with Device() as device, device.empty((8 * 9, 4), "uint32") as kept:
        device.launches.scratch[wide] = kept.storage.buffer  # makes the scratch buffer readable
        run(Slices(), device, a, b)
        assert (kept.numpy()[:, 3] >= ENOUGH["highest"]).mean() == (k == 5000)


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_fewer_slices_are_within_their_bound(without, name):
    a, b = ADVERSARIAL[name]
    assert excess(run(Slices(), without, a, b, precision="high"), a, b) <= HIGH_F64 / F64.eps


def test_high_precision_has_its_documented_bound(native, without):
    a, b = normal(30, 3000), normal(3000, 40, seed=1)
    high, highest = (excess(webmm.matmul(a, b, device=without, precision=p), a, b) for p in ("high", "highest"))
    assert 1 < high <= HIGH_F64 / F64.eps
    assert highest <= 1
    assert excess(webmm.matmul(a, b, device=native, precision="high"), a, b) <= 1  # native float64 ignores "high"
    whole = np.trunc(normal(20, K) * 2.0**10), np.trunc(normal(K, 20, seed=1) * 2.0**10)
    np.testing.assert_array_equal(webmm.matmul(*whole, device=without, precision="high"), whole[0] @ whole[1])


@pytest.mark.parametrize("k", [CHUNK // 2, CHUNK // 2 + 1, 3 * CHUNK // 2])
def test_no_sum_in_32_bits_overflows(without, k):
    a, b = np.full((2, k), 2 - 2.0**-52), np.full((k, 3), -1 - (1 - 2.0**-52))  # every digit is 127
    assert excess(run(Slices(), without, a, b), a, b) * k <= 2


def doubles(count, seed):
    """Return doubles with random bits (rarely NaN or infinite), and edge cases."""
    bits = np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)
    edges = [0.0, 1.0, 1 - 2.0**-53, 1 + 2.0**-52, 2.0**-1022, 2.0**-1074, 2.0**-537, 2.0**1023, np.inf, np.nan]
    return np.concatenate([bits.view(np.float64), edges, np.negative(edges)])


def test_products_follow_ieee_754(without):
    a = np.concatenate([doubles(100, 0), 2.0**-537 * normal(50), normal(50)])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run(Software(), without, a[:, None], a[None, :]), np.multiply.outer(a, a))


@pytest.mark.parametrize("distance", [0, 1, 52, 53, 54, 63, 64, 65, 105, 1000])
def test_sums_follow_ieee_754(without, distance):
    a = np.concatenate([doubles(100, 1), normal(100)])
    b = np.concatenate([normal(100) * 2.0**-distance, doubles(100, 2), -a[:5]])
    pairs = np.array(list(itertools.product(a, b)))
    got = run(Software(), without, pairs, np.ones((2, 1)))[:, 0]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, pairs[:, 0] + pairs[:, 1])


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("bias", [None, "column", "row"])
def test_matmul_of_batches_with_epilogues(either, resident, bias):
    a, b, residual = normal(3, 40, 90), normal(90, 30, seed=1), normal(3, 40, 30, seed=2)
    added = {None: np.zeros(1), "column": normal(30, seed=3), "row": normal(40, 1, seed=3)}[bias]
    given = either.array if resident else np.asarray
    got = webmm.matmul(
        given(a), given(b), alpha=0.1, bias=None if bias is None else added, residual=residual, device=either
    )
    expected = (a.astype(np.longdouble) @ b) * np.longdouble(0.1) + added + residual
    scale = 90 * 2.0**-52 * (abs(a) @ abs(b) + abs(added) + abs(residual))
    assert (abs(np.asarray(got) - expected) <= scale).all()


def tail(z):
    """Return ½·erfc(z) for z ≥ 0, to 40 digits: by its series, and by Laplace's continued fraction."""
    bell = (-z * z).exp() / PI.sqrt()
    if z < 2:
        terms = itertools.accumulate(range(1, 200), lambda term, n: term * 2 * z * z / (2 * n + 1), initial=z)
        return Decimal("0.5") - bell * sum(terms)
    fraction = z
    for k in range(600, 0, -1):
        fraction = z + Decimal(k) / 2 / fraction
    return bell / fraction / 2


PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
MEANINGS = {  # functions of a Decimal
    "relu": lambda x: max(x, Decimal(0)),
    "silu": lambda x: x / (1 + (-x).exp()),
    "gelu": lambda x: x * (tail(-x / Decimal(2).sqrt()) if x < 0 else 1 - tail(x / Decimal(2).sqrt())),
    "gelu_tanh": lambda x: x / (1 + (-2 * (2 / PI).sqrt() * (x + Decimal("0.044715") * x**3)).exp()),
}


@pytest.mark.parametrize(("either", "name"), crossed(["native", "without"], MEANINGS), indirect=["either"])
@pytest.mark.usefixtures("few_registers")
def test_activations_are_right_to_the_last_bits(either, name):
    numbers = np.concatenate([np.linspace(-37, 37, 75) + 1 / 3, spread(60, 4, seed=4), 2.0 ** np.arange(-60, 5)])
    with localcontext(prec=60):
        expected = np.array([np.longdouble(str(MEANINGS[name](Decimal(float(x))))) for x in numbers])
    special = [np.nan, np.inf, 1e300, -1e300]
    given = np.concatenate([numbers, special])[:, None]
    *got, a, b, c, d = np.asarray(webmm.matmul(given, np.ones((1, 1)), activation=name, device=either))[:, 0]
    np.testing.assert_array_equal([a, b, c, d], [np.nan, np.inf, 1e300, 0])
    relative = name in ("silu", "gelu")  # small results are as accurate
    scale = np.minimum(abs(numbers), 20 * abs(expected)) if relative else abs(numbers)
    assert (abs(got - expected) <= 2 * 2.0**-52 * scale + 2.0**-1070).all()


@pytest.mark.usefixtures("few_registers")
def test_activations_follow_the_bias_and_precede_the_residual(either):
    a, b, bias, residual = normal(20, 90), normal(90, 30, seed=1), normal(30, seed=3), normal(20, 30, seed=2)
    got = webmm.matmul(a, b, alpha=0.1, bias=bias, activation="silu", residual=residual, device=either)
    sums = 0.1 * (a.astype(np.longdouble) @ b) + bias
    expected = sums / (1 + np.exp(-sums)) + residual
    assert (abs(got - expected) <= 100 * 2.0**-52 * (abs(a) @ abs(b) + abs(bias) + abs(residual))).all()


def test_gemm_in_place(either):
    a, b, c = normal(20, 30), normal(30, 40, seed=1), normal(40, 20, seed=2)
    into = either.array(c)
    webmm.gemm(either.array(a), either.array(b), into.mT, alpha=1 / 3, beta=-0.7)
    np.testing.assert_allclose(into.numpy(), ((a @ b) / 3 - 0.7 * c.T).T, rtol=0, atol=1e-13)


def test_views_and_broadcast_batches(either):
    a, b = normal(2, 3, 50, 40), normal(40, 60, seed=1)
    x, y = either.array(a), either.array(b)
    got = x[:, ::2, 3:, 1:] @ y[1:, 5:]
    assert excess(got.numpy(), a[:, ::2, 3:, 1:], b[1:, 5:]) <= 1
    assert excess((y.mT @ x.mT).numpy(), b.T, a.mT if hasattr(a, "mT") else a.swapaxes(-1, -2)) <= 1


def test_streamed(either):
    a, b, bias = normal(90, 400), normal(400, 50, seed=1), normal(50, seed=2)
    memory, either.memory = either.memory, 2**18
    try:
        steps = []
        got = webmm.matmul(a, b, bias=bias, device=either, progress=lambda done, total: steps.append(total))
    finally:
        either.memory = memory
    assert steps[-1] > 1
    assert excess(got - bias, a, b, more=abs(bias)) <= 1


def test_k_beyond_the_loop_limit(either):
    a, b = normal(2, 70_000), normal(70_000, 3, seed=1)
    assert excess(webmm.matmul(a, b, device=either), a, b) <= 1


def test_no_inner_elements(either):
    np.testing.assert_array_equal(webmm.matmul(np.zeros((2, 0)), np.zeros((0, 3)), device=either), np.zeros((2, 3)))


def test_the_choice_of_a_stage(native, without):
    problem = gemm(64, 64, 64, dtype="float64")
    assert not choose(problem, native).integer
    assert choose(problem, without) == Slices()
    assert "shader-f64" in (LADDER[0]().check(problem, without.capabilities) or "")
    assert Slices().unsuited(gemm(1, 1, 1)) == "multiplies float64, not float32"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_on_a_cpu_numpy_is_recommended(native, dtype):
    if native.info.kind != "cpu":
        pytest.skip("the device is no CPU")
    said, _ = explain(OPS["gemm"], (64, 64, 64), "nn", dtype, lambda: nullcontext(native))
    assert ("NumPy is faster" in said) == (dtype == "float64")


def test_native_and_integer_stages_agree(native, without):
    a, b = normal(100, 300), normal(300, 100, seed=1)
    one, other = webmm.matmul(a, b, device=native), webmm.matmul(a, b, device=without)
    assert (abs(one - other) <= 2 * 300 * 2.0**-52 * (abs(a) @ abs(b))).all()


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, (0, 2)])
def test_sums_and_means(either, op, axis, monkeypatch):
    monkeypatch.setattr(either, "settings", dataclasses.replace(either.settings, precision="high"))  # of products alone
    x = spread((4, 300, 6), 20)
    expected, scale = (getattr(np, op)(y, axis=axis) for y in (x.astype(np.longdouble), abs(x)))
    for given in (x, either.array(x), either.array(x)):  # the second resident call uses a plan
        got = np.asarray(webmm.reduce(given, op, axis=axis, device=either))
        assert got.dtype == np.float64
        assert got.shape == expected.shape
        assert (abs(got - expected) <= 300 * 2.0**-52 * scale).all()
    seen = either.array(x)[1:, ::2, ::-1]
    np.testing.assert_allclose(webmm.reduce(seen, op, axis=1).numpy(), getattr(x[1:, ::2, ::-1], op)(axis=1), 1e-9)


def test_sums_of_more_than_a_binding_holds(either, monkeypatch):
    x = normal(3, 5000)
    limits = either.capabilities.limits | {"max-storage-buffer-binding-size": 2**14}
    monkeypatch.setattr(either, "capabilities", dataclasses.replace(either.capabilities, limits=limits))
    for op in ("sum", "mean"):
        np.testing.assert_allclose(webmm.reduce(x, op, axis=1, device=either), getattr(x, op)(axis=1), rtol=1e-13)


SQUARE = Epilogue(wgsl="x * x", numpy=lambda x: x * x)
REFUSED = {
    "Epilogue": (
        lambda a, gpu: webmm.matmul(a, a, activation=SQUARE, device=gpu),
        "do not support an Epilogue",
    ),
    "shorter": (lambda a, gpu: webmm.matmul(a, a, out_dtype="float32", device=gpu), "of float64 cannot be stored as"),
    "mixed": (lambda a, gpu: webmm.matmul(a, a.astype("f4"), device=gpu), "a is float64, b is float32; cast one"),
    "max": (lambda a, gpu: webmm.reduce(a, "max", out_dtype="float32", device=gpu), "max of float64 is not stored as"),
    "argmax": (
        lambda a, gpu: webmm.reduce(a, "argmax", out_dtype="float64", device=gpu),
        "argmax of float64 results in int32",
    ),
    "sum": (lambda a, gpu: webmm.reduce(a, "sum", out_dtype="float32", device=gpu), "sum of float64 is not stored as"),
    "elementwise": (lambda a, gpu: webmm.gelu(gpu.array(a)), "float64 is not supported by activations"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_calls_are_refused(either, name):
    call, words = REFUSED[name]
    with pytest.raises((ProblemError, UnsupportedError)) as caught:
        call(np.ones((4, 4)), either)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_adversarial_operands_through_matmul(native, without, name):
    a, b = ADVERSARIAL[name]
    for device in (native, without):
        assert excess(webmm.matmul(a, b, device=device), a, b) <= 1


DAWN = """
import numpy as np, webmm
rng = np.random.default_rng(0)
a, b = rng.standard_normal((70, 300)), rng.standard_normal((300, 50))
with webmm.Device(engine="dawn") as gpu:
    assert "shader-f64" not in gpu.capabilities.features
    got = webmm.matmul(a, b, bias=b[0], residual=a[:, :50], alpha=0.5, device=gpu)
expected = (a.astype(np.longdouble) @ b) / 2 + b[0] + a[:, :50]
assert (abs(got - expected) <= 300 * 2.0**-52 * (abs(a) @ abs(b) + abs(b[0]) + abs(a[:, :50]))).all()
print("right")
"""


def test_dawn_without_float64(swiftshader):
    done = subprocess.run([sys.executable, "-c", DAWN], env=swiftshader, capture_output=True, text=True, timeout=280)
    assert done.stdout == "right\n", done.stdout + done.stderr
