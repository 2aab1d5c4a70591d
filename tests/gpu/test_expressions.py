"""Elementwise expressions: every dtype and layout, one dispatch and shader, NumPy's functions, self-tests, pickling."""

import copy
import pickle

import numpy as np
import pytest

import webmm
from webmm import Device, choose
from webmm.cases import expression as cases
from webmm.errors import ProblemError
from webmm.expressions import FUNCTIONS, compiled
from webmm.kernels.elementwise.fused import Fused
from webmm.selftest import prove, stand_ins

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
        np.sin(x)
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
        ([True, False, True], "indices must be integers, not bool"),
        ([3], "an index is out of range for 3 elements"),
    ):
        with pytest.raises(ProblemError, match=words):
            x[key]


def test_arrays_are_pickled_onto_the_default_device(device, monkeypatch):
    monkeypatch.setattr("webmm.default_device", lambda: device)
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
