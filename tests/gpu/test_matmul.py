"""`matmul` and `gemm`: NumPy's shapes, views that are not copied, epilogues, and clear errors."""

import asyncio
import itertools
import threading

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import webmm
from tests.sampled import crossed
from webmm.errors import ProblemError, UnsupportedError
from webmm.measure.verify import worst_error
from webmm.wgsl.epilogues import ACTIVATIONS

RNG = np.random.default_rng(7)


def integers(*shape, dtype=np.float32):
    """Return small whole numbers: their products and sums are exact."""
    return RNG.integers(-3, 4, shape).astype(dtype)


def exactly(got, a, b):
    expected = np.matmul(a.astype(np.float64), b.astype(np.float64))
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


BATCHES = [
    ((5, 7), (7, 3)),
    ((1, 1), (1, 1)),
    ((7,), (7, 3)),
    ((5, 7), (7,)),
    ((7,), (7,)),
    ((4, 5, 7), (7, 3)),
    ((5, 7), (4, 7, 3)),
    ((4, 5, 7), (4, 7, 3)),
    ((2, 1, 5, 7), (1, 3, 7, 3)),
    ((2, 3, 5, 7), (3, 7, 3)),
    ((2, 3, 5, 7), (2, 1, 7, 3)),
    ((3, 5, 7), (7,)),
    ((7,), (3, 7, 4)),
    ((1, 6, 8), (5, 8, 4)),
    ((0, 7), (7, 3)),
    ((5, 0), (0, 3)),
    ((5, 7), (7, 0)),
    ((0, 5, 7), (7, 3)),
    ((0,), (0,)),
]


