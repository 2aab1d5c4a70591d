"""The engine: wgpu-py over wgpu-native. All that is private to it, or that another engine does differently, is here.

The rest of the package uses what WebGPU itself has – buffers, encoders, passes, queues – on the objects that come from
here, and asks a `Device` for its `engine`. A second engine is a module of its own with a subclass.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import wgpu
from numpy.typing import NDArray

from webmm.kernels.base import MatrixShape
from webmm.render import MATRIX_UNITS, SUBGROUPS, Dialect

Dispatch = tuple[Any, Any, tuple[int, int, int]]  # a pipeline, its bind group, and the grid of workgroups

ALIVE = 0.5  # seconds after which a wait makes sure that the device is still there
SPIN = 2e-4  # seconds for which a wait only looks; then it sleeps in between, for an eighth of what it has waited
LONGEST = 1e-3  # seconds of such a sleep
MAPPED = 1  # WebGPU's status of success


class Functions(NamedTuple):
    """The functions of WebGPU's C API: bare, with errors raised as exceptions, and cffi for their arguments."""

    lib: Any
    checked: Any
    ffi: Any


class Mapped:
    """The first bytes of a buffer on their way into host memory; `status` is 0 until the engine says how it went."""

    __slots__ = ("buffer", "future", "mode", "size", "status")

    def __init__(self, buffer: Any, mode: str, size: int) -> None:
        self.buffer, self.mode, self.size, self.status = buffer, mode, size, 0
        self.future: Any = None


