"""The long run, for as long as there is time for here, and that it finds what it looks for."""

import time

import numpy as np
import soak

SECONDS = 20
BUSY = 5.0  # seconds that a call may take here, where other tests run beside


def test_nothing_grows_and_nobody_waits():
    assert soak.soak(SECONDS, BUSY) == []


def test_what_is_kept_and_what_waits_is_found(monkeypatch):
    leaked = []

    def leak(gpu, rng, kept):
        leaked.append((gpu.array(np.ones(1000, np.float32)), np.ones(2**20)))

    def wait(gpu, rng, kept):
        time.sleep(soak.LONGEST * 3)

    monkeypatch.setattr(soak, "USES", (soak.keep, leak, leak, wait))
    found = "\n".join(soak.soak(6))
    assert "host memory grew from" in found
    assert "bytes of arrays are left" in found
    assert "wait took" in found
