"""Fault injection: the n-th use of an engine's call fails, is late, or loses the device; detection of hangs."""

import faulthandler
import importlib
import itertools
import tempfile
import threading
import time

from webmm.engine.adapters import engine_of

# The modules that define the classes of the engines' packages, which have the same API.
MODULES = {"wgpu": "wgpu.backends.wgpu_native._api", "dawn": "wgpudawn.backends.dawn._api"}
# Injection points: (class of the engine's package, or "" for webmm's engine class; method).
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
    "dispatch or copy": ("", "submit"),  # methods of webmm's engine class
    "map": ("", "map"),
    "read": ("", "data"),
    "wait": ("GPUDevice", "_poll_wait"),
}
# wgpu-native aborts the process if these are called with a lost device: there, the device is lost right after the call.
ENDS_THE_PROCESS = {"wgpu": ("submit", "write", "dispatch or copy"), "dawn": ()}
KINDS = ("out of memory", "refused", "late", "lost")
LATE = 0.05  # seconds
HANGS = 60  # seconds after which a call is considered to hang


class Fault:
    """Replaces the engine's call at an injection point: counts its uses, and triggers the fault at the `nth`."""

    def __init__(self, monkeypatch, engine, point, kind=None, nth=0):
        self.api, self.errors, self.kind = importlib.import_module(MODULES[engine]), engine_of(engine).api, kind
        ours = type(engine_of(engine))
        owner, name = getattr(self.api, POINTS[point][0], ours), POINTS[point][1]
        true, count = getattr(owner, name), itertools.count(1)
        self.uses, self.triggered = 0, False

        def call(target, *args, **kwargs):
            self.uses = use = next(count)
            if use != nth:
                return true(target, *args, **kwargs)
            self.triggered = True
            of = args[0] if isinstance(target, ours) else target  # methods of the engine class take a device or buffer
            if kind == "lost" and point in ENDS_THE_PROCESS[engine]:
                true(target, *args, **kwargs)
                return self.trigger(of)
            self.trigger(of)
            return true(target, *args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    def trigger(self, target):
        """Raise, sleep, or destroy the device that `target` is or belongs to."""
        if self.kind == "out of memory":
            raise self.errors.GPUOutOfMemoryError("out of memory on purpose")
        if self.kind == "refused":
            raise self.errors.GPUValidationError("invalid on purpose")
        if self.kind == "late":
            time.sleep(LATE)
        else:
            device = target if isinstance(target, self.api.GPUDevice) else target._device
            self.api.GPUDevice.destroy(device)  # as a driver would: webmm's destroy() waits for this use


def watched(work, words):
    """Return what `work()` returns or raises in a thread; if it hangs, fail with the stacks of all threads."""
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
    """Return the stacks of all threads, as text."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()
