"""Plans: a repeated call looks up its plan, and is right for every layout of operands."""

import numpy as np
import pytest

import webmm
from webmm import Device, choose
from webmm.calls import gemm
from webmm.calls.planned import _describe
from webmm.errors import DeviceLostError, FreedArrayError, ProblemError

RNG = np.random.default_rng(4)


def numbers(*shape):
    return RNG.integers(-3, 4, shape).astype(np.float32)


WEIGHTS = webmm.quantize_blocks(numbers(24, 20))
CALLS = {
    "product": lambda d, x, y: x @ y,
    "bias and gelu": lambda d, x, y: webmm.matmul(x, y, bias=y[0], activation="gelu"),
    "alpha": lambda d, x, y: webmm.matmul(x, y.T, alpha=2.5, out_dtype="float32"),
    "residual": lambda d, x, y: webmm.matmul(x, y, residual=x),
    "out": lambda d, x, y: webmm.matmul(x, y, out=d.zeros((24, 24))),
    "gemm": lambda d, x, y: webmm.gemm(x, y, d.array(np.ones((24, 24), np.float32)), beta=2.0),
    "batch": lambda d, x, y: x.reshape(4, 6, 24) @ y,
    "vector": lambda d, x, y: x[3] @ y,
    "qmatmul": lambda d, x, y: webmm.qmatmul(
        d.array(np.abs(x.numpy()).astype(np.uint8)), d.array(np.abs(y.numpy()).astype(np.uint8)), 0.5, 3, 2.0, 1
    ),
    "qmatmul by row": lambda d, x, y: webmm.qmatmul(
        d.array(np.abs(x.numpy()).astype(np.uint8)),
        d.array(np.abs(y.numpy()).astype(np.uint8)),
        *(np.full(24, 0.5, np.float32), np.full(24, 3), 2.0, 1),
    ),
    "weights": lambda d, x, y: webmm.qmatmul_weights(x, WEIGHTS.to(d)),
    "sum": lambda d, x, y: webmm.reduce(x, "sum", 1),
    "argmax": lambda d, x, y: webmm.reduce(x, "argmax", 0, keepdims=True),
    "softmax": lambda d, x, y: webmm.softmax(x, axis=0),
    "layer norm": lambda d, x, y: webmm.layer_norm(x, d.array(y.numpy()[1]), d.array(y.numpy()[2])),
    "gelu": lambda d, x, y: webmm.gelu(x),
}


@pytest.fixture
def gpu():
    with Device() as device:
        yield device


def on_a_new_device(call, *args):
    """Return the result of a call on a new device, which has no plans."""
    with Device() as fresh:
        return CALLS[call](fresh, *map(fresh.array, args)).numpy()


@pytest.mark.parametrize("call", CALLS)
def test_repeated_calls_are_right(call, gpu):
    pairs = [(numbers(24, 24), numbers(24, 24)) for _ in range(4)]
    results = [CALLS[call](gpu, gpu.array(x), gpu.array(y)) for x, y in pairs]
    assert len({id(result.storage) for result in results}) == 4, "each call has its own result"
    for result, (x, y) in zip(results, pairs, strict=True):
        assert np.array_equal(result.numpy(), on_a_new_device(call, x, y))


@pytest.mark.parametrize(
    "call", [name for name in CALLS if name != "residual"]
)  # "residual" copies on the device first
def test_repeated_calls_use_their_plan(call, gpu, monkeypatch):
    x, y = gpu.array(numbers(24, 24)), gpu.array(numbers(24, 24))
    for _ in range(2):  # the first call runs the self-test
        first = CALLS[call](gpu, x, y).numpy()
    monkeypatch.setattr(choose, "run", lambda *_, **__: pytest.fail("it was planned before"))
    assert np.array_equal(CALLS[call](gpu, x, y).numpy(), first)


