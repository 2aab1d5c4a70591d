"""Every call but matmul on several devices: each computes a share; two devices on one adapter represent two GPUs."""

import threading

import numpy as np
import pytest

import webmm
from webmm import Device, ProblemError, choose
from webmm.calls import pieces

RNG = np.random.default_rng(23)
X = RNG.standard_normal((75, 66)).astype(np.float32)
U8, I8 = RNG.integers(0, 256, (3, 70, 33), np.uint8), RNG.integers(-128, 128, (33, 41), np.int8)
WEIGHTS = webmm.quantize_blocks(RNG.standard_normal((66, 40)).astype(np.float32))
HEADS = RNG.standard_normal((2, 4, 33, 20)).astype(np.float32)
SCALES = RNG.uniform(0.5, 2, 70).astype(np.float32)

CALLS = {
    "gelu": lambda **on: webmm.gelu(X, **on),
    "map": lambda **on: webmm.map(X[:, ::2], "relu", **on),
    "softmax of rows": lambda **on: webmm.softmax(X, **on),
    "softmax of columns": lambda **on: webmm.softmax(X, 0, **on),
    "layer_norm": lambda **on: webmm.layer_norm(X, X[3], X[4], **on),
    "rms_norm": lambda **on: webmm.rms_norm(X.T, X[:, 0], **on),
    "rotary": lambda **on: webmm.rotary(X, X[:, :33], X[:, 33:], **on),
    "attention": lambda **on: webmm.attention(HEADS, HEADS[:, ::2], HEADS[:, 1::2], causal="end", **on),
    "sum of rows": lambda **on: webmm.reduce(X, "sum", 1, **on),
    "argmax of columns": lambda **on: webmm.reduce(X, "argmax", 0, **on),
    "float64": lambda **on: webmm.reduce(X.astype(np.float64), "mean", 0, **on),
    "qmatmul": lambda **on: webmm.qmatmul(U8[0], I8, SCALES, 3, 0.5, -7, 9.0, 5, **on),
    "qmatmul of a batch": lambda **on: webmm.qmatmul(U8, I8, 0.1, 3, 0.5, 0, out_dtype="int32", **on),
    "qmatmul_weights": lambda **on: webmm.qmatmul_weights(X, WEIGHTS, **on),
    "elementwise": lambda **on: webmm.elementwise("exp(x) * y + a", x=X, y=X[:1], a=0.5, **on),
}


@pytest.fixture
def pair(device, monkeypatch):
    """Two devices, between which every call is divided, however small."""
    monkeypatch.setattr(pieces, "LEAST_MOVED", 0)
    with Device(device.info.index) as one, Device(device.info.index) as two:
        yield [one, two]


@pytest.fixture
def used(monkeypatch):
    """A list of the device of each dispatch."""
    heard, run = [], choose.run

    def recorded(problem, device, *arrays, **settings):
        heard.append(device)
        return run(problem, device, *arrays, **settings)

    monkeypatch.setattr(choose, "run", recorded)
    return heard


@pytest.mark.parametrize("call", CALLS)
def test_each_device_computes_a_share(pair, used, call):
    expected = CALLS[call](device=pair[0])
    used.clear()
    got = CALLS[call](devices=pair)
    np.testing.assert_array_equal(got, expected, strict=True)
    assert set(used) == set(pair) or call == "float64"  # whose sums are products, which are queued by another function


def test_in_little_device_memory(pair, tmp_path):
    x = np.memmap(tmp_path / "x", np.float32, "w+", shape=(1003, 200))
    x[:] = RNG.standard_normal(x.shape)
    for device in pair:
        device.memory = 2**16
    np.testing.assert_allclose(webmm.reduce(x, "max", 1, devices=pair), x.max(axis=1))
    np.testing.assert_allclose(webmm.softmax(x, devices=pair).sum(axis=1), 1, rtol=1e-5)


def test_rows_larger_than_a_binding(device, used):
    limits = {"max-storage-buffer-binding-size": 2**14}
    x = RNG.standard_normal((3, 10_001)).astype(np.float32)
    with Device(device.info.index, limits=limits) as one, Device(device.info.index, limits=limits) as two:
        np.testing.assert_array_equal(webmm.reduce(x, "argmin", 1, devices=[one, two]), x.argmin(axis=1))


def test_the_other_device_takes_over_after_a_loss(pair, used, monkeypatch):
    compute, lost = pieces._on_devices, threading.Event()

    def after_a_loss(devices, *args):
        if devices == pair[1:]:
            pair[1].wgpu_device.destroy()
            lost.set()
        elif len(devices) == 1:
            lost.wait(60)
        compute(devices, *args)

    monkeypatch.setattr(pieces, "_on_devices", after_a_loss)
    np.testing.assert_array_equal(webmm.reduce(X, "max", 1, devices=pair), X.max(axis=1))
    assert lost.is_set()
    assert pair[0] in used


def test_small_calls_use_one_device(device, used):
    with Device(device.info.index) as other:
        np.testing.assert_array_equal(webmm.reduce(X, "max", 1, devices=[device, other]), X.max(axis=1))
    assert set(used) == {device}


def test_nothing_to_divide(pair):
    assert webmm.reduce(X, "argmax", devices=pair) == X.argmax()
    assert webmm.elementwise("x * 2", x=np.float32(3) * np.ones(()), devices=pair) == 6


def test_refused_arguments(pair):
    with pytest.raises(ProblemError, match="device= and devices= exclude each other"):
        webmm.softmax(X, device=pair[0], devices=pair)
    with pytest.raises(ProblemError, match="devices= takes NumPy arrays"):
        webmm.softmax(pair[0].array(X), devices=pair)
    with pytest.raises(ProblemError, match="devices= takes NumPy arrays"):
        webmm.qmatmul_weights(X, WEIGHTS.to(pair[0]), devices=pair)
    with pytest.raises(ProblemError, match='devices must be "all" or a list of Devices'):
        webmm.gelu(X, devices=[])
