"""The engine Dawn, Chromium's WebGPU, through the package wgpudawn, which has wgpu-py's API.

Dawn enables matrix units, which wgpu-native does not. This module has what it does differently, with the reasons.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import wgpudawn
from numpy.typing import NDArray
from wgpudawn.backends.dawn import _api, extras
from wgpudawn.backends.dawn._ffi import CALLBACK_MODE, c_callback, callbacks

from webmm.engine import native
from webmm.engine.engine import Copy, Dispatch, Engine, Mapped
from webmm.kernels.base import MatrixShape
from webmm.kernels.subgroups import SIZE_CONTROL
from webmm.wgsl.render import MATRIX_UNITS, SUBGROUPS, Dialect

# Matrix units are experimental; float16 is disabled on NVIDIA because of a bug in old drivers; timestamps are rounded
# to 65 µs.
ENABLED = ("allow_unsafe_apis", "vulkan_enable_f16_on_nvidia")
DISABLED = ("timestamp_quantization",)


class Dawn:
    """The engine Dawn; see `Engine` for what the methods do."""

    name = "dawn"
    api: Any = wgpudawn
    dialect: Dialect = "tint"
    rejects = "Dawn rejects old drivers, such as Mesa below 23; update the driver"
    # Without implicit synchronisation only one thread may use a device.
    wanted: tuple[str, ...] = (
        *("shader-f16", "subgroups", SIZE_CONTROL, "timestamp-query", "implicit-device-synchronization"),
    )
    subgroups, matrix_units = SUBGROUPS["tint"], MATRIX_UNITS["tint"]
    refusals: tuple[type[Exception], ...] = (wgpudawn.GPUError, RuntimeError)

    def version(self) -> str:
        """Return the engine's name and version, as in records."""
        return f"dawn (wgpudawn {wgpudawn.__version__})"

    def adapters(self) -> list[Any]:
        """Return new objects for all adapters, in the driver's order: an adapter object can open only one device."""
        instance()
        with _silence():
            return list(wgpudawn.gpu.enumerate_adapters_sync())

    def open(self, adapter: Any, features: Iterable[str], limits: Mapping[str, int]) -> tuple[Any, str]:
        """Return an open device with matrix units if the adapter has them, and otherwise the reason why it has none."""
        wanted, why = [*features], ""
        if self.matrix_units in adapter.features:
            wanted.append(self.matrix_units)
        else:
            why = f"the adapter does not offer {self.matrix_units}"
        return adapter.request_device_sync(required_features=wanted, required_limits=dict(limits)), why

    def matrix_shapes(self, adapter: Any) -> frozenset[MatrixShape]:
        """Return the fragment shapes that the adapter reports for its matrix units."""
        listed = extras.get_adapter_properties(adapter).get("subgroup_matrix_configs", ())
        return frozenset(
            MatrixShape(each["component_type"], each["result_component_type"], each["m"], each["n"], each["k"])
            for each in listed
        )

    def subgroup_sizes(self, adapter_info: Mapping[str, Any]) -> tuple[int, int]:
        """Return the least and the largest size of subgroups that an adapter reports."""
        return native.subgroup_sizes(adapter_info)

    def timestamp_period(self, device: Any) -> float:
        """Return 1: Dawn converts ticks to nanoseconds."""
        del device
        return 1.0

    # Queue

    @functools.cached_property
    def functions(self) -> native.Functions:
        """The C functions behind wgpudawn."""
        return native.Functions(_api.lib, _api.libf, _api.ffi)

    def submit(self, device: Any, dispatches: Sequence[Dispatch], copy: Copy | None = None) -> None:
        """Submit dispatches in order, in one pass, and then a copy."""
        native.submit(self.functions, device, dispatches, copy)

    def wait(self, device: Any) -> None:
        """Wait until all work queued on `device` has finished."""
        device._poll_wait()

    # Mappings

    def map(self, buffer: Any, mode: str, size: int) -> Mapped:
        """Request a mapping; wgpudawn's C callback looks up the Python callback in its registry."""
        mapped = Mapped(buffer, mode, size)

        def set_status(status: int, *unused: Any) -> None:
            del unused
            mapped.status = status

        info = {"mode": CALLBACK_MODE, "callback": c_callback("WGPUBufferMapCallback")}
        info |= {"userdata1": callbacks.register(set_status)}
        return native.begin(self.functions, mapped, self.functions.ffi.new("WGPUBufferMapCallbackInfo *", info))

    def ready(self, device: Any, mapped: Mapped) -> bool:
        """Tell whether `data()` would return without waiting, after processing the events of this mapping only."""
        del device
        if not mapped.status:
            wait = self.functions.ffi.new("WGPUFutureWaitInfo *", {"future": mapped.future})
            self.functions.checked.wgpuInstanceWaitAny(_api.get_wgpu_instance(), 1, wait, 0)
        return bool(mapped.status)

    def data(self, device: Any, mapped: Mapped) -> NDArray[np.uint8]:
        """Wait for the mapping and return its bytes."""
        native.wait(device, lambda: self.ready(device, mapped))
        return native.data(self.functions, mapped, wgpudawn.GPUError)

    def unmap(self, mapped: Mapped) -> None:
        """Unmap the buffer, so that the device may use it."""
        native.unmap(self.functions, mapped)

    # Loss

    def is_lost(self, device: Any) -> bool:
        """Tell whether `device` was lost or destroyed."""
        try:
            device.create_command_encoder().finish()
        except wgpudawn.GPUError as error:
            return "lost" in str(error).lower()
        return False

    def loss_reason(self, device: Any) -> str:
        """Return the driver's message about the loss of `device`; empty if there was none."""
        with contextlib.suppress(wgpudawn.GPUError):  # which a call of another thread caused
            device._poll()
        promise = device._lost_promise
        return str(getattr(promise._value, "message", "") or "")


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Redirect stderr, to which Dawn writes about each adapter that it rejects: it has no option to disable that."""
    try:
        stderr = os.dup(2)
    except OSError:  # the process has no stderr
        yield
        return
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


@functools.cache
def instance() -> None:
    """Configure Dawn's instance, of which a process has one, before the first adapter is requested."""
    extras.set_instance_extras(
        backends=("Vulkan", "Metal", "DX12"), enable_toggles=list(ENABLED), disable_toggles=list(DISABLED)
    )


DAWN: Engine = Dawn()
