"""Time measurement, the same everywhere: warm up for a fixed time, then take the median of single dispatches.

An idle GPU lowers its clock: after two warm-up calls, a kernel has measured a third of its real speed. So the warm-up
lasts until 0.2 s have passed, for any number of calls, and longer if nothing was timed for a while. An idle H200 goes
from 1980 to 345 MHz within about three seconds, and returns to full speed only after 0.35 s of work.

The rule, which is `time_launch()`, and `Timing` are in the translated subset (docs/page.md).
"""

from __future__ import annotations

import functools
import math
import time
import weakref
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass

import numpy as np

from webmm.engine.core import Core
from webmm.engine.launch import Launch

WARM_UP = 0.2  # seconds
COLD = 0.5  # seconds without timed work after which a GPU may have lowered its clock
WAKE = 0.4  # additional seconds of warm-up in that case
SAMPLE_TIME = 0.3  # target for the total time of the samples, in seconds
MIN_SAMPLES, MAX_SAMPLES = 3, 31
QUEUED_TIME, QUEUED_WARM_UP, QUEUED_ROUNDS = 0.5, 0.4, 5  # of time_calls(): seconds, the warm-up's share, samples
BATCH_TIME = 0.02  # minimum length of a wall-clock sample in seconds
PROBE_TIME = 0.02  # seconds; a run that takes this long gives a reliable rate


_timed: MutableMapping[Core, float] = weakref.WeakKeyDictionary()  # when a device was last timed


@dataclass(frozen=True)
class Timing:
    """Median, minimum and interquartile range of the samples in µs; `clock` is timestamp or wall."""

    median_us: float
    best_us: float
    spread_us: float
    samples: int
    clock: str

    @classmethod
    def of(cls, seconds: list[float], clock: str) -> Timing:
        """Summarise samples given in seconds."""
        us = sorted(s * 1e6 for s in seconds)
        low, median, high = (_quantile(us, part) for part in (0.25, 0.5, 0.75))
        return cls(median, us[0], high - low, len(us), clock)


def _quantile(ordered: list[float], part: float) -> float:
    """Return the number below which so large a part of a population is, of which these are samples."""
    last = len(ordered) - 1
    place = min(max(part * (last + 2) - 1, 0), last)
    low = int(place)
    return ordered[low] + (place - low) * (ordered[min(low + 1, last)] - ordered[low])


def sample_count(seconds: float, sample_time: float = SAMPLE_TIME) -> int:
    """Return how many runs of `seconds` each to time, for a total of about `sample_time` seconds."""
    return max(MIN_SAMPLES, min(MAX_SAMPLES, int(sample_time / max(seconds, 1e-9))))


def time_call(call: Callable[[], object], warm_up: float = WARM_UP) -> Timing:
    """Time a host function that returns after its work is done."""
    first = _wall(call)
    estimate, spent = first, first
    while spent < warm_up:
        estimate = _wall(call)
        spent += estimate
    return Timing.of([_wall(call) for _ in range(sample_count(estimate))], "wall")


