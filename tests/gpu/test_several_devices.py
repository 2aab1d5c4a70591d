"""One product on several devices: two devices on one adapter represent two GPUs."""

import threading
from dataclasses import replace

import numpy as np
import pytest

import webmm
from webmm import Device, DeviceLostError, ProblemError, choose
from webmm.calls import divided
from webmm.cut import devices as cut
from webmm.engine.wgpu import Wgpu
from webmm.kernels.gemm.naive import Naive
from webmm.wgsl.epilogues import ACTIVATIONS

RNG = np.random.default_rng(17)


@pytest.fixture(autouse=True)
def naive(monkeypatch):
    monkeypatch.setattr(divided, "_rates", {})
    monkeypatch.setattr(divided.tuned, "rate", lambda *_: 0.0)  # whatever other tests have tuned in this process
    monkeypatch.setattr(choose, "choose", lambda *_, **__: Naive())


@pytest.fixture
def pair(device, monkeypatch):
    """Two devices, between which every product is divided, however small."""
    monkeypatch.setattr(cut, "START", -1.0)
    monkeypatch.setattr(divided, "HOST", float("inf"))
    with Device(device.info.index) as one, Device(device.info.index) as two:
        yield [one, two]


@pytest.fixture
def calls(monkeypatch):
    """A list of (device, sizes) of the computed pieces."""
    heard, run = [], divided._Job._compute

    def compute(job, piece, device):
        heard.append((device, cut.sizes_of(piece) if "m" in piece.at else ()))  # no sizes of a batch
        run(job, piece, device)

    monkeypatch.setattr(divided._Job, "_compute", compute)
    return heard


def whole(*shape, dtype=np.float32):
    return RNG.integers(-3, 4, shape).astype(dtype)


def test_a_product_is_divided_between_two_devices(pair, calls):
    a, b, heard = whole(301, 70), whole(70, 203), []
    got = webmm.matmul(a, b, devices=pair, progress=lambda done, total: heard.append((done, total)))
    np.testing.assert_array_equal(got, a @ b)
    assert {device for device, _ in calls} == set(pair)
    assert sum(m * n for _, (m, n, _) in calls) == a.shape[0] * b.shape[1]
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)
    assert heard[-1] == (got.size, got.size)


def test_memory_maps_in_little_device_memory(pair, tmp_path):
    a = np.memmap(tmp_path / "a", np.float16, "w+", shape=(131, 300))
    b = np.memmap(tmp_path / "b", np.float16, "w+", shape=(300, 90))
    c = np.memmap(tmp_path / "c", np.float32, "w+", shape=(131, 90))
    a[:], b[:] = whole(*a.shape), whole(*b.shape)
    for device in pair:
        device.memory = 2**16
    assert webmm.matmul(a, b, out=c, devices=pair) is c
    np.testing.assert_array_equal(c, a.astype(np.float64) @ b)


@pytest.mark.parametrize("bias", [None, "row", "column"])
def test_epilogues(pair, calls, bias):
    a, b, residual = (RNG.random(shape).astype(np.float32) for shape in ((130, 40), (40, 90), (130, 90)))
    added = None if bias is None else RNG.random((130, 1) if bias == "row" else (90,)).astype(np.float32)
    got = webmm.matmul(a, b, bias=added, activation="gelu", residual=residual, alpha=0.5, devices=pair)
    value = 0.5 * (a.astype(np.float64) @ b) + (0 if added is None else added)
    np.testing.assert_allclose(got, ACTIVATIONS["gelu"].reference(value) + residual, rtol=1e-4, atol=1e-5)
    assert len(calls) == 2


@pytest.mark.parametrize(("left", "right"), [((5, 20, 30), (5, 30, 10)), ((4, 3, 20, 30), (3, 30, 10)), ((9, 8), (8,))])
def test_batches_and_vectors(pair, left, right):
    a, b = whole(*left), whole(*right)
    np.testing.assert_array_equal(webmm.matmul(a, b, devices=pair), a @ b)


def test_pieces_are_proportional_to_rates(pair, calls, monkeypatch):
    monkeypatch.setattr(divided, "rate_of", lambda device, dtype: 3e9 if device is pair[0] else 1e9)
    a, b = whole(512, 30), whole(30, 20)
    np.testing.assert_array_equal(webmm.matmul(a, b, devices=pair), a @ b)
    assert {device: m * n for device, (m, n, _) in calls} == {pair[0]: 384 * 20, pair[1]: 128 * 20}


def test_a_cpu_is_not_used_next_to_a_gpu(pair, calls, monkeypatch):
    for one, kind in zip(pair, ("cpu", "discrete"), strict=True):
        monkeypatch.setattr(one, "info", replace(one.info, kind=kind))
    a = whole(200, 200)
    np.testing.assert_array_equal(webmm.matmul(a, a, devices=pair), a @ a)
    assert divided.chosen(pair) == [pair[1]]


