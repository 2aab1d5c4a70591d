"""Tables of ablations: what each changed tunable of a kernel does to its speed, alone and with another one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from webmm.errors import ConfigError
from webmm.learn import numbers
from webmm.learn.directives import directive
from webmm.learn.kernels import stage_of
from webmm.measure.records import Record

SHORT = {"llvmpipe": "lavapipe", "SwiftShader": "SwiftShader", "wgpu-py": "wgpu", "dawn": "Dawn"}

Change = tuple[tuple[str, Any], ...]  # the tunables that differ from the kernel's own, with their values


@directive
def changed(stage: str, name: str, size: str = numbers.SIZE, **tunables: Any) -> str:
    """Return the recorded rate of a stage with changed tunables, divided by that with its defaults."""
    stage_of(stage, **tunables)  # refuses tunables that it does not have
    default = stage_of(stage).config
    rates = [numbers.best(stage, name, size, **{**default, **change}) for change in (tunables, {})]
    if not all(rates):
        raise ConfigError(f"{name} has no record of {stage} at {size} with its defaults, or with {tunables}")
    ours, theirs = (r.gflops or math.nan for r in rates if r)
    return numbers.ratio(ours / theirs)


@directive
def single_changes(*names: str) -> str:
    """Return a table of the relative speeds of a kernel with one tunable changed, from the records of `--ablate`.

    A name is FILE, or FILE@SIDE for one of its products.
    """
    columns = [_speeds(name) for name in names]
    rows = dict.fromkeys(change for speeds in columns for change in speeds if len(change) == 1)
    body = ([_words(change), *(_times(speeds.get(change)) for speeds in columns)] for change in rows)
    return _table(["changed", *(device_of(name) for name in names)], body)


@directive
def paired_changes(name: str) -> str:
    """Return a table of the relative speeds with one or the other of two tunables changed, their product, and both."""
    speeds = _speeds(name)
    body = []
    for change in (change for change in speeds if len(change) == 2):
        alone = [speeds.get((each,)) for each in change]
        product = math.prod(alone) if all(alone) else None  # type: ignore[arg-type]
        body.append([_words(change), *(_times(speed) for speed in (*alone, product, speeds[change]))])
    return _table(["changed", "the first alone", "the second alone", "multiplied", "both, measured"], body)


def device_of(name: str) -> str:
    """Return the driver that a file's records name first, without its details, and the side of the product if given."""
    first = _rows(name)[0]
    driver = SHORT.get(first.adapter.split()[0], first.adapter)
    return f"{driver}, {SHORT[first.engine.split()[0]]}, {first.m}³" if "@" in name else driver


def _rows(name: str) -> list[Record]:
    """Return the timed records of a file, FILE, or of one of its square products, FILE@SIDE."""
    file, _, side = name.partition("@")
    rows = [r for r in numbers.records(file) if r.best_us and side in ("", str(r.m))]
    if not rows:
        raise ConfigError(f"there are no timed records {name}")
    return rows


def _speeds(name: str) -> dict[Change, float]:
    """Return the speed of each change, relative to the kernel without any, by the shortest times; the fastest first."""
    rows = _rows(name)
    own = {tunable: _most(r.config[tunable] for r in rows) for tunable in rows[0].config}
    times: dict[Change, float] = {}
    for r in rows:
        change = tuple((tunable, value) for tunable, value in r.config.items() if value != own[tunable])
        times[change] = min(times.get(change, math.inf), _us(r))
    if () not in times:
        raise ConfigError(f"{name} has no record of the kernel without a change")
    return {change: times[()] / us for change, us in sorted(times.items(), key=lambda item: item[1])}


def _us(record: Record) -> float:
    return record.best_us or math.inf


def _most(values: Iterable[Any]) -> Any:
    return Counter(values).most_common(1)[0][0]


def _words(change: Change) -> str:
    return ", ".join(f"`{tunable}={value}`" for tunable, value in change)


def _times(speed: float | None) -> str:
    return f"× {numbers.ratio(speed)}" if speed else "–"


def _table(head: list[str], body: Iterable[list[str]]) -> str:
    rows = [head, ["---", *["--:"] * (len(head) - 1)], *body]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
