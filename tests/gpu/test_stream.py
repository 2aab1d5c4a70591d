"""Products of NumPy arrays and memory maps that are larger than the device's memory."""

import itertools
import time
from dataclasses import replace

import numpy as np
import pytest

import webmm
from tests.sampled import crossed, pairwise, sampled
from webmm import Device, choose
from webmm.calls import executor, streamed
from webmm.cut import streams
from webmm.cut.pieces import lengths_of
from webmm.cut.streams import HELD, held_lengths, rows_at_a_time
from webmm.errors import MemoryLimitError, ProblemError, UnsupportedError
from webmm.kernels.gemm.naive import Naive
from webmm.wgsl.epilogues import ACTIVATIONS

RNG = np.random.default_rng(5)
MEMORY = 2**16


@pytest.fixture(scope="module")
def small(device):
    # Operands that are not streamed cannot be allocated.
    limits = {"max-buffer-size": MEMORY // 2, "max-storage-buffer-binding-size": MEMORY // 4}
    with Device(device.info.index, limits=limits) as small:
        small.memory = MEMORY
        yield small


@pytest.fixture(autouse=True)
def naive(monkeypatch):
    monkeypatch.setattr(choose, "choose", lambda *_, **__: Naive())


def whole(*shape, dtype=np.float32):
    return RNG.integers(-3, 4, shape).astype(dtype)


SHAPES = [
    ((90, 250), (250, 110)),
    ((151, 33), (33, 301)),
    ((3, 5001), (5001, 5)),
    ((20_001,), (20_001, 2)),
    ((2, 20_001), (20_001,)),
    ((20_001,), (20_001,)),
    ((40, 3, 10, 11), (3, 11, 9)),
    ((3, 100, 70), (70, 110)),
    ((100, 70), (2, 1, 70, 110)),
]


@pytest.mark.parametrize(("shapes", "order"), crossed(SHAPES, ["C", "T"]), ids=str)
def test_shapes(small, shapes, order, monkeypatch):
    left, right = shapes
    if order == "C":  # and few rows, as in long products
        monkeypatch.setattr(streams, "LEAST_ROWS", 8)
        monkeypatch.setattr(streams, "MOVED", 2**10)
    a, b = whole(*left), whole(*right)
    if order == "T":
        a, b = (np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) if x.ndim > 1 else x for x in (a, b))
    calls = []
    got = webmm.matmul(a, b, device=small, progress=lambda done, total: calls.append((done, total)))
    np.testing.assert_array_equal(got, a.astype(np.float64) @ b)
    assert len(calls) > 1
    assert calls == [(i, len(calls)) for i in range(1, len(calls) + 1)]


def test_memory_maps(small, tmp_path):
    a = np.memmap(tmp_path / "a", np.float16, "w+", shape=(127, 550))
    b = np.memmap(tmp_path / "b", np.float16, "w+", shape=(550, 103))
    c = np.memmap(tmp_path / "c", np.float32, "w+", shape=(150, 200))
    a[:], b[:], c[:] = whole(*a.shape), whole(*b.shape), -7
    part = c[10:137, 20:123]
    assert webmm.matmul(a, b, out=part, device=small) is not None
    np.testing.assert_array_equal(part, a.astype(np.float64) @ b)
    c[10:137, 20:123] = -7
    assert (c == -7).all(), "elements outside of out were written"


@pytest.mark.parametrize("dtype", sampled([np.float32, np.float16], first=1))
def test_epilogues(small, dtype):
    m, n, k = 50, 70, 400
    a, b = ((RNG.random(shape) - 0.5).astype(dtype) for shape in ((m, k), (k, n)))
    for kind, activation, out in pairwise([None, "row", "column"], [None, "gelu"], ["float32", "float16"]):
        bias = None if kind is None else RNG.random((m, 1) if kind == "row" else (n,)).astype(dtype)
        residual = RNG.random((m, n)).astype(np.float32) if kind != "row" else None
        settings = {"bias": bias, "activation": activation, "alpha": 0.5, "residual": residual, "out_dtype": out}
        got = webmm.matmul(a, b, device=small, **settings)
        value = 0.5 * (a.astype(np.float64) @ b.astype(np.float64)) + (0 if bias is None else bias)
        value = ACTIVATIONS[activation].reference(value) if activation else value
        scale = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)) + 3
        bound = (k * 2.0**-23 + 2e-6 + (2.0**-9 if out == "float16" else 0)) * scale
        assert (np.abs(got - (value + (0 if residual is None else residual))) <= bound).all(), settings


