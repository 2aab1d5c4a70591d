"""The engine: wgpu-py over wgpu-native. All that is private to it, or that another engine does differently, is here.

The rest of the package uses what WebGPU itself has – buffers, encoders, passes, queues – on the objects that come from
here, and asks a `Device` for its `engine`. A second engine is a module of its own with a subclass.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import wgpu
from numpy.typing import NDArray

from webmm.kernels.base import MatrixShape
from webmm.render import MATRIX_UNITS, SUBGROUPS, Dialect

ALIVE = 0.5  # seconds after which a wait makes sure that the device is still there


class Wgpu:
    """What webmm asks of an engine beyond WebGPU's own calls."""

    name = "wgpu"
    api: Any = wgpu  # the module that has WebGPU's classes and flags
    dialect: Dialect = "naga"
    refuses = ""  # which drivers it does not accept, though they work, and what to do
    wanted: tuple[str, ...] = (  # used where an adapter has them
        "shader-f16",
        "shader-f64",
        "subgroup",
        "timestamp-query",
    )

    def __init__(self) -> None:
        self.errors: tuple[type[Exception], ...] = (self.api.GPUError,)
        self.refusals: tuple[type[Exception], ...] = (self.api.GPUError, RuntimeError)  # of opening a device
        self.out_of_memory: tuple[type[Exception], ...] = (self.api.GPUOutOfMemoryError,)
        self.buffer_usage = self.api.BufferUsage
        self.texture_usage = self.api.TextureUsage
        self.compute = self.api.ShaderStage.COMPUTE
        self.subgroups = SUBGROUPS[self.dialect]  # the features
        self.matrix_units = MATRIX_UNITS[self.dialect]

    def version(self) -> str:
        """Return the engine with its version, as records name it."""
        from wgpu.backends.wgpu_native import lib_version_info

        return f"wgpu-py {wgpu.__version__} (wgpu-native {'.'.join(map(str, lib_version_info))})"

    # Adapters

    def adapters(self) -> list[Any]:
        """Return every adapter, in the driver's order."""
        _instance()
        return [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] != "OpenGL"]

    def open(self, adapter: Any, features: Iterable[str], limits: Mapping[str, int]) -> tuple[Any, str]:
        """Return an open device, with matrix units where it can be had, and else why it has none.

        wgpu-native 29 lists the feature for adapters that have them and refuses to enable it: it counts as experimental
        and there is no way yet to accept that. So it is asked for wherever it is listed, and used once it is granted.
        Raises one of `refusals` where the device cannot be opened at all.
        """
        asked: dict[str, Any] = {"required_features": list(features), "required_limits": dict(limits)}
        if self.matrix_units not in adapter.features:
            return adapter.request_device_sync(**asked), f"the adapter does not offer {self.matrix_units}"
        try:
            asked_more = asked | {"required_features": [*asked["required_features"], self.matrix_units]}
            return adapter.request_device_sync(**asked_more), ""
        except self.refusals as error:
            why = f"wgpu does not enable {self.matrix_units}: {' '.join(str(error).split())}"
            return adapter.request_device_sync(**asked), why

    def matrix_shapes(self, adapter: Any) -> frozenset[MatrixShape]:
        """Return what matrix units of an adapter may multiply: all that naga has words for, as wgpu does not say."""
        del adapter
        return frozenset(MatrixShape("f16", "f32", side, side, side) for side in (16, 8))

    def least_subgroup(self, adapter_info: Mapping[str, Any]) -> int:
        """Return the least subgroup size that an adapter reports; wgpu 29 gives 4 for all, under a misspelt name."""
        return int(adapter_info["stackgroup_min_size"] or 0)

    # Objects

    def is_device(self, x: Any) -> bool:
        """Tell whether `x` is an open device of this engine."""
        return isinstance(x, self.api.GPUDevice)

    def is_buffer(self, x: Any, device: Any) -> bool:
        """Tell whether `x` is a buffer of `device`."""
        return isinstance(x, self.api.GPUBuffer) and x._device is device

    def is_texture_view(self, x: Any) -> bool:
        """Tell whether `x` is a view of a texture."""
        return isinstance(x, self.api.GPUTextureView)

    def is_object(self, x: Any) -> bool:
        """Tell whether the garbage collector, by destroying `x`, calls the engine."""
        return issubclass(type(x), (self.api.GPUObjectBase, self.api.GPUAdapter))

    # Waiting

    def poll(self, device: Any) -> None:
        """Let the engine call back what is done."""
        device._poll()

    def wait(self, device: Any) -> None:
        """Wait until everything that was queued on `device` is done."""
        device._poll_wait()

    def mapped(self, device: Any, buffer: Any, mode: str, size: int) -> NDArray[np.uint8]:
        """Map the first `size` bytes of `buffer` once the device is done with it: `mode` is READ or WRITE.

        The array is valid until the buffer is unmapped. Raises an error of the engine where the device is gone.
        """
        mapping = buffer.map_async(mode if mode == "WRITE" else "READ_NOSYNC", 0, size)
        self.poll(device)  # maps an idle buffer at once; wgpu's own thread would wait for the queue first
        while not mapping._thread_event.wait(ALIVE):  # sync_wait() would wait for ever where the device is gone
            self.poll(device)
            device.create_command_encoder().finish()  # raises then
        mapping.sync_wait()
        return np.frombuffer(buffer._experimental_get_mapped_range(0, size), np.uint8)

    def timestamp_period(self, device: Any) -> float:
        """Return the nanoseconds of a tick of the device's clock."""
        from wgpu.backends.wgpu_native import lib

        return float(lib.wgpuQueueGetTimestampPeriod(device.queue._internal))

    # Loss

    def gone(self, device: Any) -> bool:
        """Tell whether `device` was lost or destroyed."""
        poller = device._poller
        gone = poller is None or poller._shutdown  # destroyed, or about to be
        try:
            device.create_command_encoder().finish()
        except wgpu.GPUError as alive:
            gone = gone or "lost" in str(alive).lower()
        return bool(gone)

    def last_words(self, device: Any) -> str:
        """Return what the driver had to say when it gave `device` up; empty where it said nothing."""
        self.poll(device)
        return _last_words.text


@functools.cache
def _instance() -> None:
    """Leave OpenGL out: it is slow to probe and has no limits that kernels could use."""
    from wgpu.backends.wgpu_native.extras import set_instance_extras

    with contextlib.suppress(RuntimeError):  # another user of wgpu in this process has made the instance; it serves
        set_instance_extras(backends=("Vulkan", "Metal", "DX12"))


class _LastWords(logging.Filter):
    """Overhears why a driver gave a device up: wgpu-py logs it, and has no other way to tell."""

    text = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the message and let it pass."""
        _, lost, words = record.getMessage().partition("The WGPU device was lost ")
        if lost and not re.search(r"\((\d+|hiding from now)\)$", words):  # said before, it is only counted
            self.text = " ".join(words.split())
        return True


_last_words = _LastWords()
logging.getLogger("wgpu").addFilter(_last_words)

WGPU = Wgpu()
