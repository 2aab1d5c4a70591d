"""The engine wgpu: wgpu-py over wgpu-native, with everything private to it or that another engine does differently.

The rest of the package uses standard WebGPU – buffers, encoders, passes, queues – on the objects that this module
returns, and calls an engine through `Device.engine`. Another engine is a subclass in another module, such as `dawn`.
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
# A copy between buffers: the source, its first byte, the target, its first byte, and the number of bytes.
Copy = tuple[Any, int, Any, int, int]

ALIVE = 0.5  # seconds between two checks, during a wait, that the device is not lost
SPIN = 2e-4  # seconds that a wait polls without sleeping; then it sleeps for an eighth of the time waited so far
MAX_SLEEP = 1e-3  # seconds of such a sleep at most
MAPPED = 1  # WebGPU's status of success


class Functions(NamedTuple):
    """WebGPU's C API: the raw functions, the same functions with errors raised as exceptions, and cffi."""

    lib: Any
    checked: Any
    ffi: Any


class Mapped:
    """A pending or complete mapping of the first `size` bytes of a buffer; `status` is 0 while it is pending."""

    __slots__ = ("buffer", "future", "mode", "size", "status")

    def __init__(self, buffer: Any, mode: str, size: int) -> None:
        self.buffer, self.mode, self.size, self.status = buffer, mode, size, 0
        self.future: Any = None


