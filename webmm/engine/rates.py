"""Measured speeds of devices, from `webmm probe`: stored in a file by adapter, driver and engine.

`Rates` is in the translated subset (docs/page.md).
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webmm.config import settings
from webmm.engine import generation
from webmm.engine.core import Core
from webmm.files import note, noted

SCHEMA = "webmm.rates/1"
RATES_FILE = "rates.json"


@dataclass(frozen=True)
class Rates:
    """The speeds of a device that the cost models need."""

    gflops: float  # 10⁹ f32 operations per second; an FMA counts as two
    gbytes: float  # 10⁹ bytes per second read and written by a copy in device memory
    cache_gbytes: float  # the same for data in the cache that all multiprocessors share
    launch_us: float  # µs of a dispatch that does almost nothing
    workgroups: int  # workgroups that run at full speed concurrently: one per multiprocessor

    @classmethod
    def of(cls, entry: object) -> Rates | None:
        """Return the rates in a JSON entry, or None if the entry is not valid."""
        values = [entry.get(field.name) for field in dataclasses.fields(cls)] if isinstance(entry, dict) else []
        if not values or not all(isinstance(v, (int, float)) and 0 < v < math.inf for v in values):
            return None
        gflops, gbytes, cache_gbytes, launch_us, workgroups = map(float, values)  # type: ignore[arg-type]
        return cls(gflops, gbytes, cache_gbytes, launch_us, math.ceil(workgroups))

    def __str__(self) -> str:
        return (
            f"{self.gflops:,.0f} GFLOP/s f32, {self.gbytes:,.0f} GB/s from memory, {self.cache_gbytes:,.0f} GB/s from "
            f"cache, {self.launch_us:.1f} µs for a dispatch, {self.workgroups} workgroups at once"
        )


def path() -> Path:
    """Return the path of the file with the rates of all devices."""
    return Path(settings().cache_dir, RATES_FILE)


def rates_key(device: Core) -> str:
    """Return the key of this device's rates: adapter, driver and engine."""
    return f"{device.info.name}, {device.info.driver}, {device.engine.name}"


def known(device: Core) -> Rates | None:
    """Return the device's rates, or None if it was not probed."""
    file = Path(settings().cache_dir, RATES_FILE)  # not path(): what names files is not translated to JavaScript
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
    device.capabilities = dataclasses.replace(device.capabilities, workgroups=rates.workgroups)
    generation.advance()
