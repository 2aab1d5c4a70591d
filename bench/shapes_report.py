"""Tables of the results of `shapes.py`: speed relative to the peers, and relative to the best candidate."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import Any

from shapes_timing import COPY

from webmm.kernels import label_of
from webmm.measure.records import Record

PEERS = ("cublas", "pytorch", COPY)
Key = tuple[Any, ...]


def geometric(values: Iterable[float]) -> float:
    """Return the geometric mean; NaN if there are no values."""
    values = list(values)
    return statistics.geometric_mean(values) if values else math.nan


def tenth(values: Iterable[float]) -> float:
    """Return the value below which a tenth of the values are; NaN if there are no values."""
    values = sorted(values)
    return values[len(values) // 10] if values else math.nan


def grouped(records: Iterable[Record]) -> dict[Key, list[Record]]:
    """Return the records by problem, in their original order."""
    found: dict[Key, list[Record]] = {}
    for r in records:
        found.setdefault((r.op, r.variant, r.dtype, r.m, r.n, r.k, r.batch, r.layout), []).append(r)
    return found


def table(shares: list[tuple[str, float, float]]) -> str:
    """Return a table of the mean, the lowest tenth and the worst share, by class and by duration.

    `shares` has (class, share, µs) of each problem.
    """
    groups = {name: [s for cls, s, _ in shares if cls == name] for name in sorted({cls for cls, _, _ in shares})}
    groups["all"] = [s for _, s, _ in shares]
    groups["≥ 200 µs"] = [s for _, s, us in shares if us >= 200]
    groups["≥ 20 µs"] = [s for _, s, us in shares if us >= 20]
    groups["< 20 µs"] = [s for _, s, us in shares if us < 20]
    lines = ["| | problems | mean | a tenth below | worst |", "|---|---|---|---|---|"]
    for name, found in groups.items():
        if found:
            lines.append(f"| {name} | {len(found)} | {geometric(found):.2f} | {tenth(found):.2f} | {min(found):.2f} |")
    return "\n".join(lines)


def report(records: list[Record], classes: dict[Key, str], *, every: bool = False) -> None:
    """Print the chosen kernels' speed relative to the fastest peer's, and relative to the best candidate's.

    With `every`, also print all times of each problem.
    """
    shares, regrets, worst = [], [], []
    for key, found in grouped(records).items():
        cls = classes.get(key, "?")
        ours = [r for r in found if r.kernel not in PEERS and r.median_us]
        theirs = [r for r in found if r.kernel in PEERS and r.median_us]
        if not ours:
            continue
        chosen, best = ours[0], min(ours, key=time)
        share = regret = time(best) / time(chosen)
        if len(ours) > 1:
            regrets.append((cls, regret, time(chosen)))
        if theirs:
            fastest = min(theirs, key=time)
            share = time(fastest) / time(chosen)
            shares.append((cls, share, time(fastest)))
        words = f"{share:.2f} {cls} {' '.join(map(str, key))}: {time(chosen):.1f} µs {label_of(chosen)}"
        others = ", ".join(f"{label_of(r)} {time(r):.1f}" for r in theirs)
        worst.append((share, f"{words}; best {time(best):.1f} {label_of(best)}" + f"; {others}" * bool(others)))
    if shares:
        names = sorted({r.kernel for r in records} & set(PEERS))
        print(f"relative to the fastest of {', '.join(names)}:\n{table(shares)}")
    if regrets:
        print(f"best of the candidates ÷ chosen:\n{table(regrets)}")
    wrong = [r for r in records if r.status == "incorrect"]
    print(f"{sum(r.max_error is not None for r in records)} checked, {len(wrong)} wrong")
    for _, line in sorted(worst)[:40]:
        print(line)
    for key, found in grouped(records).items() if every else ():
        print(classes.get(key, "?"), key)
        for r in sorted(found, key=time):
            print(f"  {time(r):9.1f} {label_of(r)}" + f" {r.status}: {r.reason}" * (r.status != "ok"))


def time(record: Record) -> float:
    """Return the median in µs."""
    return record.median_us or math.inf
