"""Engines: the choice of one, and agreement with NumPy. Dawn runs on Chromium's software adapter."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from webmm import Device
from webmm.engine import adapters
from webmm.engine.adapters import AdapterInfo, choose_engine, engine_of
from webmm.engine.wgpu import WGPU
from webmm.errors import ConfigError

# In a separate process: environment variables determine which adapters a process finds.
DAWN = """
import numpy as np, webmm
a, b = np.random.default_rng(0).random((130, 70), np.float32), np.random.default_rng(1).random((70, 90), np.float32)
big = np.random.default_rng(2).random((150, 300), np.float32)
with webmm.Device(engine="dawn") as gpu:
    assert gpu.engine.dialect == "tint"
    x, y = gpu.array(a), gpu.array(b)
    assert np.abs((x @ y).numpy() - a @ b).max() < 1e-4
    own = webmm.Epilogue("where(mask, silu(x) * y, slope * x)", mask=a[:, :1] > 0.5, y=b[0], slope=0.25)
    p = a @ b
    expected = np.where(a[:, :1] > 0.5, p / (1 + np.exp(-p)) * b[0], p / 4)
    assert np.abs(webmm.matmul(x, y, activation=own).numpy() - expected).max() < 1e-4
    assert np.abs(webmm.map(p, own, device=gpu) - expected).max() < 1e-4
    assert np.isclose(webmm.reduce(x, "sum").numpy(), a.sum())
    assert np.allclose(webmm.softmax(x).numpy().sum(axis=1), 1)
    heads = x[None, :64]
    assert np.allclose(webmm.attention(heads, heads, heads, scale=0.0).numpy(), a[:64].mean(axis=0), atol=1e-5)
    ends = gpu.array(np.array([0, -0.0, 1e-40, 1, np.inf], np.float32))
    assert np.log(ends).numpy().tolist()[:2] == [-np.inf, -np.inf]
    assert webmm.elementwise("x / -0.0", x=ends).numpy()[3] == -np.inf
    assert float(webmm.reduce(gpu.array(np.full(4, -np.inf, np.float32)), "logsumexp").numpy()) == -np.inf
    q = np.arange(64, dtype=np.uint8).reshape(8, 8)
    sums = webmm.qmatmul(q, q, 1.0, 0, 1.0, 0, out_dtype="int32", device=gpu)
    assert np.array_equal(sums, q.astype(np.int32) @ q.astype(np.int32))
    assert np.array_equal(gpu.array(big).numpy(), big)
    try:
        gpu.compile("nonsense", "broken", ())
    except webmm.errors.ShaderError as error:
        assert "broken was refused by the engine" in str(error)
    shared = webmm.Device.from_wgpu(gpu.wgpu_device)
    assert shared.engine is gpu.engine
with webmm.Device(engine="dawn", limits={"max-storage-buffer-binding-size": 2**16}) as small:
    assert small.capabilities.limit("max-storage-buffer-binding-size") == 2**16
    assert np.abs(webmm.matmul(big, big.T, device=small) - big @ big.T).max() < 1e-2
with webmm.Device() as other:  # both engines in one process
    assert other.engine.name == "wgpu"
    assert np.abs(webmm.matmul(a, b, device=other) - a @ b).max() < 1e-4
try:
    x.numpy()
except webmm.errors.DeviceLostError:
    print("right")
"""


def test_dawn_agrees_with_numpy(swiftshader):
    done = subprocess.run([sys.executable, "-c", DAWN], env=swiftshader, capture_output=True, text=True, timeout=280)
    assert done.stdout == "right\n", done.stdout + done.stderr


def test_an_unknown_engine():
    with pytest.raises(ConfigError, match="unknown engine 'cuda'; choose from wgpu, dawn"):
        Device(engine="cuda")


UNITS = {"wgpu": WGPU.matrix_units, "dawn": "units"}


@pytest.mark.parametrize(
    ("on_wgpu", "on_dawn", "wanted", "expected"),
    [
        (["A+"], ["A+"], None, "dawn 0"),
        (["A+"], ["A"], None, "wgpu 0"),
        (["A+"], ["B+"], None, "wgpu 0"),
        (["A+"], None, None, "wgpu 0"),
        (["A"], ["A+"], None, "wgpu 0"),  # Dawn is not queried
        (["B", "A+"], ["A+", "B"], 1, "dawn 0"),  # engines list adapters in different orders
        (["B", "A+"], ["A+", "B"], 0, "wgpu 0"),
        (["A+", "A+"], ["A+", "A+"], 1, "dawn 1"),  # the second of two equal adapters
    ],
)
def test_auto_chooses_dawn_for_matrix_units(monkeypatch, on_wgpu, on_dawn, wanted, expected):
    monkeypatch.delenv("WEBMM_ADAPTER", raising=False)
    dawn = SimpleNamespace(name="dawn", matrix_units="units", rejects="")

    def listed(engine=WGPU):
        return [
            (
                AdapterInfo(i, text.strip("+"), "", "discrete", "", ""),
                SimpleNamespace(features={UNITS[engine.name]} if "+" in text else set()),
            )
            for i, text in enumerate(on_wgpu if engine is WGPU else on_dawn)
        ]

    def engine_of(name):
        if on_dawn is None:
            raise ConfigError("not installed")
        return {"dawn": dawn, "wgpu": WGPU}[name]

    monkeypatch.setattr(adapters, "adapters", listed)
    monkeypatch.setattr(adapters, "engine_of", engine_of)
    engine, info, _ = choose_engine("auto", wanted)
    assert f"{engine.name} {info.index}" == expected


def test_an_engine_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "wgpudawn", None)
    monkeypatch.delitem(sys.modules, "webmm.engine.dawn", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'webmm\[dawn\]'"):
        engine_of("dawn")


def test_dawn_is_loaded_only_on_request():
    code = "import sys, webmm, numpy; webmm.matmul(numpy.eye(3, dtype='f'), numpy.eye(3, dtype='f'))\n"
    code += "print('wgpudawn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"


def test_the_default_engine(device):
    assert device.engine.name == "wgpu"
    assert np.array_equal(device.array([1.0, 2.0], "float32").numpy(), [1, 2])
