"""Timing of a user's own function, alone or in turns with another, as `webmm bench` times kernels.

The wall clock counts whole calls: of quick ones many are queued, and the sample ends when every device of the process
has finished. The time on the device is that of the dispatches alone, from a profile of some more calls.
"""

from __future__ import annotations

import functools
import inspect
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from webmm.engine import forking
from webmm.engine.device import Device
from webmm.engine.profiling import Profile, Work, check, profile
from webmm.engine.timing import BATCH_TIME, MIN_SAMPLES, WAKE, WARM_UP, Timing, duration, sample_count
from webmm.errors import ConfigError

PAIRS = 6  # at least: of fewer, not even the least and the largest ratio are an interval of 95 %
UNSURE = 0.05  # the chance that an interval does not hold the ratio
RUN_LATER = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction  # not when called
Call = Callable[[], object]


@dataclass(frozen=True)
class Samples(Timing):
    """A timing with the mean, and the number of `calls` that each sample averages."""

    mean_us: float = math.nan
    calls: int = 1

    @classmethod
    def averaging(cls, seconds: Sequence[float], calls: int, clock: str) -> Samples:
        """Summarise the seconds per call of samples of so many calls."""
        mean = 1e6 * sum(seconds) / len(seconds)
        return cls(**vars(Timing.of(list(seconds), clock)), mean_us=mean, calls=calls)


@dataclass(frozen=True)
class Ratio:
    """How many times as fast one function is as another: the median over pairs of samples that followed each other.

    From `low` to `high` is an interval of 95 % at least, which makes no assumption on how times are distributed: that
    of the sign test, whose ends are two of the ratios (W. J. Conover, Practical Nonparametric Statistics, 3.2).
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, seconds: Sequence[float], base: Sequence[float]) -> Ratio:
        """Return the ratio of `base` to `seconds`, from at least 6 pairs."""
        ratios = sorted(b / s for s, b in zip(seconds, base, strict=True))
        last, tail, first = len(ratios) - 1, 0.0, -1
        while 2 * (tail := tail + math.comb(len(ratios), first + 1) / 2 ** len(ratios)) <= UNSURE:
            first += 1
        middle = (ratios[last // 2] + ratios[(last + 1) // 2]) / 2
        return cls(middle, ratios[max(first, 0)], ratios[last - max(first, 0)])

    def __str__(self) -> str:
        return f"{self.low:.3g} to {self.high:.3g}"


@dataclass(frozen=True)
class Benchmark:
    """The times of a function; printed, a row.

    `wall` is the wall clock per call. `device` is the time of a call's dispatches, by the device's timestamps or, on a
    CPU, by the wall clock, as its `clock` says; None if the function ran no kernel. `operations` are those of a call's
    kernels. `against` is the other function, if there is one, and `ratio` how many times as fast this one is.
    """

    name: str
    wall: Samples
    device: Samples | None = None
    operations: int = 0
    against: Benchmark | None = None
    ratio: Ratio | None = None

    def __str__(self) -> str:
        wall, words = self.wall, f"{self.name}: "
        words += f"median {duration(wall.median_us)}, minimum {duration(wall.best_us)}, mean {duration(wall.mean_us)}, "
        words += f"spread {duration(wall.spread_us)} ({wall.samples} × {wall.calls} calls)"
        if self.device:
            words += f"; on the device {duration(self.device.median_us)} ({self.device.clock})"
            if self.device.median_us:  # the clock of a device may not have moved
                words += f", {self.operations / self.device.median_us / 1e3:,.3g} GOP/s"
        if self.ratio and self.against:
            words += f"; {self.ratio.median:.3g} × as fast as {self.against.name} ({self.ratio})"
        return words

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return what notebooks show: the row as text, and a table with a row for each function."""
        del include, exclude
        from webmm.engine import display

        heads = ("function", "median", "minimum", "mean", "spread", "on the device", "times as fast")
        rows = []
        for each in (self, *([self.against] if self.against else [])):
            times = (each.wall.median_us, each.wall.best_us, each.wall.mean_us, each.wall.spread_us)
            device = f"{duration(each.device.median_us)} ({each.device.clock})" if each.device else ""
            ratio = f"{each.ratio.median:.3g} ({each.ratio})" if each.ratio else ""
            rows.append((each.name, *map(duration, times), device, ratio))
        return {"text/plain": str(self), "text/html": display.table(heads, rows)}


