"""What the page tells of records of several runs: which to compare, and in which words.

`size` is a function of a record, such as 64×32×16. This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from webmm.measure.records import Record
from webmm.text import figures

Words = Callable[[Record], str]
FAILED = ("compile", "runtime", "incorrect", "timeout")


@dataclass(frozen=True)
class Run:
    """The records of a run, and its name."""

    name: str
    records: Sequence[Record]


def _key(exact: bool, size: Words) -> Words:
    """Return what identifies a measurement: its kernel, and its size if `exact`."""
    return lambda r: f"{r.op} {r.kernel} {r.dtype}" + (f" {size(r)}" if exact else "")


def _share(a: Run, b: Run, key: Words) -> bool:
    keys = {key(r) for r in b.records}
    return any(key(r) in keys for r in a.records)


def likely(runs: Sequence[Run], size: Words) -> str:
    """Return the name of the run to compare with the first, the newest one; "" if there are no runs.

    It is the next one on the same problems, or else of the same kernels, or else the next one.
    """
    for exact in (True, False):
        for run in runs[1:]:
            if _share(run, runs[0], _key(exact, size)):
                return run.name
    return runs[min(1, len(runs) - 1)].name if runs else ""


def compared(a: Run, b: Run, size: Words) -> tuple[bool, list[tuple[Record | None, Record | None]]]:
    """Return whether two runs have equal problems, and the fastest record of each kernel in both.

    Without equal problems, those of any size are compared.
    """
    exact = _share(a, b, _key(True, size))
    x, y = (_fastest(run.records, _key(exact, size)) for run in (a, b))
    return exact, [(x.get(key), y.get(key)) for key in dict.fromkeys((*x.keys(), *y.keys()))]


def _fastest(records: Sequence[Record], key: Words) -> dict[str, Record]:
    """Return the fastest record of each key."""
    found: dict[str, Record] = {}
    for record in records:
        known = found.get(key(record))
        if known is None or known.gflops is None or known.gflops < (record.gflops or 0):
            found[key(record)] = record
    return found


def gained(records: Sequence[Record], op: str, stages: Sequence[str], size: Words) -> list[Record]:
    """Return the fastest record of each of `stages` on the first problem that was measured with all; [] without one."""
    for problem in dict.fromkeys((r.variant, size(r), r.dtype) for r in records):
        same = [r for r in records if r.op == op and (r.variant, size(r), r.dtype) == problem]
        fastest = _fastest(same, lambda r: r.kernel)
        if all(stage in fastest for stage in stages):
            return [fastest[stage] for stage in stages]
    return []


def outstanding(records: Sequence[Record]) -> list[Record]:
    """Return the ten fastest records of a search, and all failures."""
    right = sorted((r for r in records if r.status == "ok"), key=lambda r: -(r.gflops or 0))
    return [*right[:10], *(r for r in records if r.status in FAILED)]


def outcomes(records: Sequence[Record], size: Words) -> str:
    """Return how many records of a search have each status."""
    counts: dict[str, int] = {}
    for r in records:
        counts[r.status] = counts.get(r.status, 0) + 1
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    return f"Outcomes for {size(records[0])}: {told}. The ten fastest, and failures"


def traffic(name: str, intensity: float, gflops: float | None, reach: float) -> str:
    """Return a stage's place under the roofline in words; `reach` is the roofline at its FLOP per byte."""
    allowed = f"{figures(reach)} GFLOP/s if all traffic reaches memory"
    if gflops is None:
        words = f"the roofline allows {name} {allowed}"
    else:
        more = "; caches serve repeated reads" if gflops > reach else ""
        words = f"{name} reached {figures(gflops)} GFLOP/s; the roofline allows {allowed}{more}"
    return f"At {figures(intensity)} FLOP per byte, {words}."


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