def test_the_layout_of_operands_is_part_of_the_plan(gpu):
    wide = numbers(40, 40)
    whole = gpu.array(wide)
    views = [
        lambda x: x[:16, :16],
        lambda x: x[:16, :16].T,
        lambda x: x[3:19, 5:21],
        lambda x: x[4:20, 5:21],
        lambda x: x[:32:2, :16],
        lambda x: x[:16, 16:32],
    ]
    for _ in range(2):
        for left in views:
            for right in views:
                assert np.array_equal((left(whole) @ right(whole)).numpy(), left(wide) @ right(wide))
    dense = gpu.array(wide[:16, :16])
    assert np.array_equal((dense @ whole[:16, :16]).numpy(), wide[:16, :16] @ wide[:16, :16])


def test_operands_that_share_a_buffer_have_another_plan(gpu):
    x, y = numbers(12, 12), numbers(12, 12)
    a, b, c = gpu.array(x), gpu.array(y), gpu.zeros((12, 12))
    for _ in range(2):
        assert np.array_equal((a @ b).numpy(), x @ y)
        assert np.array_equal((a @ a).numpy(), x @ x)
        assert np.array_equal((b @ a).numpy(), y @ x)
        assert np.array_equal(webmm.gemm(a, b, c).numpy(), x @ y)
        with pytest.raises(ProblemError, match="shares its buffer"):
            webmm.gemm(a, b, a)


def test_settings_are_part_of_the_plan(gpu):
    x, y = numbers(12, 12), numbers(12, 12)
    a, b = gpu.array(x), gpu.array(y)
    for _ in range(2):
        assert np.array_equal(webmm.matmul(a, b, alpha=2.0).numpy(), 2 * (x @ y))
        assert np.array_equal(webmm.matmul(a, b, alpha=3.0).numpy(), 3 * (x @ y))
        assert np.array_equal(webmm.matmul(a, b, activation="relu").numpy(), np.maximum(x @ y, 0))
        assert webmm.matmul(a, b, out_dtype="float16").dtype == np.float16
        assert webmm.reduce(a, "sum", 0).shape == (12,)
        assert webmm.reduce(a, "sum", 0, True).shape == (1, 12)
        with pytest.raises(ProblemError):
            webmm.matmul(a, b, activation="tan")
        with pytest.raises(ProblemError):
            webmm.reduce(a, "sum", 2)


def test_planned_calls_check_their_operands(gpu):
    x = numbers(12, 12)
    a, b = gpu.array(x), gpu.array(x)
    assert np.array_equal((a @ b).numpy(), x @ x)
    with Device() as other, pytest.raises(ProblemError, match="different devices"):
        _ = a @ other.array(x)
    b.free()
    with pytest.raises(FreedArrayError):
        _ = a @ b
    c = gpu.array(x)
    assert np.array_equal((a @ c).numpy(), x @ x)
    gpu.close()
    with pytest.raises(DeviceLostError):
        _ = a @ c


def test_a_profile_records_planned_calls(gpu):
    a = gpu.array(numbers(12, 12))
    for _ in range(3):
        _ = a @ a
    with webmm.profile(gpu) as found:
        _ = a @ a
    assert [event.kind for event in found.events].count("dispatch") == 1
    assert np.array_equal((a @ a).numpy(), a.numpy() @ a.numpy())


def test_host_operands_are_uploaded_each_time(gpu):
    a, bias = gpu.array(numbers(12, 12)), np.zeros(12, np.float32)
    for value in (1.0, 2.0, 3.0):
        bias[:] = value
        assert np.array_equal(webmm.matmul(a, a, bias=bias).numpy(), a.numpy() @ a.numpy() + value)


def test_products_of_numpy_arrays_are_checked_once_and_repeated(gpu, monkeypatch):
    found, check = [], gemm.checked
    monkeypatch.setattr(gemm, "checked", lambda *args: found.append(args) or check(*args))
    x, y = numbers(24, 24), numbers(24, 24)
    product = lambda: webmm.matmul(x, y, bias=y[0], alpha=2.0, activation="relu", device=gpu)  # noqa: E731
    first = product()
    assert len(found) == 1
    assert np.array_equal(first, np.maximum(2 * x @ y + y[0], 0))
    assert np.array_equal(product(), first)
    monkeypatch.setattr(choose, "run", lambda *_, **__: pytest.fail("it was planned before"))
    x = numbers(24, 24)
    assert np.array_equal(product(), np.maximum(2 * x @ y + y[0], 0))
    assert len(found) == 3


