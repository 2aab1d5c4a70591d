"""Profiling: the time of uploads, preparation, each dispatch and readbacks, as a table and as a trace.

While a device is profiled, every step waits until its queued work is done, so that times are attributed to the right
step; calls take longer than without profiling, and nothing overlaps. Dispatches are timed as in `webmm.engine.timing`:
by the device's timestamps or, on a CPU, by the wall clock.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webmm.engine import timing
from webmm.engine.device import Device, default_device
from webmm.engine.launch import Launch
from webmm.errors import ConfigError, ProblemError
from webmm.files import write_atomically
from webmm.kernels.base import Kernel
from webmm.problems.base import Problem

if TYPE_CHECKING:
    from rich.table import Table

DEVICE = "device"  # the track of dispatches; the other tracks are host threads


@dataclass(frozen=True)
class Work:
    """What a product ran, and the seconds of its dispatches by `clock`, timestamp or wall."""

    kernel: Kernel[Any]
    problem: Problem
    seconds: float
    clock: str


@dataclass(frozen=True)
class Event:
    """A timed step; `start`, from the beginning of the profile, and `duration` are in seconds.

    `kind` is profile, call, upload, copy, prepare (bind and, if needed, compile), self-test, product, dispatch or
    download; a product is one problem, which consists of the dispatches of one kernel. `clock` is timestamp or wall;
    `amounts` are `bytes` or `operations`; a product has its `work`.
    """

    name: str
    kind: str
    start: float
    duration: float
    track: str
    clock: str = "wall"
    amounts: dict[str, int] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    work: Work | None = None

    @property
    def end(self) -> float:
        """End time in seconds."""
        return self.start + self.duration


class Profile:
    """The timed events of a device during a `with` block; `events` are sorted by start time when it ends."""

    nests = False  # whether `profile()` may begin another profile meanwhile, whose events are in both

    def __init__(self, device: Device, outer: Profile | None = None) -> None:
        self.device, self.outer = device, outer
        self.events: list[Event] = []
        self._zero = time.perf_counter()

    def now(self) -> float:
        """Return the seconds since the profile began."""
        return time.perf_counter() - self._zero

    @contextmanager
    def span(self, name: str, kind: str, **amounts: int) -> Iterator[None]:
        """Record the body of the `with` as one event, which ends when its queued work is done."""
        start = self.now()
        yield
        self.device.synchronize()
        self._add(Event(name, kind, start, self.now() - start, threading.current_thread().name, amounts=amounts))

    def run(self, launch: Launch, kernel: Kernel[Any], problem: Problem) -> None:
        """Run `launch` once, each dispatch separately, and record an event for each dispatch and one for the launch."""
        steps = list(launch.steps())
        clock = timing.clock_of(self.device)
        start = self.now()
        times = timing.intervals(self.device, steps) if clock == "timestamp" else self._wall(steps)
        late = self.now() - times[-1][1] if clock == "timestamp" else 0.0
        if clock == "timestamp" and not start <= times[0][0] + late:
            # The timestamps span more time than has passed: the device's clock is unusable.
            steps, times, late, clock = [launch], [(start, self.now())], 0.0, "wall"
        for step, (begin, end) in zip(steps, times, strict=True):
            details = {"kernel": step.label, "workgroups": list(step.grid)}
            self._add(Event(step.name, "dispatch", begin + late, end - begin, DEVICE, clock, details=details))
        self.device.synchronize()
        work = Work(kernel, problem, sum(end - begin for begin, end in times), clock)
        name, track = f"{problem.op} {problem}", threading.current_thread().name
        amounts = {"operations": problem.flops}
        self._add(Event(name, "product", start, self.now() - start, track, amounts=amounts, work=work))

    def _wall(self, steps: list[Launch]) -> list[tuple[float, float]]:
        times = []
        for step in steps:
            start = self.now()
            timing.submit(self.device, step)
            times.append((start, self.now()))
        return times

    def _add(self, event: Event) -> None:
        self.events.append(event)  # atomic: threads may share a profile
        if self.outer:
            self.outer._add(replace(event, start=event.start + self._zero - self.outer._zero))

    def before_close(self) -> None:
        """Do what needs the device, which is about to be closed: nothing here."""

    def close(self) -> None:
        """Add the event of the whole profile, and sort all events."""
        whole = Event("profile", "profile", 0.0, self.now(), threading.current_thread().name)
        self.events = sorted([whole, *self.events], key=lambda event: (event.start, -event.duration))

    def table(self) -> Table:
        """Return a table, indented by nesting, with an entry per name: first start, count, total, mean, share, rate."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        groups: dict[tuple[str, str, str], list[Event]] = {}
        inside: list[Event] = []
        for event in self.events:
            while inside and inside[-1].end < event.end:
                inside.pop()
            groups.setdefault(("  " * len(inside) + event.kind, event.name, event.clock), []).append(event)
            inside.append(event)
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for head in ("what", "name", "clock"):
            table.add_column(head, no_wrap=True)
        for head in ("from", "times", "in all", "each", "share", "rate"):
            table.add_column(head, justify="right", no_wrap=True)
        elapsed = max((event.end for event in self.events), default=0.0)
        for (what, name, clock), events in groups.items():
            total = sum(event.duration for event in events)
            table.add_row(
                *(what, name, clock),
                *(_ms(events[0].start), str(len(events)), _ms(total), _ms(total / len(events))),
                f"{total / elapsed:.0%}",
                _rate(events, total),
            )
        return table

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return what notebooks show: the table as text, and as HTML with a time line of each track."""
        del include, exclude
        from rich.console import Console

        from webmm.engine import display

        shown = self.table()
        console = Console(width=200, no_color=True)
        with console.capture() as text:
            console.print(shown)
        rows = zip(*(column.cells for column in shown.columns), strict=True)
        bars = [(event.track, f"{event.kind} {event.name}", event.start, event.duration) for event in self.events]
        html = display.table([str(column.header) for column in shown.columns], rows, f"profile on {self.device}")
        return {"text/plain": text.get(), "text/html": html + display.time_line(bars)}

    def trace(self) -> dict[str, Any]:
        """Return the events in Chrome's trace format, which Perfetto (ui.perfetto.dev) opens; times are in µs."""
        tracks = {name: number for number, name in enumerate(dict.fromkeys(event.track for event in self.events), 1)}
        names = [
            _metadata("process_name", 0, f"webmm on {self.device.info}"),
            *(_metadata("thread_name", number, name) for name, number in tracks.items()),
        ]
        complete = [
            {
                "name": event.name,
                "cat": event.kind,
                "ph": "X",
                "ts": round(event.start * 1e6, 3),
                "dur": round(event.duration * 1e6, 3),
                "pid": 1,
                "tid": tracks[event.track],
                "args": {"clock": event.clock, **event.amounts, **event.details},
            }
            for event in self.events
        ]
        return {"traceEvents": names + complete, "displayTimeUnit": "ms"}

    def save(self, path: str | Path) -> None:
        """Write the trace to `path` as JSON; raises ConfigError if the file cannot be written."""
        text = json.dumps(self.trace(), indent=1)
        write_atomically(Path(path), lambda file: file.write(text.encode()))


