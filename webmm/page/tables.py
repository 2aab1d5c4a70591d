"""What the page shows of records: bars, tables, and the place of kernels under the roofline.

This module is in the translated subset (docs/page.md): records are JavaScript's there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from webmm.engine.timing import duration
from webmm.kernels import STAGES, branch
from webmm.learn.drawings.svg import escaped
from webmm.measure.records import Record
from webmm.page.labels import size_of, speed_of, unit_of
from webmm.text import exponent, figures, percent

SETTINGS = ("dot", "size", "tile", "bm", "bn", "bk", "tm", "tn", "wx", "wy", "lanes")  # that a table shows
KEPT = 40  # tuned records
MOST = 8  # rows and columns of a matrix that are shown


@dataclass(frozen=True)
class Row:
    """A line of a table: its name, what is said of that, and its figures, or else a status with its reason."""

    name: str
    about: str
    cells: Sequence[str]
    best: bool = False
    status: str = ""
    reason: str = ""

    def html(self, columns: int) -> str:
        """Return the line as HTML, for a table of so many columns."""
        about = f'<span class="config">{escaped(self.about)}</span>' if self.about else ""
        cells = "".join(f'<td class="number">{escaped(cell)}</td>' for cell in self.cells)
        if self.status:
            words = f"<b>{escaped(self.status)}</b> {escaped(self.reason)}"
            cells = f'{cells}<td colspan="{columns - 1}" class="reason">{words}</td>'
        kind = ' class="best"' if self.best else ""
        return f'<tr{kind}><th scope="row">{escaped(self.name)}{about}</th>{cells}</tr>'


@dataclass(frozen=True)
class Table:
    """The heads of a table's columns, and its lines; without heads it is a list of lines."""

    heads: Sequence[str]
    rows: Sequence[Row]
    caption: str = ""

    def html(self, kind: str = "") -> str:
        """Return the table as HTML, of a class. Its texts, which may be of anybody's records, are escaped."""
        heads = "".join(f'<th scope="col">{escaped(each)}</th>' if each else "<td></td>" for each in self.heads)
        caption = f"<caption>{escaped(self.caption)}</caption>" if self.caption else ""
        head = f"<thead><tr>{heads}</tr></thead>" if self.heads else ""
        lines = "".join(row.html(len(self.heads)) for row in self.rows)
        return f'<table class="{kind}">{caption}{head}<tbody>{lines}</tbody></table>'


def excerpt(element: Callable[[int, int], float], rows: int, columns: int, name: str) -> Table:
    """Return the numbers of a matrix, or the first and the last ones of its first and last rows."""
    across = _picks(columns)
    lines = [
        Row(_place(i), "", ["…" if i is None or j is None else f"{element(i, j):.5g}" for j in across])
        for i in _picks(rows)
    ]
    return Table(["", *(_place(j) for j in across)], lines, f"{name}, {rows}×{columns}")


def _picks(length: int) -> list[int | None]:
    """Return the indices to show; None for a gap."""
    return [*range(length)] if length <= MOST else [*range(MOST - 2), None, length - 1]


def _place(index: int | None) -> str:
    return "…" if index is None else str(index)


@dataclass(frozen=True)
class Step:
    """A stage of a ladder, what stands before it, the stage that it is compared with, and where its chapter is."""

    label: str
    summary: str
    follows: str
    branch: str
    href: str


def step(op: str, name: str, label: str, summary: str, dtype: str) -> Step:
    """Return a stage of a ladder; one whose kernel is no stage, as those of float64 from integers, follows none."""
    stage = STAGES.get(op, {}).get(name)
    if stage is None:
        return Step(label, summary, "", "", f"#explain/{dtype}")
    return Step(label, stage.summary, stage.follows, branch(name, op), f"#explain/{op}/{name}")


def empty_bars(steps: Sequence[Step]) -> str:
    """Return the lines of a ladder as HTML, whose bars, values and notes are empty."""
    lines = []
    for each in steps:
        label, inward = escaped(each.label), each.branch.replace(" ", "\u2002")
        link = f'{inward}<a href="{escaped(each.href)}">{label}</a>'
        name = f'<span class="name" title="{escaped(each.summary)}">{link}</span>'
        bar = '<span class="track"><span class="bar"></span></span>'
        lines.append(f'<li data-kernel="{label}">{name}{bar}<span class="value"></span><span class="note"></span></li>')
    return "".join(lines)


@dataclass(frozen=True)
class Bar:
    """What a bar of a ladder shows: its length is a share of the longest."""

    status: str
    share: float
    value: str
    note: str