def test_smaller_pieces_are_tried_if_memory_runs_out(device, monkeypatch):
    a, b = whole(130, 140), whole(140, 150)
    limit, empty, refused = 2**15, Device.empty, []
    monkeypatch.setattr("webmm.calls.executor.LEAST_MEMORY", 2**12)

    def scarce(self, shape, dtype="float32"):
        if np.prod(shape) * 4 > limit:
            refused.append(shape)
            raise MemoryLimitError("the device is out of memory")
        return empty(self, shape, dtype)

    monkeypatch.setattr(Device, "empty", scarce)
    np.testing.assert_array_equal(webmm.matmul(a, b, device=device), a @ b)
    assert refused
    limit = 16
    with pytest.raises(MemoryLimitError):
        webmm.matmul(a, b, device=device)


def test_out(device):
    a, b = whole(20, 30), whole(30, 40)
    out = np.zeros((40, 20), np.float32).T
    assert webmm.matmul(a, b, out=out, device=device, progress=lambda *step: step) is not None
    np.testing.assert_array_equal(out, a @ b)
    half = np.zeros((20, 40), np.float16)
    webmm.matmul(a, b, out=half, device=device)
    np.testing.assert_array_equal(half, a @ b)
    with pytest.raises(
        ProblemError, match=r"out is float32 of shape \(2, 2\); the result is float32 of shape \(20, 40\)"
    ):
        webmm.matmul(a, b, out=np.zeros((2, 2), np.float32), device=device)
    with pytest.raises(ProblemError, match="a product of float32 cannot be stored as float64"):
        webmm.matmul(a, b, out=np.zeros((20, 40)), device=device)
    with pytest.raises(ProblemError, match="out must be an Array if an operand is an Array"):
        webmm.matmul(device.array(a), b, out=half)


def test_bad_input_of_a_stream(small):
    a = whole(300, 300)
    with pytest.raises(ProblemError, match="out overlaps a,"):
        webmm.matmul(a, a, out=a, device=small)
    with pytest.raises(ProblemError, match="bias has shape"):
        webmm.matmul(a, a, bias=whole(7), device=small)
    with pytest.raises(ProblemError, match="residual has shape"):
        webmm.matmul(a, a, residual=whole(7), device=small)
    with pytest.raises(ProblemError, match="inner sizes 300 and 7 differ"):
        webmm.matmul(a, whole(7, 300), device=small)
    with pytest.raises(UnsupportedError):
        small.array(a)
    np.testing.assert_array_equal(
        webmm.matmul(a[:, :0], a[:0], bias=a[0], activation="relu", device=small), np.maximum(a[0], 0) + a * 0
    )


