"""The engine wgpu: wgpu-py over wgpu-native, with what it does differently, and the reasons."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import wgpu
from numpy.typing import NDArray

from webmm.engine import native
from webmm.engine.engine import Copy, Dispatch, Engine, Mapped
from webmm.engine.header import load_backend
from webmm.kernels.base import MatrixShape
from webmm.wgsl.render import MATRIX_UNITS, SUBGROUPS, Dialect


class Wgpu:
    """The engine wgpu; see `Engine` for what the methods do."""

    name = "wgpu"
    api: Any = wgpu
    dialect: Dialect = "naga"
    rejects = ""
    wanted: tuple[str, ...] = ("shader-f16", "shader-f64", "subgroup", "timestamp-query")
    subgroups, matrix_units = SUBGROUPS["naga"], MATRIX_UNITS["naga"]
    refusals: tuple[type[Exception], ...] = (wgpu.GPUError, RuntimeError)

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
        return frozenset(MatrixShape(kind, "f32", side, side, side) for kind in ("f16", "f32") for side in (16, 8))

    def subgroup_sizes(self, adapter_info: Mapping[str, Any]) -> tuple[int, int]:
        """Return the least and the largest size of subgroups that an adapter reports: 4 and 128 for all in wgpu 29."""
        return native.subgroup_sizes(adapter_info)

    def timestamp_period(self, device: Any) -> float:
        """Return the length of a tick of the device's clock in nanoseconds."""
        from wgpu.backends.wgpu_native import lib

        return float(lib.wgpuQueueGetTimestampPeriod(device.queue._internal))

    # Queue

    def submit(self, device: Any, dispatches: Sequence[Dispatch], copy: Copy | None = None) -> None:
        """Submit dispatches in order, in one pass, and then a copy."""
        native.submit(self.functions, device, dispatches, copy)

    @functools.cached_property
    def functions(self) -> native.Functions:
        """The C functions behind wgpu-py."""
        from wgpu.backends.wgpu_native import _api

        return native.Functions(_api.lib, _api.libf, _api.ffi)

    def wait(self, device: Any) -> None:
        """Wait until all work queued on `device` has finished."""
        device._poll_wait()

    # Mappings

    def map(self, buffer: Any, mode: str, size: int) -> Mapped:
        """Request a mapping of the first `size` bytes of `buffer`."""
        mapped, ffi = Mapped(buffer, mode, size), self.functions.ffi
        number = next(_numbers)
        _mappings[number] = mapped
        info = {"mode": self.functions.lib.WGPUCallbackMode_AllowProcessEvents, "callback": _callback(ffi)}
        info |= {"userdata1": ffi.cast("void *", number)}
        return native.begin(self.functions, mapped, ffi.new("WGPUBufferMapCallbackInfo *", info))

    def ready(self, device: Any, mapped: Mapped) -> bool:
        """Tell whether `data()` would return without waiting, after processing events."""
        if not mapped.status:
            self.functions.lib.wgpuDevicePoll(device._internal, False, self.functions.ffi.NULL)
        return bool(mapped.status)

    def data(self, device: Any, mapped: Mapped) -> NDArray[np.uint8]:
        """Wait for the mapping and return its bytes."""
        native.wait(device, lambda: self.ready(device, mapped))
        if _destroyed(device):  # to get the range would abort the process
            raise wgpu.GPUError("a buffer could not be mapped: the device was destroyed")
        return native.data(self.functions, mapped, wgpu.GPUError)

    def unmap(self, mapped: Mapped) -> None:
        """Unmap the buffer, so that the device may use it."""
        native.unmap(self.functions, mapped)

    # Loss

    def is_lost(self, device: Any) -> bool:
        """Tell whether `device` was lost or destroyed."""
        lost = _destroyed(device)
        try:
            device.create_command_encoder().finish()
        except wgpu.GPUError as error:
            lost = lost or "lost" in str(error).lower()
        return lost

    def loss_reason(self, device: Any) -> str:
        """Return the driver's message about the loss of `device`; empty if there was none."""
        device._poll()
        return _loss_messages.latest


def _destroyed(device: Any) -> bool:
    """Tell whether `device` was destroyed, or is about to be."""
    poller = device._poller
    return poller is None or bool(poller._shutdown)


# Pending mappings by the number passed to their callback, which may be called after the wait was given up.
_mappings: dict[int, Mapped] = {}
_numbers = itertools.count(1)


@functools.cache
def _callback(ffi: Any) -> Any:
    """Return the C function that wgpu-native calls with the status of a mapping.

    It is never freed: a buffer whose mapping is pending may be released when Python has cleared all modules.
    """
    mappings = _mappings

    def set_status(status: int, message: Any, number: Any, unused: Any) -> None:
        del message, unused
        mappings.pop(int(ffi.cast("uintptr_t", number))).status = status

    callback = ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)", set_status)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(callback))
    return callback


@functools.cache
def _instance() -> None:
    """Exclude OpenGL, which is slow to probe and whose limits are too low for the kernels."""
    load_backend()
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

WGPU: Engine = Wgpu()
