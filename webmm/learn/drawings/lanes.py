"""A picture of the lanes of a subgroup: which of them have an invocation."""

from __future__ import annotations

from typing import Any

from webmm.choose.model import Machine
from webmm.choose.tables import shipped
from webmm.kernels.base import Kernel, ceil_div
from webmm.learn.drawings import drawn
from webmm.learn.drawings.svg import Svg

CELL = 15.0
ROW = 54.0


@drawn
def lanes(*kernels: Kernel[Any], table: str = "nvidia-h200") -> Svg:
    """Return a row of lanes for each kernel, those with an invocation marked, and how many subgroups a multiprocessor
    holds at once.
    """
    machine = shipped()[table].machine
    busy = [min(kernel.invocations, machine.subgroup) for kernel in kernels]
    words = [
        f"{kernel.name}: {count} of {machine.subgroup} lanes, {_at_once(kernel, machine)} subgroups at once"
        for kernel, count in zip(kernels, busy, strict=True)
    ]
    svg = Svg(machine.subgroup * CELL + 4, ROW * len(kernels), "On a multiprocessor: " + "; ".join(words) + ".")
    for row, of in enumerate(words):
        svg.text(0, row * ROW + 16, of)
        for lane in range(machine.subgroup):
            svg.rect("mine" if lane < busy[row] else "faint", lane * CELL, row * ROW + 24, CELL - 2, CELL - 2)
    return svg


def _at_once(kernel: Kernel[Any], machine: Machine) -> int:
    """Return how many subgroups the multiprocessor holds, by the limits on workgroups and on invocations."""
    workgroups = min(machine.workgroups, machine.invocations // kernel.invocations)
    return workgroups * ceil_div(kernel.invocations, machine.subgroup)
