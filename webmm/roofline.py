"""What this device can do at most: f32 multiply-adds and bytes per second, by two micro-kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from webmm.engine.array import Array
from webmm.engine.device import Device
from webmm.engine.launch import Launch
from webmm.engine.timing import time_launch
from webmm.kernels.base import MAX_WORKGROUPS, Binding
from webmm.render import environment, tidy

BINDINGS = (
    Binding(0, "source", "read-only-storage", "array<vec4f>"),
    Binding(1, "result", "storage", "array<vec4f>"),
)
COPY_WORKGROUP = 256


@dataclass(frozen=True)
class FmaVariant:
    """One way to ask for the FMA rate: the template's settings, and how many workgroups run it."""

    settings: dict[str, int]
    workgroups: int

    @property
    def invocations(self) -> int:
        """Invocations in all; each writes one vec4."""
        return self.workgroups * self.settings["workgroup"]

    @property
    def flops(self) -> int:
        """Floating-point operations of one dispatch."""
        s = self.settings
        return 2 * 4 * s["chains"] * s["unroll"] * s["iterations"] * self.invocations


@dataclass(frozen=True)
class Roofline:
    """Measured ceilings of a device."""

    gflops: float  # 10⁹ f32 operations per second, an FMA counted as two
    gbytes: float  # 10⁹ bytes per second, read and written ones counted

    def attainable(self, flops: float, nbytes: float) -> float:
        """Return the GFLOP/s that the roofline allows work of `flops` operations on `nbytes` bytes."""
        return min(self.gflops, self.gbytes * flops / nbytes)


def measure(device: Device) -> Roofline:
    """Measure both ceilings; takes about a second."""
    return Roofline(max(_fma_rates(device)), _copy_rate(device))


def fma_variants(cpu: bool) -> Iterator[FmaVariant]:
    """Yield what to try; the device's rate is the best of them."""
    workgroups, iterations = (64, 64) if cpu else (4096, 256)
    for chains, workgroup in ((4, 64), (8, 64), (8, 256)):
        settings = {"chains": chains, "unroll": 8, "iterations": iterations, "workgroup": workgroup}
        yield FmaVariant(settings, workgroups)


def copy_bytes(cpu: bool) -> int:
    """Return the size of a buffer too large for any cache."""
    return 1 << (26 if cpu else 29)


def _fma_rates(device: Device) -> Iterator[float]:
    for variant in fma_variants(device.info.kind == "cpu"):
        source, out = device.array(np.full(8, 0.5, np.float32)), device.empty((variant.invocations * 4,))
        launch = _launch(device, "fma", variant.settings, variant.workgroups, source, out)
        yield variant.flops / time_launch(device, launch, warm_up=0.1).best_us / 1e3


def copying(device: Device) -> tuple[Launch, tuple[Array, Array]]:
    """Return a launch that copies a large buffer, within what a binding may hold, and the arrays that it works on."""
    limit = device.capabilities.limit("max-storage-buffer-binding-size")
    elements = min(copy_bytes(device.info.kind == "cpu"), limit) // 16 * 4
    source, out = device.array(np.ones(elements, np.float32)), device.empty((elements,))
    return copy(device, source, out), (source, out)


def copy(device: Device, source: Array, result: Array) -> Launch:
    """Return a launch that copies an array of whole vec4 of float32 into another."""
    workgroups = -(-source.size // (4 * COPY_WORKGROUP))
    return _launch(device, "copy", {"workgroup": COPY_WORKGROUP}, workgroups, source, result)


def _copy_rate(device: Device) -> float:
    launch, arrays = copying(device)
    return sum(x.nbytes for x in arrays) / time_launch(device, launch, warm_up=0.1).best_us / 1e3


def _launch(
    device: Device, name: str, settings: dict[str, Any], workgroups: int, source: Array, result: Array
) -> Launch:
    text = tidy(environment().get_template(f"roofline/{name}.wgsl").render(settings))
    pipeline = device.compile(text, name, BINDINGS)
    buffers = [source.storage.buffer, result.storage.buffer]
    y = -(-workgroups // MAX_WORKGROUPS)
    return Launch(pipeline, device.bind(pipeline, buffers), (-(-workgroups // y), y, 1))