@pytest.mark.parametrize(("left", "right"), BATCHES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_shapes_follow_numpy(device, left, right, dtype):
    a, b = integers(*left, dtype=dtype), integers(*right, dtype=dtype)
    exactly(webmm.matmul(a, b, device=device), a, b)
    resident = device.array(a) @ device.array(b)
    assert isinstance(resident, webmm.Array)
    exactly(resident.numpy(), a, b)


def test_views_are_read_in_place(device):
    a, b = integers(12, 16), integers(12, 16)
    A, B = device.array(a), device.array(b)
    views = {
        "transposed": (A.T, a.T, B, b),
        "other transposed": (A, a, B.T, b.T),
        "rows": (A[2:9], a[2:9], B.T, b.T),
        "columns": (A[:, 3:11], a[:, 3:11], B[:8], b[:8]),
        "steps of rows": (A[::3], a[::3], B.T, b.T),
        "one column": (A[:, 4:5], a[:, 4:5], B[:1], b[:1]),
        "reshaped": (A.reshape(3, 4, 16), a.reshape(3, 4, 16), B.T, b.T),
        "batch of columns": (A.reshape(3, 4, 16)[:, 1:3, 2:6], a.reshape(3, 4, 16)[:, 1:3, 2:6], B[:4], b[:4]),
    }
    for name, (left, x, right, y) in views.items():
        assert left.storage is A.storage, name
        got = left @ right
        np.testing.assert_array_equal(got.numpy(), x.astype(np.float64) @ y, err_msg=name)
        np.testing.assert_array_equal(left.numpy(), x, err_msg=name)


def test_views_without_a_unit_stride_are_copied(device):
    a, b = integers(6, 20), integers(10, 4)
    np.testing.assert_array_equal((device.array(a)[::2, ::2] @ device.array(b)).numpy(), a[::2, ::2] @ b)
    np.testing.assert_array_equal((device.array(a)[::-1, :10] @ device.array(b)).numpy(), a[::-1, :10] @ b)


@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy_arrays_of_any_layout(device, order):
    a, b = np.asarray(integers(9, 13), order=order), np.asarray(integers(13, 6), order=order)
    exactly(webmm.matmul(a, b, device=device), a, b)
    exactly(webmm.matmul(a[::2, 1:], b[1:, ::-1], device=device), a[::2, 1:], b[1:, ::-1])
    exactly(webmm.matmul(np.broadcast_to(a, (3, 9, 13)), b, device=device), np.broadcast_to(a, (3, 9, 13)), b)


def reference(a, b, alpha=1.0, bias=None, activation=None, residual=None):
    value = alpha * np.matmul(a.astype(np.float64), b.astype(np.float64))
    value = value if bias is None else value + bias.astype(np.float64)
    value = ACTIVATIONS[activation].reference(value) if activation else value
    return value if residual is None else value + residual.astype(np.float64)


EPS = {np.float32: 0.0, np.float16: 2.0**-10, ml_dtypes.bfloat16: 2.0**-7}  # relative error of rounding the result


COMBINATIONS = list(
    itertools.product([(33, 17, 29), (64, 128, 32)], [None, "column", "row"], [(), (3,)], ["nn", "nt", "tn", "tt"])
)


@pytest.mark.parametrize(("activation", "dtype"), crossed([None, *ACTIVATIONS], EPS, step=3))
def test_epilogues(device, activation, dtype):
    """Each activation and dtype with other combinations: compiling a shader for each takes minutes."""
    first = [None, *ACTIVATIONS].index(activation)
    turn = 13 * (first + 5 * list(EPS).index(dtype))  # 13 and 48 have no common factor
    for i in (turn, turn + 29) if dtype == np.float32 else (turn,):
        (m, n, k), kind, batch, layout = COMBINATIONS[i % len(COMBINATIONS)]
        a = ((RNG.random((*batch, m, k)) - 0.5) * 4).astype(dtype)
        b = ((RNG.random((k, n)) - 0.5) * 4).astype(dtype)
        bias = None if kind is None else (RNG.random((n,) if kind == "column" else (m, 1)) - 0.5).astype(dtype)
        residual = RNG.random((*batch, m, n)).astype(dtype)
        given_a = np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2) if layout[0] == "t" else a
        given_b = np.asfortranarray(b) if layout[1] == "t" else b
        settings = {"bias": bias, "activation": activation, "alpha": 0.75, "residual": residual}
        got = webmm.matmul(given_a, given_b, device=device, **settings)
        assert got.dtype == dtype
        expected = reference(a, b, **settings)
        # The activations' slopes are at most 1.13; A&S 7.1.26 adds 1.5e-7 of the argument.
        scale = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)) + 2 + np.abs(expected)
        bound = (1.2 * k * 2.0**-23 + 2e-6 + EPS[dtype]) * scale
        assert (np.abs(got.astype(np.float64) - expected) <= bound).all(), (m, n, k, kind, batch, layout)


def test_activations_carry_infinities_and_nan(device):
    x = np.array([[np.nan, np.inf, 30.0, -30.0, 1e30, -1e30, 0.0]], np.float32)
    one = np.ones((1, 1), np.float32)
    for name, activation in ACTIVATIONS.items():
        with np.errstate(all="ignore"):
            expected = activation.reference(x.astype(np.float64))
        got = webmm.matmul(one, x, activation=name, device=device)
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6, err_msg=name)


def test_out_dtype(device):
    a, b = integers(5, 300, dtype=np.float16), integers(300, 6, dtype=np.float16)
    wide = webmm.matmul(a, b, out_dtype="float32", device=device)
    assert wide.dtype == np.float32
    exactly(wide, a, b)
    narrow = webmm.matmul(a.astype(np.float32), b.astype(np.float32), out_dtype=np.float16, device=device)
    assert narrow.dtype == np.float16
    exactly(narrow, a, b)


def test_gemm_in_place(device):
    a, b, c = integers(9, 7), integers(7, 11), integers(9, 11)
    A, B, C = map(device.array, (a, b, c))
    assert webmm.gemm(A, B, C, alpha=2.0, beta=-3.0) is C
    np.testing.assert_array_equal(C.numpy(), 2 * (a @ b) - 3 * c)


