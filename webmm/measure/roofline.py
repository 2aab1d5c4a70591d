"""Measured limits of a device: the f32 FMA rate, memory and cache bandwidth, and the cost of a dispatch.

The steps of `measure()` are in the translated subset (docs/page.md).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from webmm.engine import rates
from webmm.engine.device import Array, Device
from webmm.engine.launch import Launch
from webmm.engine.rates import Rates
from webmm.engine.timing import time_launch
from webmm.errors import ConfigError, MemoryLimitError, ShaderError
from webmm.kernels.base import MAX_WORKGROUPS, Binding
from webmm.kernels.subgroups import SIZE_CONTROL
from webmm.wgsl.render import environment, tidy

BINDINGS = (
    Binding(0, "source", "read-only-storage", "array<vec4f>"),
    Binding(1, "result", "storage", "array<vec4f>"),
)
COPY_WORKGROUP = 256
CACHED = 2**20  # float32 elements of a copy that stays within a cache
MAX_AT_ONCE = 2**11  # workgroups
MOST_CACHED = 32  # times the memory's rate, at most: a copy may take no longer than a dispatch seems to
FEW = 64  # workgroups that show how long a dispatch takes
SLOWED = 1.4  # times the duration of a single workgroup: beyond it, workgroups no longer all run at once
UNIT_WORKGROUPS = 4096
UNIT_SETTINGS = {"side": 2, "unroll": 4, "iterations": 64}  # of `fragments`: its sums are side × side fragments
BRIEFLY, LONGER = (0.01, 0.01), (0.1,)  # seconds of warm-up and, unless as usual, of timing
SMALLEST_COPY = 2**23  # bytes of the buffer of a copy, if memory is scarce
# A brief probe: times for a measurement, the longest dispatch in seconds, and the bytes of a copy beyond most caches.
MOMENT, LONGEST, BEYOND_CACHE, BEYOND_LARGE_CACHE = (0.002, 0.002), 0.01, 2**25, 2**27


@dataclass(frozen=True)
class FmaVariant:
    """One way to measure the FMA rate: the template's settings and the number of workgroups."""

    settings: dict[str, int]
    workgroups: int

    @property
    def invocations(self) -> int:
        """Number of invocations; each writes one vec4."""
        return self.workgroups * self.settings["workgroup"]

    @property
    def flops(self) -> int:
        """Floating-point operations of one dispatch."""
        s = self.settings
        return 2 * 4 * s["chains"] * s["unroll"] * s["iterations"] * self.invocations


@dataclass(frozen=True)
class Roofline:
    """Measured ceilings of a device."""

    gflops: float  # 10⁹ f32 operations per second; an FMA counts as two
    gbytes: float  # 10⁹ bytes per second, read plus written

    def attainable(self, flops: float, nbytes: float) -> float:
        """Return the highest rate, in GFLOP/s, for work of `flops` operations on `nbytes` bytes."""
        return min(self.gflops, self.gbytes * flops / nbytes)


# The steps of measure(), in both languages


def measure(device: Device) -> Roofline:
    """Measure FMA rate and bandwidth, in about a second."""
    return Roofline(_fma_rate(device), _copy_rate(device, copy_bytes(device.info.kind == "cpu")))


def _fma_rate(device: Device) -> float:
    """Return the rate of the fastest variant: short runs find it, long ones measure it."""
    variants = list(fma_variants(device.info.kind == "cpu"))
    rates = [_rate(device, variant, BRIEFLY) for variant in variants]
    return _rate(device, variants[rates.index(max(rates))], LONGER)


def _rate(device: Device, variant: FmaVariant, seconds: tuple[float, ...]) -> float:
    """Return the FMA rate of a variant in GFLOP/s."""
    us = best_us(device, "fma", variant.settings, variant.workgroups, seconds)
    return variant.flops / us / 1e3


