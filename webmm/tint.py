"""Tint, the WGSL compiler of Chromium and Dawn, as the package wgpudawn has it: validate WGSL without any GPU."""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

from webmm.dtypes import F16
from webmm.errors import ConfigError, ShaderError, cited
from webmm.render import MATRIX_UNITS, SUBGROUPS

ABSENT = "Tint comes with wgpudawn, which is not installed: pip install 'webmm[dev]' (Python 3.11 or newer)"
FEATURES = F16.features | {SUBGROUPS["tint"], MATRIX_UNITS["tint"]}  # all that shaders enable


def installed() -> bool:
    """Tell whether there is a Tint to ask."""
    return importlib.util.find_spec("wgpudawn") is not None


def version() -> str:
    """Return the version of wgpudawn; raises ConfigError, saying how to install it, where it is not."""
    return str(_wgpudawn().__version__)


def validate(wgsl: str, label: str) -> None:
    """Raise ShaderError where Tint refuses `wgsl`: with the label, Tint's words and the numbered source line.

    Raises ConfigError, saying how to install it, where wgpudawn is not.
    """
    device = _device()
    try:
        device.create_shader_module(code=wgsl)
    except _wgpudawn().GPUError as error:
        raise ShaderError(f"{label}: {cited(str(error).strip(), wgsl)}") from error


def _wgpudawn() -> Any:
    if not installed():
        raise ConfigError(ABSENT)
    return importlib.import_module("wgpudawn")


@functools.cache
def _device() -> Any:
    """Return a device of Dawn's Null backend, which compiles for no driver and runs nothing."""
    _wgpudawn()  # or the error that says what to install
    dawn = importlib.import_module("wgpudawn.backends.dawn")
    importlib.import_module("webmm.engine.dawn").instance()
    # The public way is an environment variable, by which wgpu would choose its backend, too.
    null = dawn.lib.WGPUBackendType_Null
    adapter = dawn.gpu._request_adapter("core", "high-performance", False, dawn.ffi.NULL, null).sync_wait()
    return adapter.request_device_sync(required_features=sorted(FEATURES))