def test_long_products_measure_the_rates(pair, monkeypatch):
    before = divided.rate_of(pair[0], webmm.problems.gemm.F32)
    assert before == divided.ASSUMED_RATE[pair[0].info.kind]
    monkeypatch.setattr(divided, "LONG", 0.0)
    webmm.matmul(whole(64, 64), whole(64, 64), devices=pair)
    assert divided._rates[pair[0].info.name, "float32"] != before
    assert divided.rate_of(pair[1], webmm.problems.gemm.F32) == divided._rates[pair[0].info.name, "float32"]


def test_small_products_use_one_device(device, calls):
    with Device(device.info.index) as other:
        a = whole(20, 20)
        np.testing.assert_array_equal(webmm.matmul(a, a, devices=[device, other]), a @ a)
    assert len(calls) == 1


def test_the_other_device_takes_over_after_a_loss(pair, calls, monkeypatch):
    run, lost = divided._Job._compute, threading.Event()

    def compute(job, piece, device):
        if device is pair[1]:
            job.labelled["c"].within(piece).data[:] = -1  # a partial result
            device.wgpu_device.destroy()
            lost.set()
        else:
            lost.wait()
        run(job, piece, device)

    monkeypatch.setattr(divided._Job, "_compute", compute)
    a, b = whole(300, 50), whole(50, 100)
    np.testing.assert_array_equal(webmm.matmul(a, b, devices=pair), a @ b)
    assert calls[-1][0] is pair[0]
    assert pair[1].lost
    pair[0].wgpu_device.destroy()
    with pytest.raises(DeviceLostError):
        webmm.matmul(a, b, devices=pair)


def test_an_error_of_one_piece_is_raised(pair, monkeypatch):
    def compute(job, piece, device):
        raise ProblemError("this cannot be")

    monkeypatch.setattr(divided._Job, "_compute", compute)
    with pytest.raises(ProblemError, match="this cannot be"):
        webmm.matmul(whole(30, 30), whole(30, 30), devices=pair)


def test_panels_on_devices(pair):
    a, b, bias = whole(40, 30), whole(30, 20), whole(20)
    left = [device.array(a[20 * i : 20 * i + 20]) for i, device in enumerate(pair)]
    right = [device.array(b) for device in pair]
    got = webmm.matmul(left, right, bias=bias)
    assert [x.device for x in got] == pair
    np.testing.assert_array_equal(np.concatenate([x.numpy() for x in got]), a @ b + bias)
    assert webmm.matmul(left, b)[1].device is pair[1]
    with pytest.raises(ProblemError, match="must have equal lengths, not 2, 1"):
        webmm.matmul(left, right[:1])


def test_bad_input(pair, device):
    a = whole(30, 30)
    with pytest.raises(ProblemError, match='devices must be "all" or a list of Devices'):
        webmm.matmul(a, a, devices="both")
    with pytest.raises(ProblemError, match='devices must be "all" or a list of Devices'):
        webmm.matmul(a, a, devices=[0, 1])
    with pytest.raises(ProblemError, match="exclude each other"):
        webmm.matmul(a, a, devices=pair, device=device)
    with pytest.raises(ProblemError, match="one panel per device"):
        webmm.matmul(device.array(a), a, devices=pair)
    with pytest.raises(ProblemError, match=r"out is float32 of shape \(7, 30\)"):
        webmm.matmul(a, a, devices=pair, out=whole(7, 30))
    with pytest.raises(ProblemError, match="bias has shape"):
        webmm.matmul(a, a, devices=pair, bias=whole(7))
    with pytest.raises(ProblemError, match="residual has shape"):
        webmm.matmul(a, a, devices=pair, residual=whole(7))
    with pytest.raises(ProblemError, match="inner sizes"):
        webmm.matmul(a, whole(7, 7), devices=pair)


def test_out_that_is_an_operand(pair):
    a = whole(40, 40)
    expected = a @ a
    assert webmm.matmul(a, a, out=a, devices=pair) is a
    np.testing.assert_array_equal(a, expected)


def test_equal_adapters_are_numbered(device, monkeypatch):
    adapters = Wgpu.adapters
    monkeypatch.setattr(Wgpu, "adapters", lambda engine: adapters(engine) + adapters(engine))
    monkeypatch.setenv("WEBMM_ADAPTER", f"{device.info.name.split()[0]} #2")
    with Device() as second:
        assert second.info.twin == 2
        assert f"{device.info.name} #2 (" in str(second.info)
    monkeypatch.setenv("WEBMM_ADAPTER", device.info.kind)
    found = webmm.devices()
    assert [each.info.index for each in found] == [0, 1]
    assert found == webmm.devices(), "each adapter is opened once"
    with Device(1) as one:
        assert one.info.twin == 2
    a = whole(30, 30)
    np.testing.assert_array_equal(webmm.matmul(a, a, devices="all"), a @ a)
    found[1].close()
    assert webmm.devices()[0] is found[0]
    assert not webmm.devices()[1].lost
