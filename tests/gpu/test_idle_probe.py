"""The probe of a GPU of unknown speed: only when it is idle or at exit, within its time, and without disturbing anyone.

CPUs are never probed, so these tests pretend that they are unknown GPUs.
"""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

import webmm
from webmm.choose import adapted
from webmm.engine import generation, rates
from webmm.measure import idle, roofline

A = np.ones((8, 8), np.float32)
UNKNOWN = """
from webmm.choose import adapted
from webmm.engine import rates
from webmm.measure import idle
adapted.unprobed = lambda device: rates.known(device) is None
"""
MULTIPLY = """
import numpy as np, webmm
a = np.ones((8, 8), np.float32)
assert webmm.matmul(a, a)[0, 0] == 8
"""


@pytest.fixture(autouse=True)
def unknown(tmp_path, monkeypatch):
    """An empty cache, a CPU that counts as an unknown GPU, and a short time after which it is idle."""
    monkeypatch.setenv("WEBMM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(adapted, "unprobed", lambda device: rates.known(device) is None)
    monkeypatch.setattr(idle, "IDLE", 0.2)
    monkeypatch.setattr(idle, "LONGEST", 60.0)  # software takes longer than a GPU
    return tmp_path


@pytest.fixture
def gpu():
    with webmm.Device() as device:
        yield device


def ended(gpu, seconds=20.0):
    """Wait for the end of the thread that watches the device."""
    idle._waiting[gpu].thread.join(seconds)
    return not idle._waiting[gpu].thread.is_alive()


def test_an_idle_device_is_probed_and_its_kernels_stay(gpu):
    webmm.matmul(A, A, device=gpu)
    chosen, current = dict(gpu.choices), generation.current
    assert ended(gpu)
    found = rates.known(gpu)
    assert found is not None
    assert len(rates.probed_on(gpu)) == len("2026-11-25")
    webmm.matmul(A, A, device=gpu)
    assert (gpu.choices, generation.current) == (chosen, current)
    assert gpu.capabilities.workgroups == 0
    with webmm.Device() as another:
        assert another.capabilities.workgroups == found.workgroups


def test_a_brief_probe_resembles_a_long_one(gpu):
    brief, long = roofline.probe_briefly(gpu, lambda: True), roofline.probe(gpu)
    for name in ("gflops", "gbytes"):
        assert 1 / 10 < getattr(brief, name) / getattr(long, name) < 10, name  # the machine may do other work


def test_a_brief_probe_wakes_the_gpu_by_arithmetic(gpu, monkeypatch):
    timed = []
    monkeypatch.setattr(roofline, "_brief_rate", lambda *arguments: timed.append("arithmetic") or 1.0)
    monkeypatch.setattr(roofline, "_copy_us", lambda *arguments: timed.append("copy") or 1.0)
    assert roofline.probe_briefly(gpu, lambda: True).gflops == 1.0
    assert timed[0] == "arithmetic"
    assert timed.count("copy") == 3


def test_nothing_is_probed_before_the_first_product_or_while_the_device_is_used(gpu, monkeypatch):
    tried = []
    monkeypatch.setattr(idle, "_probe", lambda *arguments: not tried.append(arguments))
    idle.probe_when_idle(gpu)
    time.sleep(0.6)
    assert not gpu.submissions.count
    assert tried == []
    with gpu.guard.using("uploading for long"):
        webmm.matmul(A, A, device=gpu)
        time.sleep(0.6)
        assert tried == []
    assert ended(gpu)
    assert len(tried) == 1


def test_the_exit_stops_the_thread(gpu, monkeypatch):
    monkeypatch.setattr(idle, "IDLE", 60.0)
    monkeypatch.setattr(idle, "_waiting", {})
    idle.probe_when_idle(gpu)
    idle._finish()
    assert not idle._waiting[gpu].thread.is_alive()


def test_a_product_ends_a_probe(gpu, monkeypatch):
    parts = []

    def with_a_product(device, go_on):
        def product_and_go_on():
            parts.append(go_on())
            if len(parts) == 2:
                webmm.matmul(A, A, device=device)
            return parts[-1]

        return brief(device, product_and_go_on)

    brief = roofline.probe_briefly
    monkeypatch.setattr(roofline, "probe_briefly", with_a_product)
    monkeypatch.setattr(idle, "ATTEMPTS", 1)
    webmm.matmul(A, A, device=gpu)
    assert ended(gpu)
    assert parts[:3] == [True, True, False]
    assert rates.known(gpu) is None


def test_a_device_that_is_closed_meanwhile_is_left_alone(capfd):
    gpu = webmm.Device()
    webmm.matmul(A, A, device=gpu)
    gpu.close()
    assert ended(gpu)
    idle._probe(gpu, 1.0)
    assert rates.known(gpu) is None
    assert capfd.readouterr().err == ""


def test_a_probe_that_takes_too_long_is_given_up(gpu):
    assert idle._probe(gpu, 0.0)
    assert rates.known(gpu) is None


def test_only_gpus_of_unknown_speed_are_watched(gpu, monkeypatch):
    monkeypatch.undo()
    webmm.matmul(A, A, device=gpu)
    assert idle._waiting[gpu] is None  # a CPU


@pytest.mark.parametrize("off", ["setting", "tune"])
def test_it_can_be_switched_off(off, monkeypatch):
    monkeypatch.setenv("WEBMM_PROBE", "off" if off == "setting" else "on")
    with webmm.Device() as gpu:
        webmm.matmul(A, A, device=gpu, tune="off" if off == "tune" else None)
        assert gpu not in idle._waiting


@pytest.mark.parametrize(
    ("code", "probed"),
    [
        ("idle.USED, idle.SECONDS = 0, 20", True),
        ("idle.SECONDS = 20", False),  # a short program
        ("idle.USED = 0; os.environ['WEBMM_PROBE'] = 'off'", False),
        ("idle.IDLE = 0.01; import time; AFTER = lambda: time.sleep(0.1)", False),  # the exit interrupts a probe
        ("idle.USED = 0; AFTER = lambda: webmm.engine.device.default_device().close()", False),
    ],
)
def test_at_exit(code, probed, tmp_path):
    text = f"import os, webmm\nAFTER = int\n{UNKNOWN}\n{code}\n{MULTIPLY}\nAFTER()\n"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / rates.RATES_FILE).exists() == probed


def test_a_forked_child_probes_nothing(tmp_path):
    text = f"import os\n{UNKNOWN}\nidle.USED = 0\n{MULTIPLY}\nif os.fork():\n    os._exit(os.wait()[1])\n"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", text], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / rates.RATES_FILE).exists()
