"""Where the time of a call goes: upload, preparation, each dispatch and readback, as a table and as a trace.

While a device is profiled, everything waits for what it has queued, so that one thing's time is not another's; calls
take longer in all than they would, and what would overlap does not. Dispatches are timed as `webmm.engine.timing` does
it, by the device's timestamps or, on a CPU, by the wall clock.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webmm.engine import timing
from webmm.engine.device import Device, default_device
from webmm.engine.launch import Launch
from webmm.errors import ConfigError
from webmm.files import write_atomically

if TYPE_CHECKING:
    from rich.table import Table

DEVICE = "device"  # the track of dispatches; the others are threads of the host


@dataclass(frozen=True)
class Event:
    """Something that took time: `start` and `duration` in seconds, from the beginning of the profile on.

    `kind` is profile, call, upload, copy, prepare (bind, and compile if need be), self-test, product, dispatch or
    download; a product is a problem, its dispatches are those of one kernel. `clock` is timestamp or wall; `amounts`
    are its `bytes` or `operations`.
    """

    name: str
    kind: str
    start: float
    duration: float
    track: str
    clock: str = "wall"
    amounts: dict[str, int] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def end(self) -> float:
        """When it was over."""
        return self.start + self.duration


class Profile:
    """What a device did from its beginning to its end; `events` come in the order of their starts once it is over."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.events: list[Event] = []
        self._zero = time.perf_counter()

    def now(self) -> float:
        """Return the seconds since the beginning."""
        return time.perf_counter() - self._zero

    @contextmanager
    def span(self, name: str, kind: str, **amounts: int) -> Iterator[None]:
        """Record what happens inside as one event, which is over when all that it queued is done."""
        start = self.now()
        yield
        self.device.synchronize()
        self._add(Event(name, kind, start, self.now() - start, threading.current_thread().name, amounts=amounts))

    def run(self, launch: Launch, name: str, operations: int) -> None:
        """Run `launch`, each of its dispatches once and by itself, and record them and the whole."""
        with self.span(name, "product", operations=operations):
            steps = list(launch.steps())
            clock = timing.clock_of(self.device)
            start = self.now()
            times = timing.intervals(self.device, steps) if clock == "timestamp" else self._wall(steps)
            late = self.now() - times[-1][1] if clock == "timestamp" else 0.0
            if clock == "timestamp" and not start <= times[0][0] + late:
                # The device claims more time than has passed: its clock is of no use.
                steps, times, late, clock = [launch], [(start, self.now())], 0.0, "wall"
            for step, (begin, end) in zip(steps, times, strict=True):
                details = {"kernel": step.label, "workgroups": list(step.grid)}
                self._add(Event(step.name, "dispatch", begin + late, end - begin, DEVICE, clock, details=details))

    def _wall(self, steps: list[Launch]) -> list[tuple[float, float]]:
        times = []
        for step in steps:
            start = self.now()
            timing.submit(self.device, step)
            times.append((start, self.now()))
        return times

    def _add(self, event: Event) -> None:
        self.events.append(event)  # which is atomic: threads may share a profile

    def close(self) -> None:
        """Add the event of the whole, and put all in order."""
        whole = Event("profile", "profile", 0.0, self.now(), threading.current_thread().name)
        self.events = sorted([whole, *self.events], key=lambda event: (event.start, -event.duration))

    def table(self) -> Table:
        """Return a row per name, indented as they nest: first start, how often, time in all and each, share, rate."""
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
        """Write the trace to `path` as JSON; raises ConfigError where that is not possible."""
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
    """Record what `device`, by default the one that `matmul()` takes, does inside of the `with`.

    Raises ConfigError where the device is being profiled already.
    """
    device = device or default_device()
    if device.profile is not None:
        raise ConfigError("this device is being profiled already; one profile at a time")
    device.synchronize()
    device.profile = found = Profile(device)
    try:
        yield found
    finally:
        device.profile = None
        found.close()
