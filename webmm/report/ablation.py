"""Ablation of a kernel on a device: the effect of changing its tunables, one at a time and in pairs."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from webmm.cases.base import Size
from webmm.engine.timing import duration
from webmm.errors import ShaderError, UnsupportedError
from webmm.kernels.base import Kernel
from webmm.measure.bench import Bench, relative
from webmm.measure.records import Record
from webmm.report import Open, plain, right, show_reasons
from webmm.report.ladder import Wanted, announce, measured

PAIRED = 4  # number of tunables with the largest effect, whose pairs are measured

Change = dict[str, Any]  # tunables by name


def ablate(open_device: Open, kernel: Kernel[Any], wanted: Wanted) -> list[Record]:
    """Measure `kernel` with every other value of each tunable, then pairs of the most important ones; print a table.

    Single changes and pairs each take half of the budget. For a pair, the table also shows the speedup expected if the
    two effects were independent, and below it why a variant has no time. Returns all records. Raises UnsupportedError
    if `kernel` itself cannot be timed, ShaderError if it is refused or wrong.
    """
    results: list[Record] = []
    with open_device() as device:
        ceiling = announce(device)
        for size in wanted.sizes or wanted.op.default_sizes(ceiling, wanted.budget)[-1:]:
            bench = Bench(
                device, [], [size], wanted.dtype, wanted.budget / 2, ceiling, op=wanted.op, layout=wanted.layout
            )
            results += _at(dataclasses.replace(bench, clock=wanted.clock), kernel, size)
    return results


def _at(bench: Bench, kernel: Kernel[Any], size: Size) -> list[Record]:
    single_changes = [{name: value} for name, value in _other_values(kernel)]
    first = _timed(bench, kernel, single_changes)
    (base,) = (r for r in first if r.config == kernel.config)
    if not base.median_us:
        why = UnsupportedError if right([base]) else ShaderError  # of a kernel that fails
        raise why(f"{kernel} could not be timed: {base.status}: {base.reason}")
    single = {(name, value): relative(r, base) for r in first for name, value in _changed(kernel, r)}
    best = _strongest(single)
    pairs = [{x: best[x], y: best[y]} for x, y in itertools.combinations(best, 2)]
    second = [r for r in _timed(bench, kernel, pairs) if r.config != kernel.config] if pairs else []
    plain().print(_table(bench.op.problem(size, bench.dtype, bench.layout), kernel, base, first, second, single))
    show_reasons([*first, *second], lambda record: _words(kernel, record))
    return [*first, *second]


def _other_values(kernel: Kernel[Any]) -> Iterator[tuple[str, Any]]:
    """Yield every other value of each tunable for which the kernel remains valid."""
    for field in dataclasses.fields(kernel):
        for value in field.metadata["candidates"]:
            if value != getattr(kernel, field.name) and _with(kernel, {field.name: value}).invalid() is None:
                yield field.name, value


def _with(kernel: Kernel[Any], change: Change) -> Kernel[Any]:
    changed: Kernel[Any] = dataclasses.replace(kernel, **change)
    return changed


def _timed(bench: Bench, kernel: Kernel[Any], changes: list[Change]) -> list[Record]:
    """Return the records of `kernel` and of its valid variants, one per change."""
    kernels = [kernel, *(k for change in changes if (k := _with(kernel, change)).invalid() is None)]
    return [r for r in measured(dataclasses.replace(bench, kernels=kernels)) if r.kernel == kernel.name]


def _changed(kernel: Kernel[Any], record: Record) -> Iterator[tuple[str, Any]]:
    """Yield the tunables whose values in `record` differ from the kernel's."""
    return ((name, value) for name, value in record.config.items() if value != kernel.config[name])


def _words(kernel: Kernel[Any], record: Record) -> str:
    """Return the tunables whose values in `record` differ from the kernel's, as text."""
    return ", ".join(f"{name}={value}" for name, value in _changed(kernel, record))


def _strongest(single: dict[tuple[str, Any], float]) -> Change:
    """Return the tunables with the largest effect, each at the changed value that affects the time least.

    The mildest change turns an idea off without crippling the kernel in other ways.
    """
    mildest: dict[str, tuple[float, Any]] = {}
    for (name, value), ratio in single.items():
        if math.isnan(ratio):
            continue
        effect = abs(math.log(ratio))
        if name not in mildest or effect < mildest[name][0]:
            mildest[name] = effect, value
    ranked = sorted(mildest, key=lambda name: -mildest[name][0])[:PAIRED]
    return {name: mildest[name][1] for name in ranked}


def _table(
    problem: object,
    kernel: Kernel[Any],
    base: Record,
    first: list[Record],
    second: list[Record],
    single: dict[tuple[str, Any], float],
) -> Table:
    table = Table(title=f"{problem}: {kernel}", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("changed", no_wrap=True)
    for name in ("median", "speedup", "expected if independent"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row("nothing", duration(base.median_us), "1", "")
    for records in (first, second):
        timed = [r for r in records if r.config != kernel.config]
        for r in sorted(timed, key=lambda r: (r.median_us is None, r.median_us)):
            words, changes = _words(kernel, r), list(_changed(kernel, r))
            expected = math.prod(single.get(change, math.nan) for change in changes)
            if r.median_us:
                independent = f"{expected:.3f}" if len(changes) > 1 else ""
                table.add_row(words, duration(r.median_us), f"{relative(r, base):.3f}", independent)
            else:
                table.add_row(words, r.status, "–", "")
    return table
