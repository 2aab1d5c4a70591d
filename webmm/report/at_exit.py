"""The profile of a whole program, which asks for it by nothing but the setting `profile`: a table or a trace at exit.

Each device is profiled from when it is opened; see `webmm.engine.profiling` for what that costs. The table goes to
stderr, since what a program prints may be its result.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from webmm.cases import op_of
from webmm.config import SUMMARY
from webmm.engine.device import Device
from webmm.engine.launches import is_testing
from webmm.engine.profiling import Event, Profile
from webmm.engine.timing import duration
from webmm.errors import ConfigError, WebmmError
from webmm.files import write_atomically
from webmm.kernels.base import Kernel
from webmm.measure import roofline
from webmm.problems.base import Problem
from webmm.report import TABLE_WIDTH

HOST = ("upload", "download", "copy", "prepare", "self-test")  # kinds of events that have a row besides the kernels


@dataclass
class Total:
    """What ran under one name: a kernel on the problems of an op, or a kind of transfer."""

    count: int = 0
    seconds: float = 0.0
    nbytes: int = 0
    kernel: Kernel[Any] | None = None
    problems: Counter[Problem] = field(default_factory=Counter)

    def rate(self) -> str:
        """Return the rate as text; empty if nothing that has one was counted."""
        operations = sum(problem.flops * count for problem, count in self.problems.items())
        if not self.seconds or not (operations or self.nbytes):
            return ""
        amount, unit = (operations, "GOP/s") if operations else (self.nbytes, "GB/s")
        return f"{amount / self.seconds / 1e9:,.3g} {unit}"

    def of_peak(self, ceiling: roofline.Roofline | None) -> str:
        """Return the fraction of the peak as text: the time that the device needs at its best, over that it took."""
        if ceiling is None or self.kernel is None or self.kernel.matrix_shape or not self.seconds:
            return "–" if self.kernel else ""  # matrix units exceed the peak, which is that of FMAs
        peaks = ((op_of(problem.op).peak(problem, ceiling), problem.flops * n) for problem, n in self.problems.items())
        return f"{sum(flops / peak for peak, flops in peaks) / 1e9 / self.seconds:.0%}"


class Recorded(Profile):
    """The profile of a device until the program ends, or the device is closed."""

    nests = True


class Summary(Recorded):
    """A profile that keeps totals only, so that a program may run for as long as it likes."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.totals: dict[tuple[str, str, str], Total] = {}  # by kernel or kind, op and clock
        self.ceiling: roofline.Roofline | None = None
        self.elapsed = 0.0
        self._lock = threading.Lock()

    def _add(self, event: Event) -> None:
        if is_testing() or not (event.work or event.kind in HOST):  # a self-test counts as a whole, when it is over
            return
        work = event.work
        key = (str(work.kernel), work.problem.op, work.clock) if work else (event.kind, "", "wall")
        with self._lock:
            total = self.totals.setdefault(key, Total())
            total.count += 1
            total.seconds += work.seconds if work else event.duration
            total.nbytes += event.amounts.get("bytes", 0)
            if work:
                total.kernel = work.kernel
                total.problems[work.problem] += 1

    def before_close(self) -> None:
        """Measure what the device can do, if it ran a kernel: that is the end of its profile."""
        if self.elapsed or self.device.lost or not any(total.kernel for total in self.totals.values()):
            return
        self.elapsed, self.device.profile = self.now(), None
        with contextlib.suppress(WebmmError, RuntimeError):  # the device may be lost: then there is no peak
            self.ceiling = roofline.measure(self.device)

    def table(self) -> Table:
        """Return a row for each kernel and op, and for what else took time, in the order of the time that it took."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("kernel", overflow="fold")
        table.add_column("op", no_wrap=True)
        for head in ("calls", "total", "mean", "share", "rate", "of peak"):
            table.add_column(head, justify="right", no_wrap=True)
        for (name, op, _), total in sorted(self.totals.items(), key=lambda item: -item[1].seconds):
            mean = duration(1e6 * total.seconds / total.count)
            shown = str(total.count), duration(1e6 * total.seconds), mean, f"{total.seconds / self.elapsed:.0%}"
            table.add_row(name, op, *shown, total.rate(), total.of_peak(self.ceiling))
        return table

    def caption(self) -> str:
        """Return what the table is of."""
        clocks = " and ".join(sorted({clock for (_, op, clock) in self.totals if op}))
        words = f"webmm on {self.device.info}, {self.device.engine.name}, {duration(1e6 * self.elapsed)}: "
        words += f"kernels by {clocks} clock"
        if self.ceiling:
            words += f", of peak: of {self.ceiling.gflops:,.0f} GFLOP/s or {self.ceiling.gbytes:,.1f} GB/s measured"
        return words


_profiles: list[Recorded] = []
_process = os.getpid()
_lock = threading.Lock()


def profile_until_exit(device: Device) -> None:
    """Profile `device` until it is closed or the program ends; raises ConfigError if the trace could not be written."""
    wanted = device.settings.profile
    if wanted != SUMMARY:
        _check(Path(wanted))
    with _lock:
        _profiles.append(Summary(device) if wanted == SUMMARY else Recorded(device))
        device.profile = _profiles[-1]


def _check(path: Path) -> None:
    """Raise ConfigError if no file can be written there: better now than at the end of a long program."""
    folder = path.absolute().parent
    if path.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        why = "it is a folder" if path.is_dir() else f"{folder} is no folder that can be written to"
        raise ConfigError(f"profile: cannot write the trace {path}: {why}; name a file in a folder that exists")


@atexit.register
def _finish() -> None:
    """Print the tables of all devices, and write their traces."""
    if os.getpid() != _process:  # a forked child has its parent's profiles
        return
    traces: dict[Path, list[Any]] = {}
    for each in _profiles:
        each.before_close()
        if isinstance(each, Summary):
            if each.elapsed:
                _print(each)
            continue
        each.device.profile = None
        each.close()
        found = traces.setdefault(Path(each.device.settings.profile), [])
        if any(event.work for event in each.events):
            found.append(each.trace()["traceEvents"])
    for path, events in traces.items():
        if events:
            _write(path, list(_numbered(events)))
        else:  # an older file would pass for this program's
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _print(summary: Summary) -> None:
    console = Console(stderr=True, markup=False, highlight=False)
    console = Console(stderr=True, width=max(console.width, TABLE_WIDTH), markup=False, highlight=False)
    with contextlib.suppress(OSError, ValueError):  # stderr is closed
        console.print(summary.caption(), soft_wrap=True)
        console.print(summary.table())


def _numbered(traces: list[list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Yield the events of several devices, each of which is a process of its own in a trace."""
    for number, events in enumerate(traces, 1):
        for event in events:
            yield {**event, "pid": number}


def _write(path: Path, events: list[dict[str, Any]]) -> None:
    text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
    try:
        write_atomically(path, lambda file: file.write(text.encode()))
    except ConfigError as error:
        print(f"webmm: {error}", file=sys.stderr)