def fastest(records: Sequence[Record]) -> Record | None:
    """Return the fastest of some records; None if none has a speed."""
    best = None
    for record in records:
        if (record.gflops or 0) > (best.gflops or 0 if best else 0):
            best = record
    return best


def bars(records: Sequence[Record], steps: Sequence[Step], state: str) -> list[Bar]:
    """Return a bar for each stage of a ladder that has these records; `state` is waiting, running or finished."""
    best = fastest(records)
    shown = [_bar(records[: i + 1], steps[i].follows, best) for i in range(len(records))]
    left = "not run" if state == "finished" else ""
    for i, step in enumerate(steps[len(records) :]):
        now = state == "running" and i == 0
        shown.append(Bar("running", 0, "running …", step.summary) if now else Bar("waiting", 0, left, step.summary))
    return shown


def _bar(records: Sequence[Record], follows: str, best: Record | None) -> Bar:
    """Return the bar of the last of some records."""
    earlier, record = records[:-1], records[-1]
    if record.status != "ok" or not record.gflops or not best or not best.gflops:
        return Bar(record.status, 0, record.status, record.reason or "")
    before = [each for each in earlier[1:] if each.kernel == follows]
    others = [each for each in (*earlier[:1], *before[-1:]) if each.gflops]
    notes = [f"{figures(record.gflops / (each.gflops or math.nan))} × {each.kernel}" for each in others]
    if record.peak_fraction:
        notes.append(f"{percent(record.peak_fraction)} of peak")
    status = "best" if record is best else "ok"
    return Bar(status, record.gflops / best.gflops, figures(speed_of(record)), " · ".join(notes) or "checked")


def results(records: Sequence[Record]) -> Table:
    """Return all measured values of records of one problem."""
    called = any(getattr(record, "call_us", None) for record in records)
    best = fastest(records)
    rows = [
        Row(r.kernel, _settings(r), _measured(r, called), best=r is best)
        if r.status == "ok"
        else Row(r.kernel, _settings(r), (), status=r.status, reason=r.reason or "")
        for r in sorted(records, key=lambda r: -1 if r.gflops is None else r.gflops, reverse=True)
    ]
    call = ["Call"] if called else []
    return Table(("Kernel", unit_of(records[0]), "Median", "Best", *call, "Error", "Bound"), rows)


def _settings(record: Record) -> str:
    """Return the settings of a kernel that a table shows: all of a visitor's own text, whose name has a point."""
    shown = [(name, value) for name, value in record.config.items() if name in SETTINGS or "." in record.kernel]
    return " · ".join(f"{name}\u00a0{value}" for name, value in shown)


def _measured(record: Any, called: bool) -> list[str]:
    call = [duration(getattr(record, "call_us", None))] if called else []
    errors = (exponent(record.max_error), exponent(record.error_bound))
    return [figures(speed_of(record)), duration(record.median_us), duration(record.best_us), *call, *errors]


def found(records: Sequence[Record], steps: Sequence[Step], stopped: bool) -> str:
    """Return the result of a ladder of these steps in words."""
    best = fastest(records)
    if best is None:
        return "Stopped before the first result." if stopped else "No stage could run at this size."
    label = next(step.label for step, record in zip(steps, records, strict=False) if record is best)
    speed = f"{figures(speed_of(best))} {unit_of(best)} on {size_of(best)}"
    return f"{'Stopped. ' if stopped else ''}Fastest: {label} at {speed}."


def hero(record: Record, label: str) -> tuple[str, str]:
    """Return the speed and the description of the fastest product so far, whose kernel is called `label`."""
    sizes = f"{record.m}×{record.k} times {record.k}×{record.n}, {record.dtype}"
    return figures(record.gflops), f"{sizes}, in {duration(record.median_us)} with kernel {label}, result checked"


def to_keep(found: Sequence[Record], kept: Sequence[Record]) -> list[Record]:
    """Return the tuned records to keep for later visits: those found, and the kept ones of other problems."""
    problems = [(size_of(record), record.dtype) for record in found]
    others = [record for record in kept if (size_of(record), record.dtype) not in problems]
    return [*(record for record in found if record.status == "ok"), *others][:KEPT]


def explained(records: Sequence[Record]) -> str:
    """Return what a table of a ladder shows."""
    measured = len([record for record in records if record.status == "ok"])
    return (
        f"{measured} of {len(records)} stages measured at {size_of(records[0])}, fastest first. "
        "Median and Best are times on the GPU, Call is the wall-clock time from the call to the result; "
        "Error is the largest one found, Bound what rounding allows"
    )