def test_plans_are_bounded(gpu, monkeypatch):
    monkeypatch.setattr("webmm.engine.plans.MAX_PLANS", 5)
    a = gpu.array(numbers(30, 30))
    for n in range(1, 20):
        assert np.array_equal((a[:n] @ a).numpy(), a.numpy()[:n] @ a.numpy())
        assert len(gpu.plans.kept) <= 5


def test_a_plan_survives_eviction_of_its_launch_or_buffer(gpu):
    x = numbers(12, 12)
    a = gpu.array(x)
    for _ in range(3):
        _ = a @ a
    gpu.launches.clear()
    assert np.array_equal((a @ a).numpy(), x @ x)
    gpu.trim()
    assert np.array_equal((a @ a).numpy(), x @ x)
    gpu.pipelines.limit = 1
    _ = webmm.gelu(a)
    assert np.array_equal((a @ a).numpy(), x @ x)


def same_bits(got, expected):
    return np.array_equal(got.numpy().view(np.uint32), np.asarray(expected, np.float32).view(np.uint32))


ZEROS = (0.0, -0.0, np.float32(0.0), np.float32(-0.0), 0.0)


def test_numbers_are_part_of_a_plan_by_their_bits(gpu):
    """0.0 == -0.0, but x / 0.0 and x / -0.0 differ."""
    x = np.float32([1, -1, 2])
    a, identity = gpu.array(x), gpu.array(np.eye(3, dtype=np.float32))
    for zero in ZEROS:
        with np.errstate(divide="ignore"):
            assert same_bits(a / zero, x / np.float32(zero))
        assert same_bits(webmm.matmul(identity, identity, alpha=zero), np.eye(3, dtype=np.float32) * np.float32(zero))


def test_a_tuple_of_numbers_is_part_of_a_plan_by_their_bits(gpu):
    key, tuples = [], [(0.0,), (-0.0,), (0,), (False,), (np.float32(0.0),), (np.nan,)]
    for x in (*tuples, (float("nan"),)):
        found = []
        _describe(x, found, [])
        key.append(tuple(found))
    assert len(set(key)) == len(tuples)


def test_nan_finds_its_plan(gpu):
    a = gpu.array(np.float32([1, 2]))
    for _ in range(3):
        assert np.isnan((a + float("nan")).numpy()).all()
    assert len(gpu.plans.kept) == 1


@pytest.mark.parametrize("most", [4, 100])
def test_more_launches_than_are_cached_keep_no_memory(monkeypatch, most):
    """Launches are evicted while a replay prepares them; the buffers that it took must not be lost."""
    monkeypatch.setattr("webmm.engine.launches.MAX_LAUNCHES", 4)
    monkeypatch.setattr("webmm.engine.launches.MOST_LAUNCHES", most)
    with Device() as gpu:
        _multiply_many(gpu, min(most, 30))


def _multiply_many(gpu, cached):
    x, y = numbers(6, 3, 4, 4), numbers(6, 2, 4, 4)
    a, b = gpu.array(x)[:, ::2], gpu.array(y)
    held = []
    for _ in range(6):
        c = a @ b
        assert np.array_equal(c.numpy(), x[:, ::2] @ y)
        c.free()
        held.append(gpu.memory_stats().array_bytes)
    assert len(set(held[1:])) == 1
    assert len(gpu.launches.kept) <= cached
    if cached > 4:  # no launch is prepared again
        before = dict(gpu.launches.kept)
        (a @ b).free()
        assert gpu.launches.kept == before


def test_a_repeated_product_without_terms_is_zero():
    """The zeros that stand for its operands are not those of a buffer that happened to be new."""
    with webmm.Device() as device:
        a, b = device.empty((3, 0)), device.empty((0, 4))
        webmm.matmul(a, b).free()  # tests the kernel
        device.trim()
        webmm.matmul(a, b).free()  # its buffers are new
        device.trim()
        for x in [device.array(np.full(4, np.nan, np.float32)) for _ in range(6)]:
            x.free()
        np.testing.assert_array_equal(webmm.matmul(a, b).numpy(), np.zeros((3, 4), np.float32))
