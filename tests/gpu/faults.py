"""Faults on purpose: the n-th use of a call of wgpu-py fails, is late, or loses the device; and who hangs, where."""

import faulthandler
import itertools
import tempfile
import threading
import time

import wgpu
from wgpu.backends.wgpu_native import _api

from webmm.engine.wgpu import Wgpu

# What an engine is asked for, and by which call.
POINTS = {
    "allocate": (_api.GPUDevice, "create_buffer"),
    "allocate a texture": (_api.GPUDevice, "create_texture"),
    "fill a uniform": (_api.GPUDevice, "create_buffer_with_data"),
    "read a shader": (_api.GPUDevice, "create_shader_module"),
    "compile": (_api.GPUDevice, "create_compute_pipeline"),
    "bind": (_api.GPUDevice, "create_bind_group"),
    "encode": (_api.GPUDevice, "create_command_encoder"),
    "write": (_api.GPUQueue, "write_buffer"),
    "submit": (_api.GPUQueue, "submit"),
    "copy": (Wgpu, "copy"),
    "map": (Wgpu, "map"),
    "read": (Wgpu, "data"),
    "wait": (_api.GPUDevice, "_poll_wait"),
}
# wgpu-native itself ends the process where a device is gone that these need: it is lost right after them instead.
ENDS_THE_PROCESS = ("submit", "write", "copy")
LATE = 0.05  # seconds
HANGS = 60  # seconds after which a call is taken to wait for ever


def _full(target):
    raise wgpu.GPUOutOfMemoryError("out of memory on purpose")


def _refused(target):
    raise wgpu.GPUValidationError("invalid on purpose")


def _late(target):
    time.sleep(LATE)


def _lost(target):
    device = target if isinstance(target, _api.GPUDevice) else target._device
    _api.GPUDevice.destroy(device)  # as a driver would: the device's own destroy() waits for this use


KINDS = {"out of memory": _full, "refused": _refused, "late": _late, "lost": _lost}


class Fault:
    """Stands in for the call of a point: it counts the uses, and at the `nth` does what its kind says."""

    def __init__(self, monkeypatch, point, kind=None, nth=0):
        owner, name = POINTS[point]
        true, count = getattr(owner, name), itertools.count(1)
        self.uses, self.happened = 0, False

        def call(target, *args, **kwargs):
            self.uses = use = next(count)
            if use != nth:
                return true(target, *args, **kwargs)
            self.happened = True
            of = args[0] if isinstance(target, Wgpu) else target  # the engine's own calls name a device or a buffer
            if kind == "lost" and point in ENDS_THE_PROCESS:
                true(target, *args, **kwargs)
                return _lost(of)
            KINDS[kind](of)
            return true(target, *args, **kwargs)

        monkeypatch.setattr(owner, name, call)


def watched(work, words):
    """Return what `work()` returns or raises in a thread; where it hangs, fail and tell where every thread is."""
    done = []

    def run():
        try:
            done.append(work())
        except Exception as error:
            done.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(HANGS)
    assert done, f"{words}: it hangs\n{places()}"
    return done[0]


def places():
    """Return where every thread is, as text."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()
