"""Output of `webmm explain STAGE`: what its chapter says in short, and what the stage gains on this device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from textwrap import fill
from typing import Any, cast

from webmm.cases import OPS, op_of
from webmm.cases.base import Op, Size
from webmm.engine.device import Device
from webmm.errors import ConfigError
from webmm.kernels import label_of
from webmm.kernels.base import Kernel
from webmm.learn.chapters import told_in
from webmm.measure import roofline
from webmm.measure.bench import Bench
from webmm.measure.records import Record
from webmm.report import LINE, Open, first_line, right
from webmm.report.choice import loads_of
from webmm.report.ladder import measured, problem_of
from webmm.text import printable

BUDGET = 10.0  # seconds for which sizes are chosen
LONGEST = 4 * BUDGET  # seconds of the measurement, on a device that other programs use, too


def op_with(op: str, stage: str) -> Op[Any]:
    """Return the row of an op, or of the first other one that has the stage; raises ConfigError if none has it."""
    rows = [op_of(op), *(row for name, row in OPS.items() if name != op)]
    for row in rows:
        if any(stage == each.name for each in row.stages):
            return row
    names = ", ".join(each.name for each in rows[0].stages)
    raise ConfigError(f"{stage!r} is neither a size nor a stage; the stages of {rows[0].name} are {names}")


def explain_stage(row: Op[Any], stage: str, layout: str, dtype: str, open_device: Open) -> tuple[str, bool]:
    """Return the summary of a stage's chapter, and its rate on the device beside that of the stage that it follows.

    Also return whether none of the two is wrong or refused by a compiler.
    """
    stages = {each.name: each for each in row.stages}
    told = told_in(row.name, stage)
    chapter, section = told or (None, "")
    words = chapter.summary_of(section) if chapter else stages[stage].summary
    title = chapter.title if chapter and not section else f"{stage}: {stages[stage].summary}"
    with open_device() as device:
        chain = [stages[name].on(device.capabilities) for name in (stages[stage].follows, stage) if name]
        ceiling = roofline.measure(device)
        usual = (*_shown(row, stage, device), *row.default_sizes(ceiling, BUDGET))
        taken = partial(_taken, chain[-1], lambda size: row.problem(size, dtype, layout), device)
        sizes = list(dict.fromkeys(map(taken, usual)))
        records = measured(Bench(device, chain, sizes, dtype, LONGEST, ceiling, op=row, layout=layout))
        said = [fill(title, LINE), "", fill(words, LINE)]
        lines = [*said, "", fill(f"on {device.info}:", LINE), *_measured(row, chain, records)]
    if chapter:
        lines += ["", f"chapter: docs/learn/{chapter.name}.md, or `webmm serve`"]
        lines += [f"shader: webmm shader {stage} --op {row.name}"]
    return printable("\n".join(lines)), right(records)


def _shown(row: Op[Any], stage: str, device: Device) -> Iterator[Size]:
    """Yield the sizes at which the page shows a stage that does not suit the default sizes."""
    for exhibit in row.exhibits:
        if stage in exhibit.stages:
            yield from exhibit.sizes["cpu" if device.info.kind == "cpu" else "gpu"]


def _taken(kernel: Kernel[Any], problem: Callable[[Size], Any], device: Device, size: Size) -> Size:
    """Return a size, or shorter rows if the kernel takes only those: as many elements, on a CPU as many rows."""
    more, shorter = 1 if device.info.kind == "cpu" else 2, size
    while kernel.check(problem(shorter), device.capabilities):
        rows, length, *rest = shorter
        if length % 2:
            return size
        shorter = cast("Size", (more * rows, length // 2, *rest))
    return shorter


def _measured(row: Op[Any], chain: list[Kernel[Any]], records: list[Record]) -> list[str]:
    """Return a line for each kernel at the largest size at which all ran, and the gain of the last over the first."""
    by_size: dict[str, list[Record]] = {}
    for record in records:
        if record.kernel in {kernel.name for kernel in chain}:
            by_size.setdefault(record.size, []).append(record)
    complete = [some for some in by_size.values() if all(r.status == "ok" for r in some)]
    if not complete:
        last = next(iter(by_size.values()))
        return [_reason(record) for record in last if record.status != "ok"]
    shown = sorted(complete[-1], key=lambda r: [kernel.name for kernel in chain].index(r.kernel))
    lines = [f"  {_line(row, record, kernel)}" for record, kernel in zip(shown, chain, strict=True)]
    first, last_one = shown[0], shown[-1]
    if len(shown) == 2 and first.median_us and last_one.median_us:
        lines[-1] += f": {first.median_us / last_one.median_us:.2f} × {first.kernel}"
    return lines


def _reason(record: Record) -> str:
    """Return why a kernel was not measured; there is no --budget here."""
    words = f"{label_of(record)}: {record.status}: {first_line(record).removesuffix(' (--budget raises it)')}"
    return fill(words, LINE, initial_indent="  ", subsequent_indent="    ")


def _line(row: Op[Any], record: Record, kernel: Kernel[Any]) -> str:
    loads = loads_of(kernel, problem_of(record))
    return f"{record.size} {label_of(record)}: {row.rate(record):,.4g} {row.unit}" + (
        f", {loads} loads per vec4 FMA" if loads else ""
    )
