"""Candidates for elementwise functions and expressions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from webmm.engine.device import Device
from webmm.kernels.elementwise.map import Map
from webmm.problems.elementwise import Elementwise

if TYPE_CHECKING:
    from webmm.kernels.elementwise.fused import Fused
    from webmm.problems.expression import Expression

COMPATIBLE = 128  # invocations per workgroup on every device, in WebGPU's compatibility mode, too


def candidates(problem: Elementwise | Expression, device: Device) -> list[Map] | list[Fused]:
    """Return the kernel, and one for devices with low limits. GELU of float16 reaches 0.83 of an H200's copy bandwidth
    with one vec4 per invocation, 0.96 with four.
    """
    if not isinstance(problem, Elementwise):
        return _fused()
    wide = device.info.kind != "cpu" and problem.dtype.itemsize == 2
    return [Map(COMPATIBLE, 4) if wide else Map(), Map(COMPATIBLE)]


def _fused() -> list[Fused]:
    """Return the kernels of expressions, which exist in Python only: imported here, they are not translated."""
    fused = import_module("webmm.kernels.elementwise.fused").Fused
    return [fused(), fused(COMPATIBLE)]
