"""Every op on operands larger than a binding, a buffer or the memory gives the same results as on small ones."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from test_attention import CHOSEN
from test_attention import reference as attended

import webmm
from webmm import Device, report
from webmm import choose as choosing
from webmm.calls.slots import Slots
from webmm.cut.pieces import Limits
from webmm.errors import MemoryLimitError, UnsupportedError
from webmm.kernels.gemm.shared import Shared
from webmm.problems.scheme import Scheme, reference

RNG = np.random.default_rng(11)
BINDING = 2**14
MEMORY = 2**15
REDUCTIONS = ("sum", "mean", "max", "min", "logsumexp", "argmax")


@pytest.fixture(scope="module")
def bound(device):
    """A device with a low limit on bindings only."""
    with Device(device.info.index, limits={"max-storage-buffer-binding-size": BINDING}) as bound:
        yield bound


@pytest.fixture(scope="module")
def small(device):
    """A device with low limits on bindings, buffers and memory, so that operands are streamed."""
    limits = {"max-buffer-size": BINDING, "max-storage-buffer-binding-size": BINDING}
    with Device(device.info.index, limits=limits) as small:
        small.memory = MEMORY
        yield small


def places(bound, small):
    """Yield (name, device, function that places an operand): on the device, or on the host for either device."""
    yield "resident", bound, bound.array
    yield "host", bound, lambda x: x
    yield "small", small, lambda x: x


@pytest.fixture(params=["resident", "host", "small"])
def place(request, bound, small):
    """Return a device and a function that places an operand on it or leaves it on the host."""
    return next((device, put) for name, device, put in places(bound, small) if name == request.param)


def whole(*shape, dtype=np.float32):
    return RNG.integers(-8, 9, shape).astype(dtype)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def host(x):
    return x.numpy() if isinstance(x, webmm.Array) else x


def logsumexp(x, axis):
    top = x.max(axis, keepdims=True)
    return np.log(np.exp(x - top).sum(axis)) + np.squeeze(top, axis)


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("shape", [(20_001,), (123, 170), (3, 5, 1201)], ids=str)
def test_gelu(place, device, shape):
    there, put = place
    x = floats(*shape)
    assert_array_equal(host(webmm.gelu(put(x), device=there)), webmm.gelu(x, device=device))


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((20_001,), 0),
        ((123, 170), None),
        ((123, 170), 0),
        ((170, 123), 1),
        ((3, 5003), 1),
        ((3, 7001, 2), 1),
        ((2, 9000), 0),
    ],
    ids=str,
)
def test_reductions(place, op, shape, axis):
    there, put = place
    x = whole(*shape)
    if op == "argmax":
        x = floats(*shape)
        expected = np.argmax(x, axis)
    elif op == "logsumexp":
        flat = x.reshape(-1).astype(np.float64) if axis is None else x.astype(np.float64)
        expected = logsumexp(flat, 0 if axis is None else axis)
    else:
        expected = getattr(x.astype(np.float64), op)(axis)
    got = webmm.reduce(put(x), op, axis, device=there)
    assert_allclose(host(got), expected, rtol=2e-6, atol=1e-6 if op in ("mean", "logsumexp") else 0)


@pytest.mark.parametrize("at", [5, 9_999, 19_999])
def test_nan_and_ties_in_pieces_of_a_row(place, at):
    there, put = place
    x = np.ones(20_000, np.float32)
    x[[at, -1]] = 2
    assert host(webmm.reduce(put(x), "argmax", 0, device=there)) == at, "the first of equal ones"
    x[at] = np.nan
    assert host(webmm.reduce(put(x), "argmax", 0, device=there)) == at, "the first NaN"
    for op in ("max", "min", "sum", "mean", "logsumexp"):
        assert np.isnan(host(webmm.reduce(put(x), op, 0, device=there))), op
    x[at] = -np.inf
    assert host(webmm.reduce(put(x), "min", 0, device=there)) == -np.inf
    assert host(webmm.reduce(put(x), "max", 0, device=there)) == 2 - (at == 19_999)
    assert np.isfinite(host(webmm.reduce(put(x), "logsumexp", 0, device=there)))


def test_float16_is_summed_in_float32(place):
    there, put = place
    x = np.ones(70_000, np.float16)
    assert host(webmm.reduce(put(x), "sum", out_dtype="float32", device=there)) == 70_000
    assert host(webmm.reduce(put(x), "mean", device=there)) == 1


@pytest.mark.parametrize(
    ("shape", "axis"), [((300, 50), 1), ((50, 300), 0), ((2, 2500), 0), ((7, 40, 50), 1), ((7, 40, 51), -1)], ids=str
)
def test_softmax(place, shape, axis):
    there, put = place
    x = floats(*shape)
    assert_allclose(host(webmm.softmax(put(x), axis, device=there)), softmax(x.astype(np.float64), axis), rtol=3e-6)


@pytest.mark.parametrize("shape", [(2, 7001), (301, 41), (1, 3, 3003)], ids=str)
def test_bfloat16_pieces_that_share_words(place, device, shape):
    there, put = place
    x = floats(*shape).astype(webmm.dtypes.BF16.numpy)
    for call in (webmm.gelu, webmm.softmax, lambda x, device: webmm.reduce(x, "max", -1, device=device)):
        assert_array_equal(host(call(put(x), device=there)), call(x, device=device))


def test_norms(place, device):
    there, put = place
    x, weight, bias = floats(211, 77), floats(77), floats(77)
    got = webmm.layer_norm(put(x), put(weight), put(bias), device=there)
    assert_allclose(host(got), webmm.layer_norm(x, weight, bias, device=device), rtol=1e-6, atol=1e-6)
    got = webmm.rms_norm(put(x), put(weight), device=there)
    assert_allclose(host(got), webmm.rms_norm(x, weight, device=device), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("wide", [False, True])
def test_take_and_concatenate(bound, dtype, wide):
    x = whole(7, 33, 101, dtype=webmm.dtypes.dtype_of(dtype).numpy)
    given = bound.array(np.repeat(x, 3, 2))[:, :, ::3] if wide else bound.array(x)
    at = [32, 0, 5, 5, 31]
    for axis, most in enumerate(x.shape):
        some = [i % most for i in at]
        assert_array_equal(webmm.take(given, some, axis).numpy(), x.take(some, axis))
        assert_array_equal(
            webmm.concatenate([given, given[:, 1:-1]] if axis == 1 else [given, given], axis).numpy(),
            np.concatenate([x, x[:, 1:-1] if axis == 1 else x], axis),
        )


def test_a_vector_larger_than_a_binding_is_not_gathered(bound):
    with pytest.raises(UnsupportedError, match="in one binding"):
        webmm.take(bound.array(whole(9000)), [3, 8999])


def test_a_row_larger_than_a_binding_is_refused(place):
    there, put = place
    for call in (webmm.softmax, webmm.layer_norm, webmm.rms_norm):
        with pytest.raises(UnsupportedError, match=r"takes 24,000 bytes, a binding and a buffer hold 16,384"):
            call(put(floats(2, 6000)), device=there)


@pytest.mark.parametrize(
    ("sizes", "out", "transposed"),
    [
        ((200, 190, 150), "int32", True),
        pytest.param((200, 190, 150), "uint8", False, marks=pytest.mark.long),
        pytest.param((1000, 300, 9), "float32", False, marks=pytest.mark.long),
        ((1000, 300, 9), "uint8", True),
        ((300, 1000, 9), "uint8", False),
        pytest.param((300, 1000, 9), "int32", True, marks=pytest.mark.long),
        pytest.param((3, 4099, 21), "uint8", True, marks=pytest.mark.long),
        ((3, 4099, 21), "float32", False),
    ],
    ids=str,
)
def test_quantized_products(place, sizes, out, transposed):
    m, n, k = sizes
    there, put = place
    a, b = RNG.integers(0, 256, (m, k), np.uint8), RNG.integers(-128, 128, (k, n), np.int8)
    zero_a, scale_b = RNG.integers(0, 256, m), RNG.random(n).astype(np.float32) + 0.5
    bias = RNG.integers(-1000, 1000, n).astype(np.int32)
    scale_c, zero_c = (700.0, 100) if out == "uint8" else (None, None)
    left, right = (put(x.T).T if isinstance(put(x), webmm.Array) else np.asfortranarray(x) for x in (a, b))
    operands = (left, right) if transposed else (put(a), put(b))
    got = webmm.qmatmul(*operands, 0.5, zero_a, scale_b, 3, scale_c, zero_c, bias=bias, out_dtype=out, device=there)
    scheme = Scheme(
        *(np.float32(0.5).reshape(()), zero_a.astype(np.int32), scale_b, np.array(3, np.int32)),
        *(scale_c, zero_c or 0, bias),
    )
    assert_array_equal(host(got), reference(a, b, scheme, webmm.dtypes.dtype_of(out)))


@pytest.mark.parametrize("sizes", [(200, 150, 190), (1000, 300, 40), (3, 4099, 70)], ids=str)
def test_products_with_weights(place, device, sizes):
    m, n, k = sizes
    there, put = place
    x, weights = floats(m, k), webmm.quantize_blocks(floats(k, n))
    given = weights.to(there) if isinstance(put(x), webmm.Array) else weights
    got = webmm.qmatmul_weights(put(x), given, device=there)
    assert_allclose(host(got), webmm.qmatmul_weights(x, weights, device=device), rtol=1e-5, atol=1e-4)


def test_aligned_pieces_are_used_in_place(bound, monkeypatch):
    a, b = (bound.array(RNG.integers(0, 9, shape, np.uint8)) for shape in ((4096, 16), (16, 16)))
    x, weights = bound.array(floats(16, 64)), webmm.quantize_blocks(floats(64, 2048)).to(bound)
    flat, moved = bound.array(floats(300, 200)), []
    take = Slots.take
    monkeypatch.setattr(Slots, "take", lambda *given: moved.append(given[3]) or take(*given))
    c = webmm.qmatmul(a, b, 1, 0, 1, 0, out_dtype="int32")
    webmm.gelu(flat)
    webmm.softmax(flat)
    webmm.reduce(flat, "sum", 1)
    assert moved == []
    webmm.reduce(flat, "sum", 0)
    assert sum(map(np.prod, moved)) < flat.size / 10, "only partial results are copied"
    assert_array_equal(c.numpy(), a.numpy().astype(np.int32) @ b.numpy())
    del x, weights


def test_long_dispatches_are_cut(device, monkeypatch):
    a, b = (device.array(RNG.integers(0, 9, shape, np.uint8)) for shape in ((1000, 64), (64, 300)))
    x, weights = device.array(floats(1000, 64)), webmm.quantize_blocks(floats(64, 300)).to(device)
    expected = webmm.qmatmul_weights(x, weights).numpy()
    device.plans.clear()  # the plan of the call above
    ran, run = [], Device.run
    monkeypatch.setattr(Device, "run", lambda *given: ran.append(given[2]) or run(*given))
    monkeypatch.setattr("webmm.choose.limits.dispatch_limits", lambda device: Limits(2**27, 2.0**24))
    monkeypatch.setattr(Slots, "take", None)  # pieces of the result are aligned for bindings: no copies
    products = webmm.qmatmul(a, b, 1, 0, 1, 0, out_dtype="int32"), webmm.qmatmul_weights(x, weights)
    monkeypatch.undo()
    assert_array_equal(products[0].numpy(), a.numpy().astype(np.int32) @ b.numpy())
    assert_allclose(products[1].numpy(), expected, rtol=1e-5, atol=1e-4)
    assert {problem.m for problem in ran if problem.op == "quantized"} == {256, 1000 % 256}
    assert {problem.m for problem in ran if problem.op == "weights"} == {256, 1000 % 256}


def test_smaller_pieces_are_tried_if_memory_runs_out(device, monkeypatch):
    x, limit, empty, refused = floats(300, 400), 2**14, Device.empty, []

    def scarce(self, shape, dtype="float32"):
        if np.prod(shape) * 4 > limit:
            refused.append(shape)
            raise MemoryLimitError("the device is out of memory")
        return empty(self, shape, dtype)

    expected = webmm.softmax(x, device=device)
    monkeypatch.setattr("webmm.calls.executor.LEAST_MEMORY", 2**12)
    monkeypatch.setattr(Device, "empty", scarce)
    assert_array_equal(webmm.softmax(x, device=device), expected)
    assert refused
    limit = 16
    with pytest.raises(MemoryLimitError):
        webmm.softmax(x, device=device)


def test_operands_larger_than_memory_are_read_from_memory_maps(small, tmp_path):
    x = np.memmap(tmp_path / "x", np.float16, "w+", shape=(70, 901))
    x[:] = whole(*x.shape, dtype=np.float16)
    assert_array_equal(webmm.reduce(x, "sum", 0, out_dtype="float32", device=small), x.astype(np.float32).sum(0))
    assert_allclose(webmm.softmax(x, device=small), softmax(x.astype(np.float64), 1), rtol=2e-3, atol=1e-7)


def test_empty_operands(place):
    there, put = place
    none, q = np.zeros((0, 300), np.float32), np.zeros((0, 3), np.uint8)
    assert host(webmm.gelu(put(none), device=there)).shape == (0, 300)
    assert host(webmm.softmax(put(none), device=there)).shape == (0, 300)
    assert_array_equal(host(webmm.reduce(put(none), "sum", 0, device=there)), np.zeros(300, np.float32))
    weights = webmm.quantize_blocks(np.ones((3, 4), np.float32))
    assert host(webmm.qmatmul_weights(put(np.zeros((0, 3), np.float32)), weights, device=there)).shape == (0, 4)
    b = put(np.zeros((3, 4), np.uint8))
    for zero in (0, np.zeros(0, np.int64)):
        assert host(webmm.qmatmul(put(q), b, 1, zero, 1, 0, device=there)).shape == (0, 4)
    nothing = webmm.qmatmul(put(q.T), put(q), 1, 0, 1, 0, bias=np.full(3, 7, np.int32), out_dtype="int32", device=there)
    assert_array_equal(host(nothing), np.full((3, 3), 7))


def test_streamed_products_without_elements(small):
    for a, b in (((0, 100), (100, 200)), ((200, 100), (100, 0)), ((0, 90, 90), (90, 90))):
        expected = np.zeros(a, np.float32) @ np.zeros(b, np.float32)
        assert_array_equal(webmm.matmul(np.zeros(a, np.float32), np.zeros(b, np.float32), device=small), expected)


def test_batches_larger_than_a_buffer(device):
    with Device(device.info.index, limits={"max-buffer-size": 2**16}) as narrow:
        a, b = whole(40, 32, 32), whole(32, 32)
        assert_array_equal(webmm.matmul(a, b, device=narrow), a @ b)


@pytest.mark.parametrize(
    ("kernel", "limit"),
    [
        (None, "max-storage-buffer-binding-size"),
        (Shared(8), "max-storage-buffer-binding-size"),
        (None, "max-buffer-size"),
    ],
    ids=str,
)
def test_files(device, tmp_path, kernel, limit):
    def narrow():
        return Device(device.info.index, limits={limit: 2**16})

    a, b = whole(300, 300), whole(300, 4)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    summary = report.multiply_files(tmp_path / "a.npy", tmp_path / "b.npy", tmp_path / "c.npy", kernel, narrow)
    assert_array_equal(np.load(tmp_path / "c.npy"), a @ b)
    assert "c.npy: 300×4 float32, by " in summary
    assert kernel is None or f"by {kernel} on" in summary


KEYS = 180  # of a head whose k or v, or whose row of the mask, takes more than a binding
IN_PARTS = [
    {},
    {"causal": "end", "window": (70, -1)},
    {"causal": "end", "lengths": np.array([180, 97]), "softcap": 2.0},
    {"mask": RNG.standard_normal((1, 4, 9, KEYS)).astype(np.float32), "window": (60, 20)},
    {"mask": RNG.random((9, KEYS)) > 0.9, "lengths": np.array([20, 0])},  # rows and parts without a key
]


@pytest.mark.parametrize("options", IN_PARTS, ids=lambda x: ",".join(x) or "plain")
@pytest.mark.parametrize("at", ["resident", "small"])
def test_attention_to_keys_beyond_a_binding(bound, small, at, options, monkeypatch):
    monkeypatch.setattr(choosing, "candidates", lambda *_: CHOSEN)  # small tiles
    device, put = next((device, put) for name, device, put in places(bound, small) if name == at)
    q, k, v = floats(2, 4, 9, 24), floats(2, 2, KEYS, 24), floats(2, 2, KEYS, 20)
    given = {name: put(x) if isinstance(x, np.ndarray) and name == "mask" else x for name, x in options.items()}
    found = webmm.attention(put(q), put(k), put(v), device=device, **given)
    assert_allclose(host(found), attended(q, k, v, **options), rtol=2e-5, atol=2e-5)


def test_attention_in_parts_keeps_large_scores_and_writes_to_out(bound, monkeypatch):
    monkeypatch.setattr(choosing, "candidates", lambda *_: CHOSEN)
    q, k, v = 30 * floats(1, 1, 2, 24), 30 * floats(1, 1, 400, 24), floats(1, 1, 400, 8)
    k[0, 0, 350] = q[0, 0, 0]  # far above those of the first two parts
    out = bound.zeros((1, 1, 2, 8), "float16")
    assert webmm.attention(bound.array(q), bound.array(k), bound.array(v), out=out) is out
    assert_allclose(host(out), attended(q, k, v), rtol=1e-3, atol=1e-3)
    k[0, 0, 3, 0] = np.nan
    assert np.isnan(webmm.attention(q, k, v, device=bound)).all()


def test_a_row_of_a_key_beyond_a_binding_is_refused(bound):
    with pytest.raises(UnsupportedError, match="the smallest piece takes"):
        webmm.attention(*(floats(1, 1, n, BINDING) for n in (1, 2, 2)), device=bound)
