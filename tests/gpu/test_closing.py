"""Closing a device that threads use: operations in progress complete, later ones raise DeviceLostError."""

import subprocess
import sys
import threading

import numpy as np
import pytest

from webmm import Device
from webmm.engine.transfer import LEAST
from webmm.errors import DeviceLostError

CLOSES = """
import os, random, sys, threading, time
import numpy as np, webmm
from webmm.errors import DeviceLostError
big, small = np.ones((1500, 1500), np.float32), np.ones((70, 70), np.float32)
uses = [
    lambda gpu: webmm.matmul(small, small, device=gpu),
    lambda gpu: gpu.array(big).numpy(),
    lambda gpu: webmm.reduce(gpu.array(small), "sum", 1).numpy(),
    lambda gpu: webmm.softmax(gpu.array(small)),
    lambda gpu: gpu.synchronize(),
]
wrong = []
def work(gpu, use):
    try:
        while True:
            use(gpu)
    except DeviceLostError:
        pass
    except BaseException as error:
        wrong.append(repr(error))
for i in range(8):
    gpu = webmm.Device()
    threads = [threading.Thread(target=work, args=(gpu, use), daemon=True) for use in uses]
    threads += [threading.Thread(target=gpu.close, daemon=True)] * (i % 2 if sys.argv[1] == "close" else 0)
    for thread in threads:
        thread.start()
    time.sleep(random.Random(i).random() / 4)
    gpu.close() if sys.argv[1] == "close" else gpu.wgpu_device.destroy()
    for thread in threads:
        thread.join(20)
        if thread.is_alive():
            wrong.append("a thread hangs")
            break
print(*wrong, sep="\\n", flush=True)
os._exit(bool(wrong))
"""


@pytest.mark.parametrize("how", ["close", "destroy"])
def test_closing_while_threads_use_the_device(how):
    # In a separate process: a failure makes wgpu-native abort the process.
    done = subprocess.run([sys.executable, "-c", CLOSES, how], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class Closer:
    """A number that closes a device when it is converted."""

    def __init__(self, gpu):
        self.gpu = gpu

    def __float__(self):
        self.gpu.close()
        return 1.0


@pytest.mark.parametrize("count", [3, LEAST], ids=["in the calling thread", "in several threads"])
def test_closing_within_a_transfer_does_not_deadlock(count):
    gpu, data = Device(), np.ones(count, object)
    data[-1] = Closer(gpu)
    x, done = gpu.empty((count,)), []
    moving = threading.Thread(target=lambda: done.append(gpu.upload(data, x)), daemon=True)
    moving.start()
    moving.join(60)
    assert not moving.is_alive(), "it deadlocks"
    assert done == [None], "the upload failed"
    with pytest.raises(DeviceLostError, match="was closed"):
        x.numpy()


def test_close_waits_for_transfers_in_other_threads(monkeypatch):
    gpu = Device()
    x, copying, go_on = gpu.array(np.arange(9, dtype=np.float32)), threading.Event(), threading.Event()
    copy, found = np.copyto, []

    def slow(*args, **kwargs):
        copying.set()
        go_on.wait(20)
        copy(*args, **kwargs)

    monkeypatch.setattr(np, "copyto", slow)
    moving = threading.Thread(target=lambda: found.append(x.numpy()), daemon=True)
    moving.start()
    assert copying.wait(20)
    closing = threading.Thread(target=gpu.close, daemon=True)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive(), "closed while a thread reads its memory"
    with pytest.raises(DeviceLostError, match="was closed"):
        gpu.empty((4,))
    go_on.set()
    for thread in (moving, closing):
        thread.join(20)
        assert not thread.is_alive()
    assert np.array_equal(found[0], np.arange(9))


PENDING = """
import sys
from webmm import Device
gpu = Device()
api = gpu.engine.api
buffer = gpu.wgpu_device.create_buffer(size=1 << 20, usage=api.BufferUsage.MAP_READ | api.BufferUsage.COPY_DST)
api.kept = gpu, buffer, gpu.engine.map(buffer, "READ", 1 << 20)  # until after webmm's modules are cleared
"""


def test_a_process_ends_while_a_mapping_is_pending():
    done = subprocess.run([sys.executable, "-c", PENDING], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
