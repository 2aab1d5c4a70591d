"""The leaderboard: contributed records of many GPUs, checked, and rendered as a separate page.

A contribution is a document of `webmm.records/1` in `leaderboard/`, one per machine, as `webmm bench --json` or the
page writes it. Records that are inconsistent, or exceed the measured peak of their device, are rejected. Contributions
are for display only: kernels are chosen by the records in `webmm/tuned/`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from webmm.cases import OPS, op_of
from webmm.choose.tuned import kernel_of, key, refusal
from webmm.errors import ConfigError, ProblemError
from webmm.files import read_text
from webmm.kernels import STAGES, label_of
from webmm.measure.records import Record, from_json
from webmm.problems.base import Problem
from webmm.version import __version__

SAME = 0.01  # relative tolerance of two figures that should be equal
BEYOND = 1.03  # a kernel may reach this multiple of the measured peak, since both are measurements
FASTEST = 1e7  # GFLOP/s beyond any device

MachineName = tuple[str, str, str]


@dataclass(frozen=True)
class Entry:
    """The best record of one machine for one problem."""

    record: Record
    speed: float  # in the unit of the op

    @property
    def kernel(self) -> str:
        """The kernel and its non-default settings."""
        return label_of(self.record)


@dataclass(frozen=True)
class Board:
    """A problem with the machines that computed it, fastest first."""

    title: str
    unit: str
    places: tuple[Entry, ...]


def folder() -> Path:
    """Return the folder of contributions: inside the installed package, or next to it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "leaderboard"
    return installed if installed.is_dir() else package.parent / "leaderboard"


def read(files: Iterable[Path]) -> list[Record]:
    """Return the records of contributions.

    Raises ProblemError, with the file and the reason, for a contribution that is malformed or inconsistent, exceeds the
    measured peak of its device, or repeats a record of another file for the same machine.
    """
    found: list[Record] = []
    seen: dict[tuple[Any, ...], Path] = {}
    for file in files:
        records = checked(read_text(file), str(file))
        machine = _machine(records[0])
        for record in records:
            known = seen.setdefault((*key(record), record.kernel, tuple(sorted(record.config.items()))), file)
            if known is not file:
                raise ProblemError(
                    f"{file}: {_words(record)} on {', '.join(filter(None, machine))} is already in {known}"
                )
        found += records
    return found


def checked(text: str, name: str) -> list[Record]:
    """Return the measured records of webmm's kernels in a document; raises ProblemError as `read()` does."""

    def refuse(complaint: str) -> None:
        raise ProblemError(f"{name}: {complaint}")

    complaints: list[str] = []
    try:
        records = from_json(text, complaints.append, refusal)
    except ProblemError as error:
        raise ProblemError(f"{name}: {error}") from error
    if complaints:
        refuse(complaints[0])
    measured = [r for r in records if r.status == "ok" and r.kernel in STAGES.get(r.op, ())]
    if not measured:
        refuse("there is no measured kernel in it")
    if len(machines := {_machine(r) for r in measured}) > 1:
        listed = "; ".join(", ".join(filter(None, each)) for each in sorted(machines))
        refuse(f"the records are of several machines ({listed}); use one file per machine")
    settings = [(r.op, r.variant, r.dtype, r.layout, r.size, r.kernel, sorted(r.config.items())) for r in measured]
    for i, (record, this) in enumerate(zip(measured, settings, strict=True)):
        if why := _implausible(record) or ("is listed twice" if this in settings[:i] else None):
            refuse(f"{_words(record)} {why}")
    peaks = [(r.gflops or 0) / r.peak_fraction for r in measured if OPS[r.op].plotted and r.peak_fraction]
    if peaks and max(peaks) > min(peaks) * (1 + SAME):
        refuse(f"the records were measured against different peaks, {min(peaks):,.0f} to {max(peaks):,.0f} GFLOP/s")
    return measured


def _machine(record: Record) -> MachineName:
    return record.adapter, record.driver, record.engine


def _words(record: Record) -> str:
    return " ".join(filter(None, (record.op, record.size, record.layout, record.dtype, label_of(record))))


def _implausible(r: Record) -> str | None:
    """Return why a record cannot be the result of a benchmark, or None."""
    if kernel_of(r) is None:
        return "has tunables that no version of this kernel accepts"
    try:
        problem: Problem = op_of(r.op, r.variant).dense((r.m, r.n, r.k, r.batch), r.dtype, r.layout)
    except (ProblemError, ConfigError) as error:
        return str(error)
    median, rate = r.median_us or math.nan, r.gflops or math.nan
    computed = problem.flops / median / 1e3
    if not abs(rate - computed) <= SAME * computed:
        return f"took {median:,.1f} µs, which is {computed:,.0f} GFLOP/s and not {rate:,.0f}"
    if rate > FASTEST:
        return f"reaches {rate:,.0f} GFLOP/s, more than any device"
    if r.best_us is not None and r.best_us > median * (1 + SAME):
        return "has a best time that is longer than the median"
    if r.max_error is None or r.error_bound is None or not r.max_error <= r.error_bound:
        return "was not compared with NumPy, or is wrong"
    if r.peak_fraction is not None and r.peak_fraction > BEYOND:
        return f"reaches {r.peak_fraction:.0%} of the measured peak of its device"
    kernel = kernel_of(r)
    if OPS[r.op].plotted and r.peak_fraction is None and not (kernel and kernel.matrix_shape):
        return "lacks the measured peak of its device: run `webmm bench --json`"
    return None


def boards(records: Sequence[Record]) -> list[Board]:
    """Return a board per problem, with the best record of each machine, ordered by op, dtype and size."""
    best: dict[tuple[Any, ...], dict[MachineName, Record]] = {}
    for r in records:
        places = best.setdefault(
            (list(OPS).index(r.op), r.variant, r.dtype, r.m * r.n * r.k * r.batch, r.size, r.layout), {}
        )
        known = places.get(_machine(r))
        if known is None or (r.median_us or math.inf) < (known.median_us or math.inf):
            places[_machine(r)] = r
    return [_board(list(places.values())) for _, places in sorted(best.items())]


def _board(records: list[Record]) -> Board:
    r = records[0]
    op = op_of(r.op, r.variant)
    ranked = sorted((Entry(record, op.rate(record)) for record in records), key=lambda place: -place.speed)
    variant = f"{r.op} {r.variant}".rstrip()
    return Board(" ".join(filter(None, (variant, r.size, r.layout, r.dtype))), op.unit, tuple(ranked))


def render(records: Sequence[Record]) -> str:
    """Return the page as HTML; strings from records are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    machines = {_machine(record) for record in records}
    return environment.get_template("leaderboard.html").render(
        boards=boards(records), machines=len(machines), version=__version__
    )