def benchmark(f: Callable[..., object], *arrays: Any, against: Callable[..., object] | None = None) -> Benchmark:
    """Time `f(*arrays)`, and `against(*arrays)` in turns with it if given.

    Both are called for 0.2 s first, each, or 0.6 s with a GPU. Then samples are taken, of many calls if they are quick:
    they are queued, and the wall clock stops when all devices that the process has open have finished their work. With
    `against`, samples of both alternate, at least 6 of each, and `ratio` says how many times as fast `f` is. What the
    functions return is discarded and not compared. Last, some calls are profiled for the time on the devices.

    Raises ConfigError for what cannot be called, for coroutine functions and generators, and while a device is being
    profiled by `webmm.profile()`; what the functions raise is passed on.
    """
    functions = [f] if against is None else [f, against]
    for each in functions:
        if not callable(each) or any(runs_later(each) for runs_later in RUN_LATER):
            what = "a coroutine function or a generator" if callable(each) else type(each).__name__
            raise ConfigError(f"benchmark() takes a function to call, as benchmark(f, a, b), not {what}")
    for device in _open():
        check(device)
    calls: list[Call] = [functools.partial(each, *arrays) for each in functions]
    counts = _warm_up(calls)
    seconds = _samples(calls, counts)
    found = [
        replace(_profiled(name_of(each), call), wall=Samples.averaging(took, count, "wall"))
        for each, call, count, took in zip(functions, calls, counts, seconds, strict=True)
    ]
    return found[0] if against is None else replace(found[0], against=found[1], ratio=Ratio.of(*seconds))


def name_of(f: Callable[..., object]) -> str:
    """Return what a function is called in a row."""
    while isinstance(f, functools.partial):
        f = f.func
    return str(getattr(f, "__name__", type(f).__name__))


def _open() -> list[Device]:
    """Return the devices that this process has open."""
    return [device for device in cast("tuple[Device, ...]", forking.devices()) if not device.lost]


def _took(call: Call, count: int) -> float:
    """Return the seconds per call of `count` calls and a wait for all devices."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    for device in _open():
        device.synchronize()
    return (time.perf_counter() - start) / count


def _warm_up(calls: Sequence[Call]) -> list[int]:
    """Warm up, and return how many calls of each a sample needs."""
    for call in calls:
        _check_awaited(call())
        _took(call, 1)  # what was compiled and planned has ended
    least = WARM_UP + WAKE * any(device.info.kind != "cpu" for device in _open())
    counts, spent = [1] * len(calls), [0.0] * len(calls)
    while min(spent) < least:
        for i, call in enumerate(calls):
            each = _took(call, counts[i])
            spent[i] += each * counts[i]
            counts[i] = max(1, min(4 * counts[i], math.ceil(BATCH_TIME / max(each, 1e-9))))
    return counts


def _check_awaited(result: object) -> None:
    """Raise ConfigError for a coroutine, such as a lambda may return: nobody would run it."""
    if inspect.iscoroutine(result):
        result.close()
        raise ConfigError("benchmark() takes a function that computes; this one returns a coroutine, which never runs")


def _samples(calls: Sequence[Call], counts: Sequence[int]) -> list[list[float]]:
    """Return the seconds per call of each of the calls, whose samples alternate; every other round is in reverse."""
    found: list[list[float]] = [[] for _ in calls]
    order = list(range(len(calls)))
    wanted = least = MIN_SAMPLES if len(calls) == 1 else PAIRS
    while len(found[0]) < wanted:
        for i in order:
            found[i].append(_took(calls[i], counts[i]))
        order.reverse()  # so that what speeds up or slows down meanwhile does so for all
        wanted = max(least, sample_count(max(took[0] * count for took, count in zip(found, counts, strict=True))))
    return found


def _profiled(name: str, call: Call) -> Benchmark:
    """Return the time on the devices of a call, without its wall clock."""
    took, works = list[float](), list[Work]()
    wanted = MIN_SAMPLES
    while len(took) < wanted:
        start = time.perf_counter()
        with _profiles() as profiles:
            call()
        wanted = sample_count(time.perf_counter() - start)
        works = [event.work for each in profiles for event in each.events if event.work]
        if not works:
            break
        took.append(sum(work.seconds for work in works))
    clock = "timestamp" if all(work.clock == "timestamp" for work in works) else "wall"
    device = Samples.averaging(took, 1, clock) if took else None
    operations = sum(work.problem.flops for work in works)
    return Benchmark(name, Samples.averaging([math.nan], 1, "wall"), device, operations)


@contextmanager
def _profiles() -> Iterator[list[Profile]]:
    """Profile all open devices."""
    with ExitStack() as stack:
        yield [stack.enter_context(profile(device)) for device in _open()]
