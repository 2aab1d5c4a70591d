"""Validation of WGSL by Tint, the compiler of Chromium and Dawn, through the package wgpudawn; needs no GPU."""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

from webmm.dtypes import F16
from webmm.errors import ConfigError
from webmm.kernels.subgroups import SIZE_CONTROL
from webmm.wgsl.compilers import refused
from webmm.wgsl.render import MATRIX_UNITS, SUBGROUPS

ABSENT = "Tint comes with wgpudawn, which is not installed: pip install 'webmm[dev]' (Python 3.11 or newer)"
FEATURES = F16.features | {SUBGROUPS["tint"], SIZE_CONTROL, MATRIX_UNITS["tint"]}  # all that shaders enable


def installed() -> bool:
    """Return whether Tint is installed."""
    return importlib.util.find_spec("wgpudawn") is not None


def version() -> str:
    """Return the version of wgpudawn; raises ConfigError, which says how to install it, if it is missing."""
    return str(_wgpudawn().__version__)


def validate(wgsl: str, label: str) -> None:
    """Raise ShaderError if Tint refuses `wgsl`, with the label, Tint's message and the line that it means.

    Raises ConfigError, which says how to install it, if wgpudawn is missing.
    """
    device = _device()
    try:
        device.create_shader_module(code=wgsl)
    except _wgpudawn().GPUError as error:
        raise refused(label, str(error), wgsl) from error


def _wgpudawn() -> Any:
    if not installed():
        raise ConfigError(ABSENT)
    return importlib.import_module("wgpudawn")


@functools.cache
def _device() -> Any:
    """Return a device of Dawn's Null backend, which validates shaders but has no driver and runs nothing."""
    _wgpudawn()  # raises the error that says what to install
    dawn = importlib.import_module("wgpudawn.backends.dawn")
    importlib.import_module("webmm.engine.dawn").instance()
    # Dawn's public setting is an environment variable that would also change wgpu's choice of backend.
    null = dawn.lib.WGPUBackendType_Null
    adapter = dawn.gpu._request_adapter("core", "high-performance", False, dawn.ffi.NULL, null).sync_wait()
    return adapter.request_device_sync(required_features=sorted(FEATURES))