class Wgpu:
    """The interface of an engine beyond WebGPU's standard calls, implemented for wgpu-py.

    The class is long because everything that engines do differently is a method here; most take a few lines.
    """

    name = "wgpu"
    api: Any = wgpu  # the module with WebGPU's classes and flags
    dialect: Dialect = "naga"
    rejects = ""  # which drivers the engine rejects although they work, and what to do about it
    # Features that are enabled if the adapter has them:
    wanted: tuple[str, ...] = ("shader-f16", "shader-f64", "subgroup", "timestamp-query")

    def __init__(self) -> None:
        self.errors: tuple[type[Exception], ...] = (self.api.GPUError,)
        self.refusals: tuple[type[Exception], ...] = (self.api.GPUError, RuntimeError)  # errors of opening a device
        self.out_of_memory: tuple[type[Exception], ...] = (self.api.GPUOutOfMemoryError,)
        self.buffer_usage = self.api.BufferUsage
        self.texture_usage = self.api.TextureUsage
        self.compute = self.api.ShaderStage.COMPUTE
        self.subgroups = SUBGROUPS[self.dialect]  # names of features
        self.matrix_units = MATRIX_UNITS[self.dialect]

    def version(self) -> str:
        """Return the engine's name and version, as in records."""
        from wgpu.backends.wgpu_native import lib_version_info

        return f"wgpu-py {wgpu.__version__} (wgpu-native {'.'.join(map(str, lib_version_info))})"

    # Adapters

    def adapters(self) -> list[Any]:
        """Return all adapters, in the driver's order."""
        _instance()
        return [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] != "OpenGL"]

    def open(self, adapter: Any, features: Iterable[str], limits: Mapping[str, int]) -> tuple[Any, str]:
        """Return an open device with matrix units if possible, and otherwise the reason why it has none.

        wgpu-native 29 lists the feature for adapters that have matrix units, but does not enable it: the feature is
        experimental, and there is no way yet to accept that. So the feature is requested whenever it is listed, and
        used as soon as a version grants it. Raises one of `refusals` if the device cannot be opened at all.
        """
        request: dict[str, Any] = {"required_features": list(features), "required_limits": dict(limits)}
        if self.matrix_units not in adapter.features:
            return adapter.request_device_sync(**request), f"the adapter does not offer {self.matrix_units}"
        try:
            with_matrix = request | {"required_features": [*request["required_features"], self.matrix_units]}
            return adapter.request_device_sync(**with_matrix), ""
        except self.refusals as error:
            why = f"wgpu does not enable {self.matrix_units}: {' '.join(str(error).split())}"
            return adapter.request_device_sync(**request), why

    def matrix_shapes(self, adapter: Any) -> frozenset[MatrixShape]:
        """Return the fragment shapes that matrix units may support: all that naga can express, as wgpu lists none."""
        del adapter
        return frozenset(MatrixShape("f16", "f32", side, side, side) for side in (16, 8))

    def min_subgroup_size(self, adapter_info: Mapping[str, Any]) -> int:
        """Return the minimum subgroup size that an adapter reports; wgpu 29 says 4 for all, under a misspelt name."""
        return int(adapter_info["stackgroup_min_size"] or 0)

    # Objects

    def is_device(self, x: Any) -> bool:
        """Tell whether `x` is an open device of this engine."""
        return isinstance(x, self.api.GPUDevice)

    def is_buffer(self, x: Any, device: Any) -> bool:
        """Tell whether `x` is a buffer of `device`."""
        return isinstance(x, self.api.GPUBuffer) and x._device is device

    def is_texture_view(self, x: Any) -> bool:
        """Tell whether `x` is a texture view."""
        return isinstance(x, self.api.GPUTextureView)

    def is_object(self, x: Any) -> bool:
        """Tell whether the destructor of `x` calls the engine."""
        return issubclass(type(x), (self.api.GPUObjectBase, self.api.GPUAdapter))

    # Submissions call the C functions directly: wgpu-py creates an object and an error scope per call, which takes
    # twice as long as everything else.

    def submit(self, device: Any, dispatches: Sequence[Dispatch], copy: Copy | None = None) -> None:
        """Submit dispatches in order, in one pass, and then a copy; raises the same errors as a WebGPU encoder.

        If the engine rejects one of the commands, none of them is queued.
        """
        lib, _, ffi = self.functions
        encoder = lib.wgpuDeviceCreateCommandEncoder(device._internal, ffi.NULL)
        if dispatches:
            self._encode(encoder, dispatches)
        if copy is not None:
            source, start, target, offset, size = copy
            lib.wgpuCommandEncoderCopyBufferToBuffer(encoder, source._internal, start, target._internal, offset, size)
        self._finish(device, encoder)

    def _encode(self, encoder: Any, dispatches: Sequence[Dispatch]) -> None:
        """Encode dispatches in one compute pass."""
        lib, _, ffi = self.functions
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

    def _finish(self, device: Any, encoder: Any) -> None:
        """Submit the encoder's commands; the engine reports errors of encoding only here."""
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
        """The C functions behind wgpu-py."""
        from wgpu.backends.wgpu_native import _api

        return Functions(_api.lib, _api.libf, _api.ffi)

    # Waiting

    def poll(self, device: Any) -> None:
        """Process events, so that the engine calls pending callbacks."""
        device._poll()

    def wait(self, device: Any) -> None:
        """Wait until all work queued on `device` has finished."""
        device._poll_wait()

    # Mappings are polled instead of waited for: while a thread waits, as wgpu-py does for a mapping, wgpu blocks
    # submissions of other threads.

    def map(self, buffer: Any, mode: str, size: int) -> Mapped:
        """Request a mapping of the first `size` bytes of `buffer`, for READ or WRITE, once the device has used them."""
        lib, checked, _ = self.functions
        mapped = Mapped(buffer, mode, size)
        flag = lib.WGPUMapMode_Read if mode == "READ" else lib.WGPUMapMode_Write
        mapped.future = checked.wgpuBufferMapAsync(buffer._internal, flag, 0, size, self._callback_info(mapped)[0])
        return mapped

    def ready(self, device: Any, mapped: Mapped) -> bool:
        """Tell whether `data()` would return without waiting."""
        if not mapped.status:
            self._poll_mapping(device, mapped)
        return bool(mapped.status)

    def data(self, device: Any, mapped: Mapped) -> NDArray[np.uint8]:
        """Wait for the mapping and return its bytes, which are valid until `unmap()`.

        Raises an error of the engine if the device is lost.
        """
        start = last_check = time.perf_counter()
        while not self.ready(device, mapped):
            now = time.perf_counter()
            if now > last_check + ALIVE:  # the callback of a lost device may never come
                device.create_command_encoder().finish()  # raises if the device is lost
                last_check = now
            if now > start + SPIN:
                time.sleep(min((now - start) / 8, MAX_SLEEP))
        if mapped.status != MAPPED or self._destroyed(device):  # to get the range of a destroyed device would abort
            raise self.api.GPUError(f"a buffer could not be mapped (status {mapped.status})")
        lib, _, ffi = self.functions
        get = lib.wgpuBufferGetConstMappedRange if mapped.mode == "READ" else lib.wgpuBufferGetMappedRange
        pointer = get(mapped.buffer._internal, 0, mapped.size)
        if pointer == ffi.NULL:
            raise self.api.GPUError("a mapped buffer has no memory")
        return np.frombuffer(ffi.buffer(pointer, mapped.size), np.uint8)

    def unmap(self, mapped: Mapped) -> None:
        """Unmap the buffer, so that the device may use it."""
        self.functions.lib.wgpuBufferUnmap(mapped.buffer._internal)

    def _callback_info(self, mapped: Mapped) -> Any:
        """Return the C struct of a callback that sets the status of `mapped`."""
        number = next(_numbers)
        _mappings[number] = mapped
        lib, _, ffi = self.functions
        info = {"mode": lib.WGPUCallbackMode_AllowProcessEvents, "callback": _callback()}
        return ffi.new("WGPUBufferMapCallbackInfo *", info | {"userdata1": ffi.cast("void *", number)})

    def _poll_mapping(self, device: Any, mapped: Mapped) -> None:
        """Process events, so that the status of `mapped` is set if the mapping is complete."""
        del mapped
        self.functions.lib.wgpuDevicePoll(device._internal, False, self.functions.ffi.NULL)

    def timestamp_period(self, device: Any) -> float:
        """Return the length of a tick of the device's clock in nanoseconds."""
        from wgpu.backends.wgpu_native import lib

        return float(lib.wgpuQueueGetTimestampPeriod(device.queue._internal))

    # Loss

    def is_lost(self, device: Any) -> bool:
        """Tell whether `device` was lost or destroyed."""
        lost = self._destroyed(device)
        try:
            device.create_command_encoder().finish()
        except wgpu.GPUError as error:
            lost = lost or "lost" in str(error).lower()
        return lost

    def _destroyed(self, device: Any) -> bool:
        """Tell whether `device` was destroyed, or is about to be."""
        poller = device._poller
        return poller is None or bool(poller._shutdown)

    def loss_reason(self, device: Any) -> str:
        """Return the driver's message about the loss of `device`; empty if there was none."""
        self.poll(device)
        return _loss_messages.latest