def test_pieces_cover_the_product_once_within_memory():
    for sizes, memory, largest, beside in itertools.product(
        [(5, 7, 9), (1000, 1000, 1000), (1, 1, 10**6), (10**6, 3, 50), (129, 70_000, 65), (4000, 4000, 3000)],
        [2**12, 2**20, 2**28],
        [2**11, 2**30],
        [False, True],
    ):
        rows, columns, inner = shape = held_lengths(sizes, 4, 4, memory, largest, beside)
        slots = (1 if (rows, columns) == sizes[:2] else 2) + beside
        assert rows * columns * 4 * slots <= memory * 3 // 4
        assert (rows + columns) * inner * 8 <= memory // 4
        assert max(rows * columns, rows * inner, columns * inner) * 4 <= largest
        if np.prod([-(-size // step) for size, step in zip(sizes, shape, strict=True)]) > 5000:
            continue
        found = streams.streamed((2, 3), sizes, shape, rows_at_a_time(shape, 4, 4), 2)
        work = sum(np.prod([length for axis, length in lengths_of(piece).items() if axis != HELD]) for piece in found)
        assert work == 6 * np.prod(sizes)
        assert len({str(piece) for piece in found}) == len(found)
        assert all(piece.at[HELD][0] <= piece.at["m"][0] < piece.at["m"][1] <= piece.at[HELD][1] for piece in found)


def test_large_products_load_each_operand_once():
    # 16384³ in 2 GiB: C is one piece; the pieces of A and B are small.
    sizes = (16384, 16384, 16384)
    rows, columns, inner = shape = held_lengths(sizes, 4, 4, 2**31, 2**31 - 4, separate_sum=False)
    assert (rows, columns) == sizes[:2]
    assert 1024 <= inner <= 16384 / 8
    assert rows_at_a_time(shape, 4, 4) * inner * 4 <= 2**24


@pytest.fixture
def as_gpu(device, monkeypatch):
    """The device, treated as one that multiplies during transfers of any size."""
    monkeypatch.setattr(device, "info", replace(device.info, kind="discrete"))
    monkeypatch.setattr("webmm.calls.product.OVERLAP", 0)
    return device


def test_transfers_overlap_with_products(as_gpu, monkeypatch):
    """The next piece of B is uploaded in parts, between the rows of the current one, while the device computes."""
    monkeypatch.setattr(streams, "INNER", 256)
    monkeypatch.setattr(streams, "LEAST_ROWS", 64)
    monkeypatch.setattr(streams, "MOVED", 2**16)
    a, b, events, upload, run = whole(256, 512), whole(512, 256), [], Device.upload, Device.run
    monkeypatch.setattr(Device, "upload", lambda *args: (events.append(args[1].nbytes), upload(*args))[1])
    monkeypatch.setattr(Device, "run", lambda *args: (events.append("run"), run(*args))[1])
    np.testing.assert_array_equal(webmm.matmul(a, b, device=as_gpu), a.astype(np.float64) @ b)
    ran = [i for i, event in enumerate(events) if event == "run"]
    between = [sum(events[i + 1 : j]) for i, j in itertools.pairwise(ran)]
    assert sum(e for e in events if e != "run") == a.nbytes + b.nbytes, "an operand was uploaded twice"
    assert max(between) < b.nbytes // 2, "a piece was uploaded at once"


def test_new_results_are_paged_in_before_they_are_written(as_gpu, monkeypatch):
    monkeypatch.setattr(streams, "INNER", 64)
    monkeypatch.setattr(streams, "LEAST_ROWS", 64)
    monkeypatch.setattr(streams, "MOVED", 2**14)
    touched = []

    def late(rows):
        time.sleep(2)
        rows[...] = -1
        touched.append(rows.shape)

    monkeypatch.setattr(executor, "_touch", late)
    a, b, out = whole(256, 256), whole(256, 192), np.full((256, 192), 7, np.float32)
    webmm.matmul(a, b, out=out, device=as_gpu)  # also compiles, which takes longer than the delay
    assert not touched, "the caller's array was written to"
    np.testing.assert_array_equal(webmm.matmul(a, b, device=as_gpu), a.astype(np.float64) @ b)
    assert touched == [(64, 192)] * 4


def test_out_that_is_an_operand(as_gpu):
    a = whole(64, 64)
    expected = a @ a
    assert np.array_equal(webmm.matmul(a, a, out=a, device=as_gpu), expected)


@pytest.mark.parametrize("out", ["float32", "float16"])
def test_batches_are_transferred_in_groups(as_gpu, monkeypatch, out):
    monkeypatch.setattr(streamed, "BATCH_BYTES", 2**14)
    a, b, calls = whole(7, 20, 30), whole(7, 30, 20), []
    got = webmm.matmul(a, b, out_dtype=out, device=as_gpu, progress=lambda done, total: calls.append((done, total)))
    np.testing.assert_array_equal(got, a.astype(np.float64) @ b)
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_large_pieces_have_high_intensity():
    # 32768³ in 2 GiB: few passes over A and B.
    rows, columns, inner = held_lengths((32768, 32768, 32768), 4, 4, 2**31, 2**31 - 4)
    assert min(rows, columns) >= 8192
    assert inner >= 256


def test_out_in_the_file_of_an_operand(small, tmp_path):
    """A second memory map of a file has another address."""
    host = whole(320, 160)
    np.save(tmp_path / "a.npy", host)
    a = np.load(tmp_path / "a.npy", mmap_mode="r")
    out = np.load(tmp_path / "a.npy", mmap_mode="r+")
    with pytest.raises(ProblemError, match="out overlaps a,"):
        webmm.matmul(a[:160], whole(160, 160), out=out[:160], device=small)
    assert np.array_equal(a, host)
    b = whole(160, 160)
    assert np.array_equal(webmm.matmul(a[:160], b, out=out[160:], device=small), host[:160] @ b), "other bytes"


def test_out_between_the_elements_of_an_operand(small):
    both, b = whole(160, 320), whole(160, 160)
    expected = both[:, ::2] @ b
    assert np.array_equal(webmm.matmul(both[:, ::2], b, out=both[:, 1::2], device=small), expected)
