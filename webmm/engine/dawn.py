"""The engine of Chromium in Python: Dawn, through the package wgpudawn, which has wgpu-py's own API.

It reaches matrix units, which wgpu-native does not enable. What differs from wgpu-py is here, each with its reason.
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

# Matrix units are experimental; float16 is off on NVIDIA for a fault of old drivers; timestamps are rounded to 65 µs.
ENABLED = ("allow_unsafe_apis", "vulkan_enable_f16_on_nvidia")
DISABLED = ("timestamp_quantization",)


class Dawn(Wgpu):
    """What Dawn does differently."""

    name = "dawn"
    api: Any = wgpudawn
    dialect: Dialect = "tint"
    refuses = "Mesa below 23, for one, is refused; update the driver"
    # Without implicit synchronisation a device may be used by one thread only.
    wanted = ("shader-f16", "subgroups", "timestamp-query", "implicit-device-synchronization")

    def version(self) -> str:
        """Return the engine with its version, as records name it."""
        return f"dawn (wgpudawn {wgpudawn.__version__})"

    def adapters(self) -> list[Any]:
        """Return every adapter, in the driver's order; each opens one device, so that they are fresh ones each time."""
        instance()
        with _silence():
            return list(wgpudawn.gpu.enumerate_adapters_sync())

    def open(self, adapter: Any, features: Iterable[str], limits: Mapping[str, int]) -> tuple[Any, str]:
        """Return an open device, with matrix units where the adapter has them, and else why it has none."""
        wanted, why = [*features], ""
        if self.matrix_units in adapter.features:
            wanted.append(self.matrix_units)
        else:
            why = f"the adapter does not offer {self.matrix_units}"
        return adapter.request_device_sync(required_features=wanted, required_limits=dict(limits)), why

    def matrix_shapes(self, adapter: Any) -> frozenset[MatrixShape]:
        """Return what the matrix units of an adapter multiply, as it says."""
        listed = extras.get_adapter_properties(adapter).get("subgroup_matrix_configs", ())
        return frozenset(
            MatrixShape(each["component_type"], each["result_component_type"], each["m"], each["n"], each["k"])
            for each in listed
        )

    @functools.cached_property
    def functions(self) -> Functions:
        """The functions behind wgpudawn's own."""
        return Functions(_api.lib, _api.libf, _api.ffi)

    def _tells(self, mapped: Mapped) -> Any:
        """As wgpu's, by the package's one callback, which knows whom to tell."""

        def tell(status: int, *more: Any) -> None:
            del more
            mapped.status = status

        told = {"mode": CALLBACK_MODE, "callback": c_callback("WGPUBufferMapCallback")}
        return self.functions.ffi.new("WGPUBufferMapCallbackInfo *", told | {"userdata1": callbacks.register(tell)})

    def _look(self, device: Any, mapped: Mapped) -> None:
        """As wgpu's, for this mapping alone."""
        del device
        wait = self.functions.ffi.new("WGPUFutureWaitInfo *", {"future": mapped.future})
        self.functions.checked.wgpuInstanceWaitAny(_api.get_wgpu_instance(), 1, wait, 0)

    def timestamp_period(self, device: Any) -> float:
        """Return 1: Dawn converts ticks to nanoseconds."""
        del device
        return 1.0

    def gone(self, device: Any) -> bool:
        """Tell whether `device` was lost or destroyed."""
        try:
            device.create_command_encoder().finish()
        except wgpudawn.GPUError as error:
            return "lost" in str(error).lower()
        return False

    def _destroyed(self, device: Any) -> bool:
        """Return False: Dawn refuses whatever a device that was destroyed is asked for."""
        del device
        return False

    def last_words(self, device: Any) -> str:
        """Return what the driver had to say when it gave `device` up; empty where it said nothing."""
        self.poll(device)
        promise = device._lost_promise
        return str(getattr(promise._value, "message", "") or "")


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep Dawn, which has no other way to tell, from writing to stderr about each adapter that it refuses."""
    try:
        stderr = os.dup(2)
    except OSError:  # there is none
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
    """Set the one instance of Dawn in this process up, before the first adapter is asked for."""
    extras.set_instance_extras(
        backends=("Vulkan", "Metal", "DX12"), enable_toggles=list(ENABLED), disable_toggles=list(DISABLED)
    )


DAWN = Dawn()
