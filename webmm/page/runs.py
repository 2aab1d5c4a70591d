"""What the page tells of records of several runs: which to compare, and in which words.

This module is in the translated subset (docs/page.md): records are JavaScript's there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from webmm.engine.timing import duration
from webmm.kernels.base import Kernel
from webmm.measure.records import Record
from webmm.page.labels import size_of, speed_of, unit_of
from webmm.page.tables import Row, Table, fastest
from webmm.problems.base import Problem
from webmm.text import figures, percent

Key = Callable[[Record], str]
FAILED = ("compile", "runtime", "incorrect", "timeout")
SEEN = "run the ladder or the tuner, import saved results, or open a shared link"


@dataclass(frozen=True)
class Run:
    """The records of a run, and its name."""

    name: str
    records: Sequence[Record]


def _key(exact: bool) -> Key:
    """Return what identifies a measurement: its kernel, and its size if `exact`."""
    return lambda r: f"{r.op} {r.kernel} {r.dtype}" + (f" {size_of(r)}" if exact else "")


def _share(a: Run, b: Run, key: Key) -> bool:
    keys = {key(r) for r in b.records}
    return any(key(r) in keys for r in a.records)


def likely(runs: Sequence[Run]) -> str:
    """Return the name of the run to compare with the first, the newest one; "" if there are no runs.

    It is the next one on the same problems, or else of the same kernels, or else the next one.
    """
    for exact in (True, False):
        for run in runs[1:]:
            if _share(run, runs[0], _key(exact)):
                return run.name
    return runs[min(1, len(runs) - 1)].name if runs else ""


def compared(a: Run, b: Run) -> Table:
    """Return the fastest record of each kernel in two runs, of any size if none are equal; one run is shown once."""
    exact = _share(a, b, _key(True))
    x, y = (_fastest(run.records, _key(exact)) for run in (a, b))
    rows = [_pair(x.get(key), y.get(key), a is b) for key in dict.fromkeys((*x.keys(), *y.keys()))]
    heads = (_who(a),) if a is b else (_who(a), _who(b), "second ÷ first")
    more = "" if exact else "; the sizes differ"
    return Table(("Kernel", *heads), rows, f"Best configuration of each kernel{more}")


def _pair(p: Record | None, q: Record | None, same: bool) -> Row:
    """Return the line of two records of a kernel, or of one that is both."""
    known = [r for r in (p, q) if r]
    sizes = " and ".join(dict.fromkeys(size_of(r) for r in known))
    ratio = f"{figures(q.gflops / p.gflops)} ×" if p and q and p.gflops and q.gflops else ""
    cells = (_figure(p),) if same else (_figure(p), _figure(q), ratio)
    return Row(known[0].kernel, f"{sizes} {known[0].dtype}, {unit_of(known[0])}", cells)


def _figure(record: Record | None) -> str:
    if record is None:
        return "–"
    return figures(speed_of(record)) if record.status == "ok" else record.status


def _who(run: Run) -> str:
    return f"{run.records[0].adapter}, {run.records[0].engine}" if run.records else "no results"


def hint(runs: Sequence[Run]) -> str:
    """Return what to do for a comparison; "" if there are runs to compare."""
    if not runs:
        return f"To see runs here, {SEEN}."
    if len(runs) > 1:
        return ""
    return f"Only one run so far: {runs[0].name}. To compare it with another, {SEEN}."


def _fastest(records: Sequence[Record], key: Key) -> dict[str, Record]:
    """Return the fastest record of each key."""
    found: dict[str, Record] = {}
    for record in records:
        known = found.get(key(record))
        if known is None or known.gflops is None or known.gflops < (record.gflops or 0):
            found[key(record)] = record
    return found


def gain(records: Sequence[Record], op: str, stage: str, follows: str) -> list[str]:
    """Return by how much a stage is faster on this device than the one before it, and at which speeds, in words.

    They are those on the first problem that was measured with both; [] without one.
    """
    found = _fastest_of(records, op, [stage, follows])
    if not found:
        return []
    record, before = found
    return [
        f"{figures((record.gflops or 0) / (before.gflops or math.nan))} × {before.kernel} on this device",
        f": {figures(speed_of(record))} against {figures(speed_of(before))} {unit_of(record)} at {size_of(record)} "
        f"{record.dtype}.",
    ]


def _fastest_of(records: Sequence[Record], op: str, stages: Sequence[str]) -> list[Record]:
    """Return the fastest record of each of `stages` on the first problem that was measured with all; [] without one."""
    for problem in dict.fromkeys((r.variant, size_of(r), r.dtype) for r in records):
        same = [r for r in records if r.op == op and (r.variant, size_of(r), r.dtype) == problem]
        fastest = _fastest(same, lambda r: r.kernel)
        if all(stage in fastest for stage in stages):
            return [fastest[stage] for stage in stages]
    return []


def speed_on(records: Sequence[Record], kernel: Kernel[Any], problem: Problem) -> float | None:
    """Return the speed of a kernel on a problem, from the first record of both; None without one."""
    wanted = (problem.op, problem.variant, kernel.name, *problem.sizes[:3], problem.dtype.name)
    for r in records:
        if (r.op, r.variant, r.kernel, r.m, r.n, r.k, r.dtype) == wanted and dict(r.config.items()) == kernel.config:
            return r.gflops
    return None


def ablation(changes: Sequence[tuple[str, object]], records: Sequence[Record], label: str) -> Table:
    """Return what each change of a kernel gains, and all together if there are several.

    `changes` are those of `settings.changes()`, `records` those of the kernel called `label`, of each change alone that
    is valid, and of all together.
    """
    base, *others = records
    rows = [Row(label, "", (_speed(base), "1 ×"))]
    gains: list[float] = []
    for change, kernel in changes:
        if kernel is None:
            gains.append(math.nan)
            rows.append(Row(change, "", ("", "impossible alone")))
        else:
            record = others.pop(0)
            gains.append(_gain(record, base))
            rows.append(Row(change, "", (_speed(record), _times(gains[-1]))))
    for both in others:
        rows.append(Row("all together", "", (_speed(both), _times(_gain(both, base)))))
        rows.append(Row("expected if independent", "", ("", _times(math.prod(gains)))))
    return Table((), rows)


def _gain(record: Record, base: Record) -> float:
    return record.gflops / base.gflops if record.gflops and base.gflops else math.nan


def _speed(record: Record) -> str:
    return f"{figures(speed_of(record))} {unit_of(record)}" if record.gflops else record.status


def _times(ratio: float) -> str:
    return f"{figures(ratio)} ×" if math.isfinite(ratio) else "–"


def outcome(record: Record, label: str) -> str:
    """Return what the measurement of one kernel, called `label`, gave, in words."""
    if record.status != "ok":
        return f"{record.status}: {record.reason}"
    speed = f"{figures(speed_of(record))} {unit_of(record)}"
    return f"{label} at {size_of(record)}: {speed}, {duration(record.median_us)}, checked."


def outstanding(records: Sequence[Record]) -> list[Record]:
    """Return the ten fastest records of a search, and all failures."""
    right = sorted((r for r in records if r.status == "ok"), key=lambda r: -(r.gflops or 0))
    return [*right[:10], *(r for r in records if r.status in FAILED)]


def outcomes(records: Sequence[Record]) -> str:
    """Return how many records of a search have each status."""
    counts: dict[str, int] = {}
    for r in records:
        counts[r.status] = counts.get(r.status, 0) + 1
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    return f"Outcomes for {size_of(records[0])}: {told}. The ten fastest, and failures"


def best_of(records: Sequence[Record]) -> str:
    """Return the result of a search in words; "" if no kernel could run."""
    best = fastest(records)
    if best is None:
        return ""
    share = f", {percent(best.peak_fraction)} of peak" if best.peak_fraction else ""
    first = records[0].gflops
    gain = f", {figures((best.gflops or 0) / first)} × the default choice" if first else ""
    words = f"Best: {best.kernel} at {figures(best.gflops)} GFLOP/s{share}{gain}."
    return f"{words} This page now uses it for products of similar shape."


def best_so_far(records: Sequence[Record]) -> str:
    """Return the fastest of the records of a search that goes on, in words."""
    best = fastest(records)
    return f" Best so far: {best.kernel} at {figures(best.gflops)} GFLOP/s." if best else ""


def change(wgsl: str) -> str:
    """Return the part of a stage's header that describes its change from an earlier stage, or ""."""
    words: list[str] = []
    for line in wgsl.splitlines():
        comment = line.removeprefix("//").strip()
        if comment.startswith(BEGINS):
            words.append(comment)
        elif words and (not line.startswith("//") or comment.startswith(FOLLOWS)):
            return " ".join(words)
        elif words:
            words.append(comment)
    return " ".join(words)


BEGINS = ("Changed from", "The first stage", "Made for")
FOLLOWS = ("Dispatch ", "Edges:", "Shapes:", "Workgroup memory:", "Storage:", "Needs ")