def _copy_rate(device: Device, nbytes: int) -> float:
    """Return the rate of copying a buffer of up to `nbytes` bytes, reads and writes both counted, in GB/s."""
    limits = device.capabilities.limits
    most = min(nbytes, limits["max-storage-buffer-binding-size"], limits["max-buffer-size"])
    workgroups = most // (16 * COPY_WORKGROUP)
    try:
        us = best_us(device, "copy", {"workgroup": COPY_WORKGROUP}, workgroups, LONGER)
        return 2 * 16 * COPY_WORKGROUP * workgroups / us / 1e3
    except MemoryLimitError as error:
        if most < 2 * SMALLEST_COPY:
            raise error
        return _copy_rate(device, most // 2)  # phones may have less memory to spare


# What they ask of a device, of which JavaScript has a version of its own, and more that Python measures


def best_us(device: Device, name: str, settings: dict[str, int], workgroups: int, seconds: tuple[float, ...]) -> float:
    """Return the best time, in µs, of a kernel that copies a vec4 per invocation, or makes it of eight numbers."""
    count = 4 * workgroups * settings["workgroup"]
    with _halves(device, count if name == "copy" else 8) as source, device.empty((count,)) as out:
        launch = _launch(device, name, settings, workgroups, source, out)
        return time_launch(device, launch, *seconds).best_us


def _halves(device: Device, count: int) -> Array:
    try:
        return device.array(np.full(count, 0.5, np.float32))
    except RuntimeError:  # at exit, for a profile of the program, Python starts no threads for an upload
        return device.zeros((count,))


def probe(device: Device, ceiling: Roofline | None = None) -> Rates:
    """Measure the rates that the cost model uses, in about a second, or half a second if `ceiling` is given."""
    ceiling = ceiling or measure(device)
    launch = _copy_us(device, 4)
    cached = cache_rate(_copy_us(device, CACHED), launch, ceiling.gbytes)
    rates = ceiling.gflops, ceiling.gbytes, cached, launch, workgroups_at_once(device)
    return Rates(*rates, fragment_rates(device))


def probe_and_keep(device: Device, ceiling: Roofline) -> None:
    """Probe a GPU whose roofline is known, and save the rates for the cost model, which does not cover CPUs."""
    if device.info.kind != "cpu":
        with contextlib.suppress(ConfigError):  # if the rates cannot be saved, they are measured again
            rates.keep(device, probe(device, ceiling))


def probe_briefly(device: Device, go_on: Callable[[], bool]) -> Rates | None:
    """Measure the rates in half a second to a second, less accurately; None once `go_on()` is False.

    It is asked before each of seven parts, of which the first takes 0.4 s, to wake an idle GPU, and the others less.
    Arithmetic does that: woken by copies of four elements, an H100 read 1.6 of its 3.0 TB/s, and 10 µs for a dispatch
    that takes 4.5.
    """
    nbytes = BEYOND_LARGE_CACHE if device.info.kind == "discrete" else BEYOND_CACHE
    elements = min(nbytes, device.capabilities.limit("max-storage-buffer-binding-size")) // 16 * 4
    variants = list(fma_variants(device.info.kind == "cpu"))
    parts: list[Callable[[], float]] = [
        *(functools.partial(_brief_rate, device, variant) for variant in variants),
        lambda: workgroups_at_once(device, MOMENT),
        lambda: 8 * elements / _copy_us(device, elements) / 1e3,
        lambda: _copy_us(device, CACHED),
        lambda: _copy_us(device, 4),
    ]
    found = [part() for part in parts if go_on()]
    if len(found) < len(parts):
        return None
    *gflops, workgroups, gbytes, cached, launch = found
    return Rates(max(gflops), gbytes, cache_rate(cached, launch, gbytes), launch, int(workgroups))


def cache_rate(copied_us: float, launch_us: float, gbytes: float) -> float:
    """Return the GB/s of a copy within a cache, from its time and that of a dispatch, which may hide most of it."""
    return min(8 * CACHED / max(copied_us - launch_us, 1e-3) / 1e3, MOST_CACHED * gbytes)


def _brief_rate(device: Device, variant: FmaVariant) -> float:
    """Return the FMA rate of a variant in GFLOP/s, with fewer workgroups if a dispatch would take too long."""
    few = dataclasses.replace(variant, workgroups=min(FEW, variant.workgroups))
    rate = _rate(device, few, MOMENT)
    fitting = int(few.workgroups * LONGEST * 1e9 * rate / few.flops)
    if fitting <= few.workgroups:
        return rate
    return _rate(device, dataclasses.replace(variant, workgroups=min(variant.workgroups, fitting)), MOMENT)


def _copy_us(device: Device, elements: int) -> float:
    """Return the time of copying `elements` float32, in µs."""
    with device.zeros((elements,)) as source, device.empty((elements,)) as result:
        return time_launch(device, copy(device, source, result), *BRIEFLY).best_us


def workgroups_at_once(device: Device, seconds: tuple[float, float] = BRIEFLY) -> int:
    """Return how many workgroups can run at the same time without slowing each other down.

    Each workgroup keeps a multiprocessor's arithmetic units busy, so one workgroup more than there are multiprocessors
    takes twice as long. Each number is compared with a single workgroup at that moment: the clock of a GPU that wakes
    up rises meanwhile, and a single workgroup that was timed before made an H100 count 160 instead of 132.
    """
    variant = next(fma_variants(device.info.kind == "cpu"))
    settings = variant.settings | {"workgroup": 256}
    with device.array(np.full(8, 0.5, np.float32)) as source, device.empty((4 * 256 * MAX_AT_ONCE,)) as out:
        launch = _launch(device, "fma", settings, 1, source, out)

        def slowed(count: int) -> bool:
            several = dataclasses.replace(launch, grid=(count, 1, 1))
            single, took = (time_launch(device, each, *seconds).best_us for each in (launch, several))
            return took > SLOWED * single

        low, high = 1, 2
        while high < MAX_AT_ONCE and not slowed(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if slowed(middle) else (middle, high)
    return low


def fma_variants(cpu: bool) -> Iterator[FmaVariant]:
    """Yield the variants to measure; the device's FMA rate is that of the fastest."""
    workgroups, iterations = (64, 64) if cpu else (4096, 256)
    for chains, workgroup in ((4, 64), (8, 64), (8, 256)):
        settings = {"chains": chains, "unroll": 8, "iterations": iterations, "workgroup": workgroup}
        yield FmaVariant(settings, workgroups)


def fragment_rates(device: Device) -> dict[str, float]:
    """Return the rate of each fragment shape of the device's matrix units, in 10⁹ operations/s, by str(shape).

    A multiply-add counts as two operations. Shapes that the engine lists but does not compile are left out.
    """
    found, lanes = {}, device.capabilities.subgroup_size
    with device.array(np.full(8, 0.5, np.float32)) as source, device.empty((4 * lanes * UNIT_WORKGROUPS,)) as out:
        for shape in sorted(device.capabilities.matrix_shapes):
            settings = UNIT_SETTINGS | {"shape": shape, "lanes": lanes, "dialect": device.engine.dialect}
            settings["pinned"] = SIZE_CONTROL in device.capabilities.features
            with contextlib.suppress(ShaderError):
                launch = _launch(device, "fragments", settings, UNIT_WORKGROUPS, source, out)
                sums = UNIT_SETTINGS["side"] ** 2 * UNIT_SETTINGS["unroll"] * UNIT_SETTINGS["iterations"]
                operations = 2 * shape.m * shape.n * shape.k * sums * UNIT_WORKGROUPS
                found[str(shape)] = operations / time_launch(device, launch, *BRIEFLY).best_us / 1e3
    return found


def copy_bytes(cpu: bool) -> int:
    """Return the size, in bytes, of a buffer that exceeds any cache."""
    return 1 << (26 if cpu else 29)


def copy(device: Device, source: Array, result: Array) -> Launch:
    """Return a launch that copies a float32 array, whose size is a multiple of 4, into another."""
    workgroups = -(-source.size // (4 * COPY_WORKGROUP))
    return _launch(device, "copy", {"workgroup": COPY_WORKGROUP}, workgroups, source, result)


def _launch(
    device: Device, name: str, settings: dict[str, Any], workgroups: int, source: Array, result: Array
) -> Launch:
    text = tidy(environment().get_template(f"roofline/{name}.wgsl").render(settings))
    pipeline = device.compile(text, name, BINDINGS)
    buffers = [source.storage.buffer, result.storage.buffer]
    y = -(-workgroups // MAX_WORKGROUPS)
    return Launch(pipeline, device.bind(pipeline, buffers), (-(-workgroups // y), y, 1))
