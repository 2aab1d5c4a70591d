"""The leaderboard: contributed records of many GPUs, checked, and rendered as a separate page.

A contribution is a document of `webmm.records/1` in `leaderboard/`, one per machine, as `webmm report`, `webmm bench
--json` or the page writes it. Records that are inconsistent, or exceed the measured peak of their device, are rejected.
Contributions are for display only: kernels are chosen by the records in `webmm/tuned/`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
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
from webmm.version import ADDRESS, __version__

SAME = 0.01  # relative tolerance of two figures that should be equal
BEYOND = 1.03  # a kernel may reach this multiple of the measured peak, since both are measurements
FASTEST = 1e7  # GFLOP/s beyond any device
MAX_BYTES = 200_000  # of a contribution

MachineName = tuple[str, str, str]


@dataclass(frozen=True)
class Step:
    """The fastest settings of a stage, and what they gain over the stage measured before it; None for the first."""

    label: str
    speed: float  # in the unit of the op
    gain: float | None


@dataclass(frozen=True)
class Entry:
    """The best record of one machine for one problem, with the stages that the machine measured, in their order."""

    record: Record
    speed: float  # in the unit of the op
    steps: tuple[Step, ...]

    @property
    def clock(self) -> str:
        """What measured the times."""
        return {"timestamp": "timestamps", "wall": "wall clock"}.get(self.record.clock or "", "not said")

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


@dataclass(frozen=True)
class Adapter:
    """A device with its boards, in each of which its engines are side by side."""

    name: str
    boards: tuple[Board, ...]


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
        for record in records:
            known = seen.setdefault((*key(record), record.kernel, tuple(sorted(record.config.items()))), file)
            if known is not file:
                raise ProblemError(
                    f"{file}: {_words(record)} on {', '.join(filter(None, _machine(record)))} is already in {known}"
                )
        found += records
    return found


def checked(text: str, name: str) -> list[Record]:
    """Return the measured records of webmm's kernels in a document; raises ProblemError as `read()` does."""

    def refuse(complaint: str) -> None:
        raise ProblemError(f"{name}: {complaint}")

    if len(text.encode()) > MAX_BYTES:
        refuse(f"it has {len(text.encode()):,} bytes, of at most {MAX_BYTES:,}")
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
    if len(names := {r.adapter for r in measured}) > 1:
        refuse(f"the records are of several machines ({'; '.join(sorted(names))}); use one file per machine")
    settings = [(_machine(r), _problem(r), r.kernel, sorted(r.config.items())) for r in measured]
    for i, (record, this) in enumerate(zip(measured, settings, strict=True)):
        if why := _implausible(record) or ("is listed twice" if this in settings[:i] else None):
            refuse(f"{_words(record)} {why}")
    for machine in dict.fromkeys(map(_machine, measured)):
        own = (r for r in measured if _machine(r) == machine and OPS[r.op].plotted)
        peaks = [(r.gflops or 0) / r.peak_fraction for r in own if r.peak_fraction]
        if peaks and max(peaks) > min(peaks) * (1 + SAME):
            refuse(f"the records were measured against different peaks, {min(peaks):,.0f} to {max(peaks):,.0f} GFLOP/s")
    return measured


def _machine(record: Record) -> MachineName:
    return record.adapter, record.driver, record.engine


def _problem(r: Record) -> tuple[str, str, str, str, str]:
    return r.op, r.variant, r.dtype, r.size, r.layout


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
    if r.best_us is not None and not 0 < r.best_us <= median * (1 + SAME):
        return "has a best time that is longer than the median"
    if r.max_error is None or r.error_bound is None or not r.max_error <= r.error_bound < math.inf:
        return "was not compared with NumPy, or is wrong"
    if r.peak_fraction is not None and not 0 < r.peak_fraction <= BEYOND:
        return f"reaches {r.peak_fraction:.0%} of the measured peak of its device"
    kernel = kernel_of(r)
    if OPS[r.op].plotted and r.peak_fraction is None and not (kernel and kernel.matrix_shape):
        return "lacks the measured peak of its device: run `webmm bench --json`"
    return None


def boards(records: Sequence[Record]) -> list[Board]:
    """Return a board per problem, with the best record of each machine, ordered by op, dtype and size."""
    by_problem: dict[tuple[Any, ...], list[Record]] = {}
    for r in records:
        order = (list(OPS).index(r.op), r.variant, r.dtype, r.m * r.n * r.k * r.batch)
        by_problem.setdefault((*order, *_problem(r)), []).append(r)
    return [_board(found) for _, found in sorted(by_problem.items())]


def _board(records: list[Record]) -> Board:
    r = records[0]
    op = op_of(r.op, r.variant)
    machines = dict.fromkeys(map(_machine, records))
    places = (_entry([each for each in records if _machine(each) == machine], op.rate) for machine in machines)
    variant = f"{r.op} {r.variant}".rstrip()
    title = " ".join(filter(None, (variant, r.size, r.layout, r.dtype)))
    return Board(title, op.unit, tuple(sorted(places, key=lambda place: -place.speed)))


def _entry(records: list[Record], rate: Callable[[Record], float]) -> Entry:
    """Return the entry of one machine, from all of its records of one problem."""
    steps: list[Step] = []
    for stage in STAGES[records[0].op]:
        if measured := [r for r in records if r.kernel == stage]:
            best = max(measured, key=rate)
            steps.append(Step(label_of(best), rate(best), rate(best) / steps[-1].speed if steps else None))
    best = max(records, key=rate)
    return Entry(best, rate(best), tuple(steps))


def adapters(found: Sequence[Board]) -> list[Adapter]:
    """Return the devices of boards, by name, each with the parts of the boards that are about it."""
    names = sorted({place.record.adapter for board in found for place in board.places}, key=str.lower)
    return [
        Adapter(name, tuple(_about(name, board) for board in found if _about(name, board).places)) for name in names
    ]


def _about(name: str, board: Board) -> Board:
    return replace(board, places=tuple(place for place in board.places if place.record.adapter == name))


def render(records: Sequence[Record]) -> str:
    """Return the page as HTML; strings from records are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    environment.filters |= {"speed": _speed, "percent": lambda share: "–" if share is None else f"{share:.0%}"}
    found = boards(records)
    return environment.get_template("leaderboard.html").render(
        boards=found, adapters=adapters(found), address=ADDRESS, version=__version__
    )


def _speed(value: float) -> str:
    return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
