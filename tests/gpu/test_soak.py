"""The long run, for as long as there is time for here, and that it finds what it looks for."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import soak

SECONDS = "40"


def test_nothing_grows_and_nobody_waits():
    """In a process of its own: what thousands of tests leave behind comes and goes by more than is looked for."""
    command = [sys.executable, str(Path(__file__).with_name("soak.py")), SECONDS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_kept_and_what_waits_is_found(monkeypatch):
    leaked, waiting = [], threading.Lock()

    def leak(gpu, rng, kept):
        leaked.append((gpu.array(np.ones(1000, np.float32)), np.ones(2**20)))
        time.sleep(0.3)

    def wait(gpu, rng, kept):
        if waiting.acquire(blocking=False):  # one at a time: the others go on
            time.sleep(soak.LONGEST * soak.SLOWEST + 1)  # long enough on a busy machine, too
            waiting.release()

    monkeypatch.setattr(soak, "USES", (soak.keep, leak, leak, wait))
    found = "\n".join(soak.soak(6))
    assert "host memory grew from" in found
    assert "bytes of arrays are left" in found
    assert "wait took" in found
