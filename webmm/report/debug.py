"""Output of `webmm debug`: the steps of a kernel for some elements of its result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator

import click

from webmm.debug import SHOWN, Inspection
from webmm.engine.device import Device
from webmm.errors import ConfigError
from webmm.report import Open, plain

ALL = slice(None)


def run(
    open_device: Open,
    inspected: Callable[[Device], Iterable[Inspection]],
    shown: slice | None,
    as_json: bool,
) -> bool:
    """Print the inspections that `inspected` makes on a device, at the steps `shown`; return whether all are right.

    If all steps are shown on a terminal, they are shown a page at a time, with a prompt after each. Raises as
    `inspected` does, and ConfigError if the steps do not exist.
    """
    console, right = plain(), True
    with open_device() as device:
        found, machine = list(inspected(device)), device.info.name
    for inspection in found:
        count = len(inspection.steps)
        if shown is not None and (not inspection.steps[shown] or (shown.stop or 0) > count):
            raise ConfigError(f"no steps {shown.start}:{shown.stop}: the kernel takes the steps 0:{count}")
        right = right and inspection.right
    if as_json:
        data = [inspection.to_json() for inspection in found]
        console.print_json(data=data[0] if len(data) == 1 else data)
        return right
    for inspection in found:
        console.print(f"{inspection.kernel} for {inspection.reference.element} of {inspection.problem} on {machine}")
        if shown == ALL and sys.stdin.isatty() and sys.stdout.isatty():
            for steps in pages(inspection, lambda: click.prompt("", "", show_default=False, prompt_suffix="… ")):
                console.print(inspection.table(steps))
        else:
            console.print(inspection.table(shown))
        for note in inspection.notes():
            console.print(note)
    return right


def pages(inspection: Inspection, ask: Callable[[], str]) -> Iterator[slice]:
    """Yield pages of SHOWN steps: the first, then one per answer of `ask()`.

    An empty answer continues, a number goes to that step, and anything else ends the iteration.
    """
    at, count = 0, len(inspection.steps)
    while at < count:
        yield slice(at, min(at + SHOWN, count))
        at += SHOWN
        if at >= count:
            return
        answer = ask().strip()
        if answer.isdigit():
            at = min(int(answer), count - 1)
        elif answer:
            return
