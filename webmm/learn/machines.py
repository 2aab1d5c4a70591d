"""Figures that need the hardware of a device, as its table of rates describes it."""

from __future__ import annotations

import dataclasses

from webmm.choose.model import Model
from webmm.choose.tables import shipped
from webmm.errors import ConfigError
from webmm.kernels import STAGES
from webmm.learn.directives import directive
from webmm.learn.kernels import problem_for
from webmm.learn.numbers import SIZE, best


def _model(table: str) -> Model:
    """Return a table in `webmm/tuned/models`; raises ConfigError if there is none of that name."""
    if table not in shipped():
        raise ConfigError(f"there is no table {table!r}; choose from {', '.join(shipped())}")
    return shipped()[table]


@directive
def machine(table: str, field: str) -> str:
    """Return a field of a device's `Machine` or of its `Rates`: `multiprocessors`, `clock` (cycles/µs), `gbytes` …"""
    model = _model(table)
    fields = (dataclasses.asdict(model.rates) if model.rates else {}) | dataclasses.asdict(model.machine)
    if field not in fields:
        raise ConfigError(f"{table} has no {field!r}; choose from {', '.join(fields)}")
    return f"{fields[field]:,.0f}"


@directive
def clocks(stage: str, name: str, size: str = SIZE, table: str = "nvidia-h200") -> str:
    """Return how many cycles a step of an invocation's loop takes by the fastest record of a stage.

    As many workgroups run at once as the hardware holds by their number and by their invocations.
    """
    op, _, kernel = stage.partition("/")
    found, hardware = best(stage, name, size), _model(table).machine
    if found is None or not found.median_us:
        raise ConfigError(f"{name} has no record of {stage} at {size}")
    count = STAGES[op][kernel](**found.config).traffic(problem_for(op, size))
    if count is None:
        raise ConfigError(f"{stage} does not count its work")
    at_once = hardware.multiprocessors * min(hardware.workgroups, hardware.invocations // count.invocations)
    turns = count.workgroups * count.steps / min(at_once, count.workgroups)
    return f"{found.median_us * hardware.clock / turns:,.0f}"
