"""The engine Dawn, Chromium's WebGPU, through the package wgpudawn, which has wgpu-py's API.

Dawn enables matrix units, which wgpu-native does not. This module has what differs from wgpu-py, with the reasons.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import wgpudawn
from wgpudawn.backends.dawn import _api, extras
from wgpudawn.backends.dawn._ffi import CALLBACK_MODE, c_callback, callbacks

from webmm.engine.wgpu import Functions, Mapped, Wgpu
from webmm.kernels.base import MatrixShape
from webmm.render import Dialect

# Matrix units are experimental; float16 is disabled on NVIDIA because of a bug in old drivers; timestamps are rounded
# to 65 µs.
ENABLED = ("allow_unsafe_apis", "vulkan_enable_f16_on_nvidia")
DISABLED = ("timestamp_quantization",)


class Dawn(Wgpu):
    """The engine Dawn; overrides what it does differently from wgpu-py."""

    name = "dawn"
    api: Any = wgpudawn
    dialect: Dialect = "tint"
    rejects = "Dawn rejects old drivers, such as Mesa below 23; update the driver"
    # Without implicit synchronisation only one thread may use a device.
    wanted = ("shader-f16", "subgroups", "timestamp-query", "implicit-device-synchronization")

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

    @functools.cached_property
    def functions(self) -> Functions:
        """The C functions behind wgpudawn."""
        return Functions(_api.lib, _api.libf, _api.ffi)

    def _callback_info(self, mapped: Mapped) -> Any:
        """As wgpu's, with wgpudawn's C callback, which looks up the Python callback in its registry."""

        def set_status(status: int, *unused: Any) -> None:
            del unused
            mapped.status = status

        info = {"mode": CALLBACK_MODE, "callback": c_callback("WGPUBufferMapCallback")}
        user = {"userdata1": callbacks.register(set_status)}
        return self.functions.ffi.new("WGPUBufferMapCallbackInfo *", info | user)

    def _poll_mapping(self, device: Any, mapped: Mapped) -> None:
        """As wgpu's, but processes the events of this mapping only."""
        del device
        wait = self.functions.ffi.new("WGPUFutureWaitInfo *", {"future": mapped.future})
        self.functions.checked.wgpuInstanceWaitAny(_api.get_wgpu_instance(), 1, wait, 0)

    def timestamp_period(self, device: Any) -> float:
        """Return 1: Dawn converts ticks to nanoseconds."""
        del device
        return 1.0

    def is_lost(self, device: Any) -> bool:
        """Tell whether `device` was lost or destroyed."""
        try:
            device.create_command_encoder().finish()
        except wgpudawn.GPUError as error:
            return "lost" in str(error).lower()
        return False

    def _destroyed(self, device: Any) -> bool:
        """Return False: Dawn raises an error for any call on a destroyed device."""
        del device
        return False

    def loss_reason(self, device: Any) -> str:
        """Return the driver's message about the loss of `device`; empty if there was none."""
        self.poll(device)
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


DAWN = Dawn()
