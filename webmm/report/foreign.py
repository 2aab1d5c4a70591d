"""Output of `webmm kernel`: checks, timings and searches of a WGSL file that the user wrote."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from webmm.engine.device import Device
from webmm.errors import NoAdapterError
from webmm.foreign import Foreign
from webmm.foreign.bench import measured
from webmm.foreign.check import check, order_unknown
from webmm.foreign.tasks import OfOp, Size, Work
from webmm.foreign.tune import combinations, search
from webmm.kernels.base import Kernel
from webmm.measure import roofline
from webmm.measure.bench import Bench
from webmm.measure.records import Record
from webmm.report import Open, plain, progress_bar, show_reasons
from webmm.report.ladder import Wanted, compared, ladder_table
from webmm.text import printable

SHOWN = 10  # combinations in the table of a search


def run_check(open_device: Open, foreign: Foreign, work: Work, sizes: Sequence[Size]) -> bool:
    """Check `foreign` at `sizes`, print the findings, and return whether it is right."""
    console, right = plain(), True
    with open_device() as device, ExitStack() as closed:
        cpu = device if device.info.kind == "cpu" else _cpu()
        if cpu and cpu is not device:
            closed.enter_context(cpu)
        console.print(f"{foreign} on {device.info}")
        for found in check(foreign, device, cpu, work, sizes):
            console.print(f"  {found.label}: {found.words or 'right'}", soft_wrap=True)
            right = right and not found.words
        if why := order_unknown(foreign, cpu):
            console.print(f"  invocations ran in one order only: {why}", soft_wrap=True)
    return right


def _cpu() -> Device | None:
    try:
        return Device("cpu")
    except NoAdapterError:
        return None


def run_bench(
    open_device: Open,
    foreign: Foreign,
    work: Work,
    kernels: list[Kernel[Any]] | None,
    sizes: Sequence[Size],
    budget: float,
) -> list[Record]:
    """Time `foreign`, and `kernels` of the same op (default: the whole ladder); print them, and return the records."""
    console = plain()
    with open_device() as device:
        console.print(f"{device.info}")
        if not isinstance(work, OfOp):
            found = list(measured(foreign, device, work, sizes))
            console.print(_table(found))
            show_reasons(found)
            return found
        op = work.op
        problems = [op.problem(each, work.dtype) for each in sizes]  # refused before anything is measured
        ceiling = roofline.measure(device)
        stages = compared(Wanted(op, work.dtype, kernels), device, problems[0])
        found = list(measured(foreign, device, work, sizes, ceiling))
        found += Bench(device, stages, list(sizes), work.dtype, budget, ceiling, op=op).run()
    for size in dict.fromkeys(record.size for record in found):
        same_size = [record for record in found if record.size == size]
        table = ladder_table(same_size, op)
        plain(table).print(table)
        show_reasons(same_size)
    return found


def run_tune(open_device: Open, foreign: Foreign, work: Work, size: Size, budget: float) -> list[Record]:
    """Search the tunables of `foreign` at a size; print the fastest and the failures, and return all records."""
    console, count = plain(), len(combinations(foreign))
    with open_device() as device:
        console.print(f"{foreign.name} for {work.task(size).label} on {device.info}")
        with progress_bar() as bar:
            found = list(search(foreign, device, work, size, budget, bar))
    right = sorted((r for r in found if r.status == "ok"), key=lambda record: record.median_us or 0.0)
    failed = [record for record in found if record.status != "ok"]
    untried = f"; the budget of {budget:g} s left {count - len(found)} untried" if len(found) < count else ""
    console.print(f"{len(found)} of {count} combinations: {len(right)} right, {len(failed)} failed{untried}")
    if right:
        console.print(_table(right[:SHOWN]))
    reasons = Counter((r.status, (r.reason or "").partition("\n")[0]) for r in failed)
    for (status, reason), times in reasons.most_common():
        console.print(printable(f"  {times} × {status}: {reason}"), soft_wrap=True)
    if right:
        options = (word for name, value in right[0].config.items() for word in ("--tunable", f"{name}={value}"))
        console.print(f"best: {shlex.join(options)}", soft_wrap=True)
    return found


def _table(found: Sequence[Record]) -> Table:
    """Return the times of a text with several settings, in the given order."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    names = list(found[0].config)
    for name in (*names, "median µs", "best µs", "spread µs", "GOP/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for record in found:
        rate = "–" if record.gflops is None else f"{record.gflops:.3g}"
        times = (record.median_us, record.best_us, record.spread_us)
        shown = (*("–" if each is None else f"{each:,.1f}" for each in times), rate)
        table.add_row(*(str(record.config[name]) for name in names), *shown)
    return table
