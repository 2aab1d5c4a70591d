"""Faults on purpose: the n-th use of an engine's call fails, is late, or loses the device; and who hangs, where."""

import faulthandler
import importlib
import itertools
import tempfile
import threading
import time

from webmm.engine.adapters import engine_of
from webmm.engine.wgpu import Wgpu

# Where the engines' packages, which have the same API, define its classes.
MODULES = {"wgpu": "wgpu.backends.wgpu_native._api", "dawn": "wgpudawn.backends.dawn._api"}
# What an engine is asked for, and by which call: of its package, or of webmm's own class for it.
POINTS = {
    "allocate": ("GPUDevice", "create_buffer"),
    "allocate a texture": ("GPUDevice", "create_texture"),
    "fill a uniform": ("GPUDevice", "create_buffer_with_data"),
    "read a shader": ("GPUDevice", "create_shader_module"),
    "compile": ("GPUDevice", "create_compute_pipeline"),
    "bind": ("GPUDevice", "create_bind_group"),
    "encode": ("GPUDevice", "create_command_encoder"),
    "write": ("GPUQueue", "write_buffer"),
    "submit": ("GPUQueue", "submit"),
    "dispatch": ("", "submit"),  # by the engine's own methods
    "copy": ("", "copy"),
    "map": ("", "map"),
    "read": ("", "data"),
    "wait": ("GPUDevice", "_poll_wait"),
}
# wgpu-native itself ends the process where a device is gone that these need: it is lost right after them instead.
ENDS_THE_PROCESS = {"wgpu": ("submit", "write", "dispatch", "copy"), "dawn": ()}
KINDS = ("out of memory", "refused", "late", "lost")
LATE = 0.05  # seconds
HANGS = 60  # seconds after which a call is taken to wait for ever


class Fault:
    """Stands in for an engine's call of a point: it counts the uses, and at the `nth` does what its kind says."""

    def __init__(self, monkeypatch, engine, point, kind=None, nth=0):
        self.api, self.errors, self.kind = importlib.import_module(MODULES[engine]), engine_of(engine).api, kind
        owner, name = getattr(self.api, POINTS[point][0], type(engine_of(engine))), POINTS[point][1]
        true, count = getattr(owner, name), itertools.count(1)
        self.uses, self.happened = 0, False

        def call(target, *args, **kwargs):
            self.uses = use = next(count)
            if use != nth:
                return true(target, *args, **kwargs)
            self.happened = True
            of = args[0] if isinstance(target, Wgpu) else target  # the engine's own calls name a device or a buffer
            if kind == "lost" and point in ENDS_THE_PROCESS[engine]:
                true(target, *args, **kwargs)
                return self.happen(of)
            self.happen(of)
            return true(target, *args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    def happen(self, target):
        """Raise, wait, or lose the device that `target` is or belongs to."""
        if self.kind == "out of memory":
            raise self.errors.GPUOutOfMemoryError("out of memory on purpose")
        if self.kind == "refused":
            raise self.errors.GPUValidationError("invalid on purpose")
        if self.kind == "late":
            time.sleep(LATE)
        else:
            device = target if isinstance(target, self.api.GPUDevice) else target._device
            self.api.GPUDevice.destroy(device)  # as a driver would: the device's own destroy() waits for this use


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
