"""Products too large for one dispatch or binding, on a device opened with low limits."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from products import other_stages, view
from products import small as small_tiles

import webmm
from webmm import Device, choose
from webmm.calls import divided
from webmm.cases import OPS
from webmm.choose import limits, tuned
from webmm.cut.pieces import Limits
from webmm.dtypes import F32
from webmm.errors import ConfigError, UnsupportedError
from webmm.kernels.gemm.naive import Naive
from webmm.measure.records import Record
from webmm.report import choice
from webmm.wgsl.epilogues import ACTIVATIONS

BINDING = 2**14  # bytes: 64 × 64 float32
RNG = np.random.default_rng(3)


@pytest.fixture(scope="module")
def small(device):
    # The engine itself enforces these limits: it refuses larger bindings.
    with Device(device.info.index, limits={"max-storage-buffer-binding-size": BINDING}) as small:
        yield small


@pytest.fixture(autouse=True)
def naive(monkeypatch):
    """Use the kernel that compiles fastest: every part may be another specialisation."""
    monkeypatch.setattr(choose, "choose", lambda *_, **__: Naive())


@pytest.fixture
def dispatches(small, monkeypatch):
    """A list of the dispatched problems."""
    seen, run = [], small.run

    def spy(kernel, problem, *arrays):
        seen.append(problem)
        run(kernel, problem, *arrays)

    monkeypatch.setattr(small, "run", spy)
    return seen


def whole(*shape, dtype=np.float32):
    return RNG.integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_every_layout(small, dispatches, layout, dtype):
    for m, n, k in ((100, 90, 110), (300, 7, 64), (5, 333, 70), (3, 2, 9001)):
        a, b = whole(m, k, dtype=dtype), whole(k, n, dtype=dtype)
        left = small.array(a.T).T if layout[0] == "t" else small.array(a)
        right = small.array(b.T).T if layout[1] == "t" else small.array(b)
        bias = whole(n, dtype=dtype)
        got = webmm.matmul(left, right, bias=bias, activation="relu", out_dtype="float32")
        np.testing.assert_array_equal(got.numpy(), np.maximum(a.astype(np.float64) @ b + bias, 0))
        assert len(dispatches) > 1, "the product was not split"
        for problem in dispatches:
            assert all(extent.nbytes <= BINDING for extent in problem.buffers())
        dispatches.clear()


def test_the_epilogue_is_applied_once_after_the_last_part(small, dispatches):
    m, n, k = 70, 66, 600  # B's rows are cut: parts of k
    a, b = ((RNG.random(shape) - 0.5).astype(np.float32) for shape in ((m, k), (k, n)))
    finishes = [("row", None, "float16"), ("column", "gelu", "float32"), ("row", "silu", "float32")]
    for kind, activation, out in finishes:
        bias = RNG.random((m, 1) if kind == "row" else (n,)).astype(np.float32)
        residual = RNG.random((m, n)).astype(np.float32)
        settings = {"bias": bias, "activation": activation, "alpha": 0.5, "residual": residual, "out_dtype": out}
        got = webmm.matmul(a, b, device=small, **settings)
        value = 0.5 * (a.astype(np.float64) @ b) + bias
        value = ACTIVATIONS[activation].reference(value) if activation else value
        scale = np.abs(a.astype(np.float64)) @ np.abs(b) + 3
        bound = (k * 2.0**-23 + 2e-6 + (2.0**-10 if out == "float16" else 0)) * scale
        assert (np.abs(got - (value + residual)) <= bound).all(), settings
    assert {problem.k for problem in dispatches} != {k}
    assert {problem.bias for problem in dispatches} >= {"matrix"}


def test_gemm_into_views(small):
    a, b, c = whole(150, 140), whole(140, 130), whole(200, 200)
    big = small.array(c)
    webmm.gemm(small.array(a), small.array(b), big[7:157, 20:150], alpha=2.0, beta=-1.0)
    c[7:157, 20:150] = 2 * (a @ b) - c[7:157, 20:150]
    np.testing.assert_array_equal(big.numpy(), c)
    webmm.gemm(small.array(a), small.array(b), big.T[7:157, 20:150], beta=1.0)
    c.T[7:157, 20:150] += a @ b
    np.testing.assert_array_equal(big.numpy(), c)


def test_batches(small, dispatches):
    a, b = whole(3, 40, 20, 30), whole(40, 30, 25)
    np.testing.assert_array_equal(webmm.matmul(a, b, device=small), a @ b)
    assert any(problem.batch > 1 for problem in dispatches)
    np.testing.assert_array_equal(
        webmm.matmul(a[:, :2], whole(30, 500) * 0 + 1, device=small), a[:, :2] @ np.ones((30, 500))
    )


def test_the_chosen_kernels(small, monkeypatch):
    monkeypatch.undo()
    a, b, bias = whole(128, 64), whole(64, 64), whole(64)
    got = webmm.matmul(a, b, bias=bias, activation="relu", device=small)
    np.testing.assert_array_equal(got, np.maximum(a @ b + bias, 0))


@other_stages(0, 4)
def test_a_matrix_as_the_bias(device, cls):
    for n in (12, 13):  # by vec4, and not
        problem = dataclasses.replace(view(9, n, 4), bias="matrix", bias_offset=5, activation="relu", alpha=2.0)
        a, b, bias = whole(9, 4), whole(4, n), whole(9, n)
        x, y, z = (device.array(x) for x in (a, b, np.pad(bias.ravel(), (5, 0))))
        c = device.empty((9, n))
        device.run(small_tiles(cls), problem, x, y, c, z)
        np.testing.assert_array_equal(c.numpy(), np.maximum(2 * (a @ b) + bias, 0))


def test_long_dispatches_are_cut(device, monkeypatch):
    a, b = whole(300, 70), whole(70, 310)
    monkeypatch.setattr("webmm.choose.dispatches.dispatch_limits", lambda *_: Limits(2**27, 2.0**20))
    np.testing.assert_array_equal(webmm.matmul(a, b, device=device, activation="relu"), np.maximum(a @ b, 0))


def test_explain_reports_the_pieces(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(choice, "dispatch_limits", lambda *_: Limits(2**27, 2.0**26))
    words, _ = choice.explain(OPS["gemm"], (1024, 1024, 64), "nn", "float32", Device)
    assert words.splitlines()[1] == "too large for one dispatch: cut into 2 pieces, the first is 512x1024x64 nn float32"


def test_only_lower_limits_are_accepted(device, small):
    assert small.capabilities.limit("max-storage-buffer-binding-size") == BINDING
    assert small.wgpu_device.limits["max-storage-buffer-binding-size"] == BINDING
    have = device.capabilities.limit("max-buffer-size")
    with pytest.raises(UnsupportedError, match=f"max-buffer-size = {have:,}, less than {have + 1:,}"):
        Device(device.info.index, limits={"max-buffer-size": have + 1})
    with pytest.raises(ConfigError, match=r"there is no limit 'max-bufer-size'; the limits are .*max-buffer-size"):
        Device(device.info.index, limits={"max-bufer-size": 1})


def named(device, name, kind="discrete"):
    """Return a stand-in for `device` by another name, without rates that were looked up."""
    info = dataclasses.replace(device.info, name=name, kind=kind)
    return SimpleNamespace(info=info, capabilities=device.capabilities, rates={})


def test_a_tuned_adapter_has_its_measured_rate(device):
    assert limits.dispatch_limits(device).flops == limits.ASSUMED_RATE[device.info.kind]
    for name in ("NVIDIA H200", "nvidia-h200"):  # as the engines spell it
        assert limits.dispatch_limits(named(device, name)).flops > 1e13


def test_records_of_small_products_and_other_ops_do_not_change_the_rate(device, monkeypatch):
    monkeypatch.setattr(divided, "_rates", {})
    gflops = {"gemm": 0.001, "reduce": 1e9}  # a tiny product, mostly overhead; and sums, which are no products
    records = [Record(op, "", 1, 1, 1, 1, "float32", "", "any", "", "", "", {}, gflops=g) for op, g in gflops.items()]
    monkeypatch.setattr(tuned, "load", lambda: records)
    alike = named(device, "any", "cpu")
    assert tuned.rate(alike, F32) == 0
    assert divided.rate_of(alike, F32) == limits.ASSUMED_RATE["cpu"]
    assert limits.dispatch_limits(alike).flops == limits.ASSUMED_RATE["cpu"] * limits.DISPATCH_SECONDS