class Wgpu:
    """What webmm asks of an engine beyond WebGPU's own calls.

    Long because all that engines do differently is a method here, most of them of a few lines.
    """

    name = "wgpu"
    api: Any = wgpu  # the module that has WebGPU's classes and flags
    dialect: Dialect = "naga"
    refuses = ""  # which drivers it does not accept, though they work, and what to do
    # Used where an adapter has them:
    wanted: tuple[str, ...] = ("shader-f16", "shader-f64", "subgroup", "timestamp-query")

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

    # Work. By the engine's own functions: wgpu-py makes an object and a capture of errors of each call, which takes
    # twice as long as all the rest.

    def submit(self, device: Any, dispatches: Sequence[Dispatch]) -> None:
        """Queue dispatches, one after the other, in one pass of one submission; raises as an encoder of WebGPU's.

        Of dispatches of which the engine refuses one, none is queued.
        """
        lib, _, ffi = self.functions
        encoder = lib.wgpuDeviceCreateCommandEncoder(device._internal, ffi.NULL)
        compute_pass = lib.wgpuCommandEncoderBeginComputePass(encoder, ffi.NULL)
        last = None
        for pipeline, bind_group, grid in dispatches:
            if pipeline is not last:
                lib.wgpuComputePassEncoderSetPipeline(compute_pass, pipeline._internal)
                last = pipeline
            lib.wgpuComputePassEncoderSetBindGroup(compute_pass, 0, bind_group._internal, 0, ffi.NULL)
            lib.wgpuComputePassEncoderDispatchWorkgroups(compute_pass, *grid)
        lib.wgpuComputePassEncoderEnd(compute_pass)
        lib.wgpuComputePassEncoderRelease(compute_pass)
        self._finish(device, encoder)

    def copy(self, device: Any, source: Any, start: int, target: Any, offset: int, size: int) -> None:
        """Queue a copy of `size` bytes from byte `start` of one buffer to byte `offset` of another; raises likewise."""
        lib, _, ffi = self.functions
        encoder = lib.wgpuDeviceCreateCommandEncoder(device._internal, ffi.NULL)
        lib.wgpuCommandEncoderCopyBufferToBuffer(encoder, source._internal, start, target._internal, offset, size)
        self._finish(device, encoder)

    def _finish(self, device: Any, encoder: Any) -> None:
        """Submit what was encoded, of which the engine complains only here."""
        lib, checked, ffi = self.functions
        try:
            commands = checked.wgpuCommandEncoderFinish(encoder, ffi.NULL)
        finally:
            lib.wgpuCommandEncoderRelease(encoder)
        try:
            checked.wgpuQueueSubmit(device.queue._internal, 1, [commands])
        finally:
            lib.wgpuCommandBufferRelease(commands)

    @functools.cached_property
    def functions(self) -> Functions:
        """The functions behind wgpu-py's own."""
        from wgpu.backends.wgpu_native import _api

        return Functions(_api.lib, _api.libf, _api.ffi)

    # Waiting

    def poll(self, device: Any) -> None:
        """Let the engine call back what is done."""
        device._poll()

    def wait(self, device: Any) -> None:
        """Wait until everything that was queued on `device` is done."""
        device._poll_wait()

    # Moving data. Looking whether it is there in place of waiting for it: while a thread waits, as wgpu-py's own does
    # for a mapping, wgpu lets no other one submit.

    def map(self, buffer: Any, mode: str, size: int) -> Mapped:
        """Ask for the first `size` bytes of `buffer`, for READ or WRITE, once the device is done with them."""
        lib, checked, _ = self.functions
        mapped = Mapped(buffer, mode, size)
        flag = lib.WGPUMapMode_Read if mode == "READ" else lib.WGPUMapMode_Write
        mapped.future = checked.wgpuBufferMapAsync(buffer._internal, flag, 0, size, self._tells(mapped)[0])
        return mapped

    def ready(self, device: Any, mapped: Mapped) -> bool:
        """Tell whether `data()` would not wait."""
        if not mapped.status:
            self._look(device, mapped)
        return bool(mapped.status)

    def data(self, device: Any, mapped: Mapped) -> NDArray[np.uint8]:
        """Wait for the bytes and return them; they are there until `unmap()`.

        Raises an error of the engine where the device is gone.
        """
        start = alive = time.perf_counter()
        while not self.ready(device, mapped):
            now = time.perf_counter()
            if now > alive + ALIVE:  # a device that is gone may never say so
                device.create_command_encoder().finish()  # raises then
                alive = now
            if now > start + SPIN:
                time.sleep(min((now - start) / 8, LONGEST))
        if mapped.status != MAPPED or self._destroyed(device):  # to ask for its memory would then end the process
            raise self.api.GPUError(f"a buffer could not be mapped (status {mapped.status})")
        lib, _, ffi = self.functions
        get = lib.wgpuBufferGetConstMappedRange if mapped.mode == "READ" else lib.wgpuBufferGetMappedRange
        pointer = get(mapped.buffer._internal, 0, mapped.size)
        if pointer == ffi.NULL:
            raise self.api.GPUError("a mapped buffer has no memory")
        return np.frombuffer(ffi.buffer(pointer, mapped.size), np.uint8)

    def unmap(self, mapped: Mapped) -> None:
        """Give the bytes back to the device."""
        self.functions.lib.wgpuBufferUnmap(mapped.buffer._internal)

    def _tells(self, mapped: Mapped) -> Any:
        """Return what makes the engine set the status of `mapped`."""
        number = next(_numbers)
        _under_way[number] = mapped
        lib, _, ffi = self.functions
        told = {"mode": lib.WGPUCallbackMode_AllowProcessEvents, "callback": _callback()}
        return ffi.new("WGPUBufferMapCallbackInfo *", told | {"userdata1": ffi.cast("void *", number)})

    def _look(self, device: Any, mapped: Mapped) -> None:
        """Let the engine set the status, if it can by now."""
        del mapped
        self.functions.lib.wgpuDevicePoll(device._internal, False, self.functions.ffi.NULL)

    def timestamp_period(self, device: Any) -> float:
        """Return the nanoseconds of a tick of the device's clock."""
        from wgpu.backends.wgpu_native import lib

        return float(lib.wgpuQueueGetTimestampPeriod(device.queue._internal))

    # Loss

    def gone(self, device: Any) -> bool:
        """Tell whether `device` was lost or destroyed."""
        gone = self._destroyed(device)
        try:
            device.create_command_encoder().finish()
        except wgpu.GPUError as alive:
            gone = gone or "lost" in str(alive).lower()
        return gone

    def _destroyed(self, device: Any) -> bool:
        """Tell whether `device` was destroyed, or is about to be."""
        poller = device._poller
        return poller is None or bool(poller._shutdown)

    def last_words(self, device: Any) -> str:
        """Return what the driver had to say when it gave `device` up; empty where it said nothing."""
        self.poll(device)
        return _last_words.text


# What is being mapped, by the number that the engine gives its callback: which may come when nobody waits any more.
_under_way: dict[int, Mapped] = {}
_numbers = itertools.count(1)


@functools.cache
def _callback() -> Any:
    """Return the C function that wgpu-native calls with the status of a mapping; it is there as long as the process."""
    ffi, under_way = WGPU.functions.ffi, _under_way  # the module's names go before the last devices of a process do

    def tell(status: int, message: Any, number: Any, more: Any) -> None:
        del message, more
        under_way.pop(int(ffi.cast("uintptr_t", number))).status = status

    return ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)", tell)


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