# Pending mappings by the number passed to their callback, which may be called after the wait was given up.
_mappings: dict[int, Mapped] = {}
_numbers = itertools.count(1)


@functools.cache
def _callback() -> Any:
    """Return the C function that wgpu-native calls with the status of a mapping; it is never freed."""
    ffi, mappings = WGPU.functions.ffi, _mappings  # module globals are cleared before the last devices are destroyed

    def set_status(status: int, message: Any, number: Any, unused: Any) -> None:
        del message, unused
        mappings.pop(int(ffi.cast("uintptr_t", number))).status = status

    return ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)", set_status)


@functools.cache
def _instance() -> None:
    """Exclude OpenGL, which is slow to probe and whose limits are too low for the kernels."""
    from wgpu.backends.wgpu_native.extras import set_instance_extras

    with contextlib.suppress(RuntimeError):  # other code in this process has created the instance: use that
        set_instance_extras(backends=("Vulkan", "Metal", "DX12"))


class _LossMessages(logging.Filter):
    """Records why a device was lost from wgpu-py's log, the only place where wgpu-py reports it."""

    latest = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Store the message and pass the record on."""
        _, lost, reason = record.getMessage().partition("The WGPU device was lost ")
        if lost and not re.search(r"\((\d+|hiding from now)\)$", reason):  # repeated messages are only counted
            self.latest = " ".join(reason.split())
        return True


_loss_messages = _LossMessages()
logging.getLogger("wgpu").addFilter(_loss_messages)

WGPU = Wgpu()