def test_gemm_into_views_writes_only_the_view(device):
    a, b = integers(4, 7), integers(7, 5)
    for view in (np.s_[2:6, 3:8], np.s_[2:10:2, :5]):
        host = integers(12, 12)
        target = device.array(host)
        webmm.gemm(device.array(a), device.array(b), target[view], beta=1.0)
        host[view] += a @ b
        np.testing.assert_array_equal(target.numpy(), host)
    host = integers(5, 4)
    target = device.array(host)
    webmm.gemm(device.array(a), device.array(b), target.T, beta=2.0)
    np.testing.assert_array_equal(target.numpy(), (a @ b).T + 2 * host)


def test_beta_zero_does_not_read_c(device):
    a, b = integers(4, 4), integers(4, 4)
    C = device.array(np.full((4, 4), np.nan, np.float32))
    webmm.gemm(device.array(a), device.array(b), C, beta=0.0)
    np.testing.assert_array_equal(C.numpy(), a @ b)


@pytest.mark.parametrize("m", [pytest.param(1, marks=pytest.mark.long), 3])
def test_k_beyond_the_loop_limit(device, m):
    # lavapipe stops loops after 65,535 iterations, each of 16 steps of k in most kernels.
    a, b = integers(m, 2**20 + 1), integers(2**20 + 1, 2)
    exactly(webmm.matmul(a if m == 1 else np.asfortranarray(a), b, device=device), a, b)


def test_the_second_call_compiles_nothing(device):
    a, b = integers(40, 24), integers(24, 56)
    webmm.matmul(a, b, device=device)
    before = device.pipelines.compilations
    webmm.matmul(a + 1, b, device=device)
    assert device.pipelines.compilations == before


def test_async(device):
    a, b = integers(20, 30), integers(30, 10)

    async def both():
        return await asyncio.gather(*(webmm.matmul_async(a + i, b, device=device) for i in range(4)))

    for i, got in enumerate(asyncio.run(both())):
        exactly(got, a + i, b)