def _metadata(what: str, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": 1, "tid": tid, "args": {"name": name}}


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.3f} ms"


def _rate(events: list[Event], seconds: float) -> str:
    for amount, unit in (("bytes", "GB/s"), ("operations", "GOP/s")):
        if seconds and (count := sum(event.amounts.get(amount, 0) for event in events)):
            return f"{count / seconds / 1e9:,.3g} {unit}"
    return ""


@contextmanager
def profile(device: Device | None = None) -> Iterator[Profile]:
    """Profile `device`, by default the default device, during the body of the `with`.

    Raises ProblemError for anything but a device, ConfigError if it is already being profiled, other than by the
    setting `profile`.
    """
    device = default_device() if device is None else device
    if not isinstance(device, Device):
        raise ProblemError(f"profile() takes a webmm.Device, not {type(device).__name__}")
    outer = check(device)
    device.synchronize()
    device.profile = found = Profile(device, outer)
    try:
        yield found
    finally:
        device.profile = outer
        found.close()


def check(device: Device) -> Profile | None:
    """Return the profile in which another may begin, if there is one; raises ConfigError as `profile()` does."""
    outer = device.profile
    if outer is not None and not (isinstance(outer, Profile) and outer.nests):
        raise ConfigError("this device is already being profiled; end that profile first")
    return outer
