"""A process forked from one with a device gets typed errors at once; the parent's devices still work."""

import os
import subprocess
import sys

import pytest

FORK = """
import gc, os, sys, threading, traceback
import numpy as np, webmm
from webmm.errors import DeviceLostError, NoAdapterError
from webmm.engine import device as module
ones = np.ones((9, 9), np.float32)
webmm.matmul(ones, ones)
gpu, closed = webmm.Device(), webmm.Device()
x, dropped = gpu.array(ones), gpu.array(ones)
closed.close()
held, forked = threading.Event(), threading.Event()
def hold():
    with gpu.guard.lock, module._opening, gpu.using("holding"):
        held.set()
        forked.wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if child:
    forked.set()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert np.array_equal((x @ dropped).numpy(), ones * 9), "the child took it away"
    assert webmm.matmul(ones, ones)[0, 0] == 9
    sys.exit(code)
def hears():
    for name, error, use in (
        ("download", DeviceLostError, x.numpy),
        ("upload", DeviceLostError, lambda: gpu.array(ones)),
        ("product", DeviceLostError, lambda: x @ x),
        ("wait", DeviceLostError, gpu.synchronize),
        ("closed", DeviceLostError, closed.synchronize),
        ("default device", NoAdapterError, lambda: webmm.matmul(ones, ones)),
        ("another device", NoAdapterError, webmm.Device),
    ):
        try:
            use()
        except error as found:
            assert "forked" in str(found) and "spawn" in str(found), found
        else:
            raise AssertionError(f"{name}: nothing was raised")
try:
    hears()
    x.free()
    gpu.close()
    del x, dropped, gpu, closed
    gc.collect()
    os._exit(0)  # as multiprocessing leaves a child: a driver of the parent's may wait for ever in what exit() calls
except BaseException:
    traceback.print_exc()
    os._exit(1)
"""

UNUSED = """
import os, sys
import numpy as np, webmm
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
ones = np.ones((9, 9), np.float32)
sys.exit(int(webmm.matmul(ones, ones)[0, 0]) - 9)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("script", [FORK, UNUSED], ids=["with devices", "before the first device"])
def test_a_forked_process(script):
    process = subprocess.Popen(
        [sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        _, words = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        pytest.fail("a process hangs")
    assert process.returncode == 0, words