def test_threads_share_a_device(device):
    failures = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(15):
            m, n, k = rng.integers(1, 50, 3)
            a, b = (rng.integers(-3, 4, s).astype(np.float32) for s in ((m, k), (k, n)))
            if not np.array_equal(webmm.matmul(a, b, device=device), a @ b):
                failures.append((seed, m, n, k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@settings(max_examples=30)
@given(
    sizes=st.tuples(*[st.integers(1, 70)] * 3),
    batch=st.sampled_from([((), ()), ((2,), ()), ((), (3,)), ((2,), (2,)), ((2, 1), (3,)), ((1,), (4,))]),
    turned=st.tuples(st.booleans(), st.booleans()),
    seed=st.integers(0, 2**16),
)
def test_any_batch_and_layout(device, sizes, batch, turned, seed):
    rng = np.random.default_rng(seed)
    m, n, k = sizes
    shapes = [(*batch[0], m, k), (*batch[1], k, n)]
    operands = []
    for shape, turn in zip(shapes, turned, strict=True):
        stored = (*shape[:-2], shape[-1], shape[-2]) if turn else shape
        host = (rng.random(stored) - 0.5).astype(np.float32)
        operands.append((device.array(host).mT, host.swapaxes(-1, -2)) if turn else (device.array(host), host))
    (A, a), (B, b) = operands
    got = (A @ B).numpy()
    expected = a @ b
    assert got.shape == expected.shape
    a, b = np.broadcast_to(a, (*expected.shape[:-2], m, k)), np.broadcast_to(b, (*expected.shape[:-2], k, n))
    for index in np.ndindex(expected.shape[:-2]):
        assert worst_error(got[index], a[index], b[index]) <= k * 2.0**-23


ERRORS = {
    "inner sizes": (lambda a: webmm.matmul(a, a[:2]), "inner sizes 4 and 2 differ"),
    "batches": (lambda a: webmm.matmul(np.ones((2, 4, 4), "f4"), np.ones((3, 4, 4), "f4")), "do not broadcast"),
    "dtypes differ": (lambda a: webmm.matmul(a, a.astype(np.float16)), "cast one"),
    "complex": (lambda a: webmm.matmul(a.astype(complex), a.astype(complex)), "cast to"),
    "objects": (lambda a: webmm.matmul(a.astype(object), a.astype(object)), "cast to"),
    "strings": (lambda a: webmm.matmul([["x"]], [["y"]]), "cast to"),
    "a number": (lambda a: webmm.matmul(a, np.float32(2)), "alpha="),
    "activation": (lambda a: webmm.matmul(a, a, activation="tanhh"), "choose from relu"),
    "bias": (lambda a: webmm.matmul(a, a, bias=np.ones(3, np.float32)), "bias has shape (3,)"),
    "bias dtype": (lambda a: webmm.matmul(a, a, bias=np.ones(4, np.float16)), "bias is float16"),
    "residual": (lambda a: webmm.matmul(a, a, residual=np.ones((4, 3), np.float32)), "residual has shape (4, 3)"),
    "out_dtype": (lambda a: webmm.matmul(a, a, out_dtype="int8"), "not supported"),
    "out of neither kind": (lambda a: webmm.matmul(a, a, out=a.tolist()), "out must be an Array if"),
    "out on the host": (
        lambda a: webmm.matmul(webmm.from_dlpack(a), a, out=a.copy()),
        "an Array if an operand is an Array",
    ),
    "out of another shape": (
        lambda a: webmm.matmul(a, a, out=webmm.from_dlpack(a[1:])),
        "of shape (3, 4); the result is",
    ),
    "out that repeats": (
        lambda a: webmm.matmul(a, a, out=webmm.from_dlpack(a)[:1].broadcast_to((4, 4))),
        "out repeats its elements",
    ),
    "out read-only": (lambda a: webmm.matmul(a, a, out=np.broadcast_to(a[0], (4, 4))), "out is read-only"),
    "alpha": (lambda a: webmm.matmul(a, a, alpha="2x"), "alpha must be a number"),
    "gemm on the host": (lambda a: webmm.gemm(a, a, a), "device.array"),
}


@pytest.mark.parametrize(("call", "words"), ERRORS.values(), ids=ERRORS)
def test_errors_say_what_to_do(device, call, words):
    with pytest.raises(ProblemError) as caught:
        call(np.ones((4, 4), np.float32))
    assert words in str(caught.value)


def test_gemm_refuses_to_overwrite_an_operand(device):
    A = device.array(np.ones((4, 4), np.float32))
    with pytest.raises(ProblemError, match="shares its buffer"):
        webmm.gemm(A, device.array(np.ones((4, 4), np.float32)), A)


@pytest.mark.parametrize("shape", [(4, 4), (2, 1, 4), (1, 1, 4)])
def test_gemm_does_not_broadcast_matrices(device, shape):
    a, b = device.array(integers(4, 3))[:1], device.array(integers(3, 4))
    if len(shape) == 3:
        a = a.broadcast_to((3, 1, 3))
    with pytest.raises(ProblemError, match="same last two axes"):
        webmm.gemm(a, b, device.array(np.zeros(shape, np.float32)))


def test_gemm_refuses_a_result_that_repeats_its_elements(device):
    a, b, C = device.array(integers(2, 4, 3)), device.array(integers(3, 4)), device.array(integers(4, 4))
    for c in (C.broadcast_to((2, 4, 4)), C[:1].broadcast_to((4, 4))):
        with pytest.raises(ProblemError, match="repeats its elements"):
            webmm.gemm(a if c.ndim == 3 else a[0], b, c)


@pytest.mark.parametrize("beta", [0.0, 2.0])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_gemm_over_no_inner_elements(device, dtype, beta):
    host = integers(3, 6, 7, dtype=dtype)
    for view in (np.s_[...], np.s_[:, 1:4, 3:6], np.s_[1]):
        with device.array(host) as target, device.empty((6, 0), dtype) as a, device.empty((0, 7), dtype) as b:
            c = target[view]
            webmm.gemm(a[: c.shape[-2]], b[:, : c.shape[-1]], c, beta=beta)
            expected = host.copy()
            expected[view] *= np.dtype(dtype).type(beta)
            np.testing.assert_array_equal(target.numpy(), expected)


def test_out_is_returned_in_either_byte_order(device):
    a, b = integers(5, 3), integers(3, 4)
    for order in "<>":
        out = np.zeros((5, 4), np.float32).astype(f"{order}f4")
        assert webmm.matmul(a.astype(">f4"), b.astype("<f4"), out=out, device=device) is out
        exactly(out, a, b)


def test_a_residual_must_be_on_the_same_device(device):
    a = device.array(integers(4, 4))
    with webmm.Device() as other, pytest.raises(ProblemError, match="different devices"):
        webmm.matmul(a, a, residual=other.array(integers(4, 4)))


def test_out_on_the_device(device):
    a, b = integers(5, 6), integers(6, 7)
    x, y, wide = device.array(a), device.array(b), device.zeros((9, 20))
    views = {
        "dense": device.empty((5, 7)),
        "a window": wide[2:7, 3:10],
        "transposed": device.empty((7, 5)).T,
        "float16": device.empty((5, 7), "float16"),
    }
    for _ in range(2):
        for out in views.values():
            for left in (x, a):
                assert webmm.matmul(left, y, out=out, alpha=2.0) is out
                assert np.array_equal(out.numpy(), 2 * (a @ b))
    row = device.empty((7,))
    assert webmm.matmul(x[1], y, bias=y[0], out=row) is row
    assert np.array_equal(row.numpy(), a[1] @ b + b[0])
    assert np.array_equal(webmm.matmul(x, y, out=views["dense"], residual=a @ b).numpy(), 2 * (a @ b))
    around = wide.numpy()
    around[2:7, 3:10] = 0
    assert not around.any()


# Calls that must not write to `out`, given arrays a and b and a residual r of shape (5, 5), a vector v, and out, which
# is another array over the buffer of `a` where the name says so.
REFUSED_OUT = {
    "out is a": (lambda a, b, r, v: webmm.matmul(a, b, residual=r, out=a), "shares its buffer with a,"),
    "out is b": (lambda a, b, r, v: webmm.matmul(a, b[::-1], residual=r, out=b), "shares its buffer with b,"),
    "a reversed, which is copied": (lambda a, b, r, v: webmm.matmul(a[::-1], b, residual=r, out=a), "with a,"),
    "a transposed": (lambda a, b, r, v: webmm.matmul(a.T, b, residual=r, out=a), "with a,"),
    "rows of one buffer": (lambda a, b, r, v: webmm.matmul(a[:2, :2], b[:2, :2], out=a[3:, 3:]), "with a,"),
    "bias": (lambda a, b, r, v: webmm.matmul(b, b, bias=a[0, ::-1], residual=r, out=a), "with bias,"),
    "shape of the bias": (lambda a, b, r, v: webmm.matmul(b, b, bias=v[:3], residual=r, out=a), "bias has shape"),
    "shape of the residual": (lambda a, b, r, v: webmm.matmul(b, b, residual=v, out=a), "residual has shape"),
    "precision": (lambda a, b, r, v: webmm.matmul(b, b, residual=r, out=a, precision="low"), "precision must be"),
    "a residual elsewhere": (
        lambda a, b, r, v: webmm.matmul(b, b, residual=webmm.Device().array(r.numpy()), out=a),
        "different devices",
    ),
    "gemm": (lambda a, b, r, v: webmm.gemm(b, a, a, beta=1.0), "c shares its buffer with b,"),
    "gemm, a reversed": (lambda a, b, r, v: webmm.gemm(a[::-1], b, a, beta=1.0), "c shares its buffer with a,"),
    "gemm over nothing": (lambda a, b, r, v: webmm.gemm(a[:, :0], b[:0], a), "c shares its buffer with a,"),
    "panels, one after another": (
        lambda a, b, r, v: webmm.matmul([b, a], [r, r], out=[a, a.device.zeros((5, 5))]),
        "out of panel 1 shares its buffer with a of panel 2,",
    ),
    "one out for all panels": (lambda a, b, r, v: webmm.matmul([b, b], [r, r], out=a), "one array for each panel"),
    "a later panel": (
        lambda a, b, r, v: webmm.matmul([b, b], [r, r[1:]], out=[a, a.device.zeros((5, 5))]),
        "inner sizes",
    ),
}


@pytest.mark.parametrize(("call", "words"), REFUSED_OUT.values(), ids=REFUSED_OUT)
def test_a_refused_out_is_not_written(device, call, words):
    hosts = integers(5, 5), integers(5, 5), integers(5, 5), integers(5)
    arrays = [device.array(host) for host in hosts]
    with pytest.raises(ProblemError) as caught:
        call(*arrays)
    assert words in str(caught.value)
    for array, host in zip(arrays, hosts, strict=True):
        assert np.array_equal(array.numpy(), host)


def test_a_freed_bias_is_noticed_before_out_is_written(device):
    a, c = device.array(integers(5, 5)), device.zeros((5, 5))
    bias = device.zeros((5,))
    bias.free()
    with pytest.raises(webmm.errors.FreedArrayError):
        webmm.matmul(a, a, bias=bias, residual=a, out=c)
    assert not c.numpy().any()


def test_no_kernel_is_noticed_before_out_is_written(device, monkeypatch):
    def none(*_, **__):
        raise UnsupportedError("no kernel")

    a, c = device.array(integers(5, 5)), device.zeros((5, 5))
    monkeypatch.setattr("webmm.choose.choose", none)
    with pytest.raises(UnsupportedError):
        webmm.matmul(a, a, residual=a, out=c)
    assert not c.numpy().any()


VIEWS_OF_OUT = {
    "out": lambda out: out,
    "reversed": lambda out: out[::-1],
    "transposed": lambda out: out.T,
    "broadcast": lambda out: out[:1].broadcast_to((5, 5)),
}


@pytest.mark.parametrize("view", VIEWS_OF_OUT.values(), ids=VIEWS_OF_OUT)
def test_a_residual_may_be_any_view_of_out(device, view):
    a, b, c = integers(5, 5), integers(5, 5), integers(5, 5)
    x, y, z = map(device.array, (a, b, c))
    for _ in range(2):  # recorded and replayed
        expected = a @ b + view(device.array(c)).numpy()
        assert webmm.matmul(x, y, residual=view(z), out=z) is z
        assert np.array_equal(z.numpy(), expected)
        c = expected


def test_a_residual_that_is_out_may_be_a_window(device):
    wide, a = integers(7, 9), integers(5, 5)
    whole, x = device.array(wide), device.array(a)
    webmm.matmul(x, x, residual=whole[1:6, 2:7], out=whole[1:6, 2:7])
    wide[1:6, 2:7] += a @ a
    assert np.array_equal(whole.numpy(), wide)


def test_two_arrays_over_one_wrapped_buffer_overlap(device):
    kept = device.array(integers(5, 5))
    first, second, other = (device.wrap(kept.storage.buffer, (5, 5)) for _ in range(3))
    b = device.array(integers(5, 5))
    assert webmm.matmul(first, second, out=b) is b
    with pytest.raises(ProblemError, match="shares its buffer"):
        webmm.matmul(first, b, out=other)
    assert np.array_equal(device.array(first.numpy()).numpy(), kept.numpy())
