"""Measured speeds of devices, from `webmm probe`: stored in a file by adapter, driver and engine.

`Rates` is in the translated subset (docs/page.md).
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from webmm import config
from webmm.engine import generation
from webmm.engine.core import Core
from webmm.files import note, noted
from webmm.kernels.base import MatrixShape

SCHEMA = "webmm.rates/1"
RATES_FILE = "rates.json"
USUAL = {"f32": 1.0, "f16": 8.0, "i8": 16.0, "u8": 16.0}  # rates of fragments ÷ that of f32 on lanes
NUMBERS = ("gflops", "gbytes", "cache_gbytes", "launch_us", "workgroups")  # of Rates, without those of fragments


@dataclass(frozen=True)
class Rates:
    """The speeds of a device that the cost models need."""

    gflops: float  # 10⁹ f32 operations per second; an FMA counts as two
    gbytes: float  # 10⁹ bytes per second read and written by a copy in device memory
    cache_gbytes: float  # the same for data in the cache that all multiprocessors share
    launch_us: float  # µs of a dispatch that does almost nothing
    workgroups: int  # workgroups that run at full speed concurrently: one per multiprocessor
    fragments: Mapping[str, float] = field(default_factory=dict)  # of matrix units, 10⁹ operations/s by fragment shape

    @classmethod
    def of(cls, entry: object) -> Rates | None:
        """Return the rates in a JSON entry, or None if the entry is not valid."""
        if not isinstance(entry, dict):
            return None
        fragments = entry.get("fragments", {})
        values = [entry.get(name) for name in NUMBERS]
        found = list(fragments.values()) if isinstance(fragments, dict) else [None]
        if not all(isinstance(v, (int, float)) and 0 < v < math.inf for v in (*values, *found)):
            return None
        gflops, gbytes, cache_gbytes, launch_us, workgroups = map(float, values)  # type: ignore[arg-type]
        return cls(gflops, gbytes, cache_gbytes, launch_us, math.ceil(workgroups), fragments)

    def __str__(self) -> str:
        units = "".join(f", {rate:,.0f} GOP/s by fragments of {shape}" for shape, rate in self.fragments.items())
        return (
            f"{_shown(self.gflops)} GFLOP/s f32, {_shown(self.gbytes)} GB/s from memory, {_shown(self.cache_gbytes)} "
            f"GB/s from cache, {self.launch_us:.1f} µs for a dispatch, {self.workgroups} "
            f"workgroup{'s' if self.workgroups > 1 else ''} at once{units}"
        )


def _shown(rate: float) -> str:
    """Return a rate as text; slow ones, as of CPUs, with a decimal place."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def of_fragments(rates: Rates | None, shape: MatrixShape) -> float:
    """Return the rate of fragments relative to that of f32 on lanes: measured, or what is usual for their type."""
    measured = rates.fragments.get(str(shape), 0.0) if rates is not None else 0.0
    return measured / rates.gflops if measured and rates is not None else USUAL[shape.operands]


def path() -> Path:
    """Return the path of the file with the rates of all devices."""
    return Path(config.setting("cache_dir"), RATES_FILE)


def rates_key(device: Core) -> str:
    """Return the key of this device's rates: adapter, driver and engine."""
    return f"{device.info.name}, {device.info.driver}, {device.engine.name}"


def known(device: Core) -> Rates | None:
    """Return the device's rates, or None if it was not probed."""
    file = Path(config.setting("cache_dir"), RATES_FILE)  # not path(): what names files is not translated to JavaScript
    return Rates.of(noted(file, SCHEMA).get(rates_key(device)))


def probed_on(device: Core) -> str:
    """Return the date of the device's probe, such as 2026-11-25; "" if it was not probed, or by an older version."""
    entry = noted(path(), SCHEMA).get(rates_key(device))
    date = entry.get("date") if isinstance(entry, dict) else None
    try:
        return datetime.date.fromisoformat(date or "").isoformat()
    except (TypeError, ValueError):
        return ""


def store(device: Core, rates: Rates) -> None:
    """Store the device's rates, for shapes that are chosen from now on; raises as `keep()`."""
    entry: dict[str, Any] = dataclasses.asdict(rates) | {"date": datetime.date.today().isoformat()}
    note(path(), SCHEMA, rates_key(device), lambda before: entry)


def keep(device: Core, rates: Rates) -> None:
    """Store the device's rates, and choose anew by them; raises ConfigError if the file cannot be written."""
    store(device, rates)
    device.capabilities = dataclasses.replace(
        device.capabilities, workgroups=rates.workgroups, fragment_rates=rates.fragments
    )
    generation.advance()
