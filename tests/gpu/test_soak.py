"""A short soak test, and tests that it finds leaks and long waits."""

import gc
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import soak

SECONDS = "7"
LONG = 5 * soak.LONGEST  # seconds of the planted wait: longer than other calls take on a busy machine


def test_soak():
    """Runs in a separate process: memory of earlier tests would vary by more than the soak test's limit."""
    command = [sys.executable, str(Path(__file__).with_name("soak.py")), SECONDS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_leaks_and_long_waits_are_found(monkeypatch):
    leaked, waiting = [], threading.Lock()

    def leak(gpu, rng, kept):
        leaked.append((gpu.array(np.ones(1000, np.float32)), np.ones(2**19)))  # 4 MiB of host memory
        time.sleep(0.3)

    def wait(gpu, rng, kept):
        if waiting.acquire(blocking=False):  # one thread at a time: the others continue
            time.sleep(LONG)
            waiting.release()

    monkeypatch.setattr(soak, "USES", (soak.keep, leak, leak, wait))
    monkeypatch.setattr(soak.Soak, "warm_up", lambda self: None)
    monkeypatch.setattr(soak.Soak, "count_stalls", lambda self: None)  # else other processes excuse the wait
    monkeypatch.setattr(soak, "GROWTH", soak.GROWTH / 4)  # a busy machine leaks less in six seconds
    gc.collect()  # memory that earlier tests free meanwhile would hide the growth
    found = "\n".join(soak.soak(6))
    assert "host memory grew from" in found
    assert "bytes of arrays are left" in found
    assert "wait took" in found