def _wall(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def duration(us: float | None) -> str:
    """Return a time in µs as text, in a suitable unit."""
    if us is None:
        return "–"
    for factor, unit in ((1e6, "s"), (1e3, "ms")):
        if us >= factor:
            return f"{us / factor:.3g} {unit}" if us < 1000 * factor else f"{us / factor:,.0f} {unit}"
    return f"{us:.3g} µs"


def clock_of(device: Core) -> str:
    """Return how dispatches are timed: "timestamp" if the device has timestamp queries, else "wall".

    CPU adapters use the wall clock: after lavapipe (Mesa 22.3) has run a kernel that uses a texture, its timestamps are
    wrong, and dispatches of 0.8 s read as 9 µs.
    """
    return "timestamp" if "timestamp-query" in device.capabilities.features and device.info.kind != "cpu" else "wall"


def time_launch(
    device: Core, launch: Launch, warm_up: float = WARM_UP, sample_time: float = SAMPLE_TIME, *, clock: str = ""
) -> Timing:
    """Time `launch` by `clock`, "timestamp" or "wall"; the default is `clock_of(device)`."""
    clock = clock or clock_of(device)
    if rested(device) > COLD and device.info.kind != "cpu":
        warm_up += WAKE
    wall(device, launch)  # drivers compile at the first dispatch
    seconds = wall(device, launch)
    spent = seconds
    while spent < warm_up:
        batch = max(1, min(1000, int(BATCH_TIME / seconds)))
        elapsed = wall(device, launch, batch)
        seconds, spent = elapsed / batch, spent + elapsed
    batch = max(1, int(BATCH_TIME / seconds))
    times: list[float] = []
    if clock == "timestamp":
        times = timestamps(device, launch, sample_count(seconds, sample_time), batch)
    if not times:
        clock, samples = "wall", sample_count(max(seconds, BATCH_TIME), sample_time)
        times = [wall(device, launch, batch) / batch for _ in range(samples)]
    mark(device)
    return Timing.of(times, clock)


# What the rule asks of a device: JavaScript has versions of its own.


def rested(device: Core) -> float:
    """Wait for the device, and return the seconds since it was last timed."""
    device.synchronize()
    return time.perf_counter() - _timed.get(device, -math.inf)


def mark(device: Core) -> None:
    """Remember that the device is timed now."""
    _timed[device] = time.perf_counter()


def wall(device: Core, launch: Launch, count: int = 1) -> float:
    """Return the seconds of `count` runs by the wall clock."""
    return _wall(functools.partial(submit, device, launch, count))


def timestamps(device: Core, launch: Launch, samples: int, batch: int) -> list[float]:
    """Return the seconds of a run, in as many samples, by the device's clock.

    If a browser's clock is too coarse for a run, its samples are batches; if it is too coarse for these, there are
    none.
    """
    del batch
    return [end - start for start, end in intervals(device, [launch] * samples)]


def time_calls(call: Callable[[], object], wait: Callable[[], object], seconds: float = QUEUED_TIME) -> Timing:
    """Time a call that queues work, by the wall clock: rounds of many calls and one wait, `seconds` in total."""

    def batch() -> float:
        start = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        return time.perf_counter() - start

    count, spent = 1, 0.0
    batch()  # creates what later calls find in caches
    while (elapsed := batch()) + spent < QUEUED_WARM_UP * seconds:
        count, spent = 2 * count, spent + elapsed
    count = max(1, round((1 - QUEUED_WARM_UP) * seconds / QUEUED_ROUNDS * count / elapsed))
    return Timing.of([batch() / count for _ in range(QUEUED_ROUNDS)], "wall")


def submit(device: Core, launch: Launch, count: int = 1) -> None:
    """Run `launch` `count` times and wait for the end."""
    with device.using("timing"):
        encoder = device.wgpu_device.create_command_encoder()
        for _ in range(count):  # one pass each: dispatches in one pass may overlap
            compute_pass = encoder.begin_compute_pass()
            launch.encode(compute_pass)
            compute_pass.end()
        device.wgpu_device.queue.submit([encoder.finish()])
        device.synchronize()


def intervals(device: Core, launches: Sequence[Launch]) -> list[tuple[float, float]]:
    """Run `launches`, each in a separate pass, and return start and end times in seconds of the device clock."""
    gpu = device.wgpu_device
    with device.using("timing"):
        queries = gpu.create_query_set(type="timestamp", count=2 * len(launches))
        usage = device.engine.api.BufferUsage.QUERY_RESOLVE | device.engine.api.BufferUsage.COPY_SRC
        resolved = gpu.create_buffer(size=16 * len(launches), usage=usage)
        encoder = gpu.create_command_encoder()
        for i, launch in enumerate(launches):
            writes = {
                "query_set": queries,
                "beginning_of_pass_write_index": 2 * i,
                "end_of_pass_write_index": 2 * i + 1,
            }
            compute_pass = encoder.begin_compute_pass(timestamp_writes=writes)
            launch.encode(compute_pass)
            compute_pass.end()
        encoder.resolve_query_set(queries, 0, 2 * len(launches), resolved, 0)
        gpu.queue.submit([encoder.finish()])
        ticks = np.frombuffer(gpu.queue.read_buffer(resolved), np.uint64).astype(np.int64).reshape(-1, 2)
    # Relative to the first start, as small numbers are exact in float64.
    seconds = (ticks - ticks[0, 0]) * (1e-9 * device.engine.timestamp_period(gpu))
    return [(float(start), float(end)) for start, end in seconds]
