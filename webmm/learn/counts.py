"""A table of what a stage does for one multiply-add, beside the stage that it follows: what its chapter explains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webmm.errors import ConfigError
from webmm.kernels import STAGES
from webmm.kernels.traffic import Traffic
from webmm.learn.directives import directive
from webmm.learn.kernels import problem_for, stage_of
from webmm.learn.numbers import SIZE

ROWS: dict[str, Callable[[Traffic], float]] = {
    "workgroups": lambda t: t.workgroups,
    "invocations per workgroup": lambda t: t.invocations,
    "loads from storage per FMA": lambda t: (t.vector_loads + t.scalar_loads + t.texels) / t.fmas,
    "loads from workgroup memory per FMA": lambda t: t.workgroup_loads / t.fmas,
    "bytes from storage or its caches per FMA": lambda t: t.loaded / (t.invocations * t.fmas),
    "FMAs between barriers": lambda t: t.fmas / t.barriers if t.barriers else 0,
    "bytes of workgroup memory": lambda t: t.workgroup_bytes,
}


@directive
def counts(stage: str, size: str = SIZE, over: str = "", **tunables: Any) -> str:
    """Return a table of counts of a stage and of the one that it follows, or others (`over`), without rows of zeros."""
    op, _, kernel = stage.partition("/")
    others = over.split(",") if over else [STAGES[op][kernel].follows]
    found = {name: _traffic(f"{op}/{name}", size) for name in others if name}
    found[kernel] = _traffic(stage, size, **tunables)
    lines = [f"| M=N=K = {size} | {' | '.join(found)} |", f"|---|{'--:|' * len(found)}"]
    for words, count in ROWS.items():
        values = [count(t) for t in found.values()]
        if any(values):
            lines.append(f"| {words} | {' | '.join(map(_number, values))} |")
    return "\n".join(lines)


def _traffic(stage: str, size: str, **tunables: Any) -> Traffic:
    op = stage.partition("/")[0]
    counted = stage_of(stage, **tunables).traffic(problem_for(op, size))
    if counted is None:
        raise ConfigError(f"{stage} does not count its work")
    return counted


def _number(value: float) -> str:
    """Return a count in words; nothing is a dash."""
    if not value:
        return "–"
    return f"{value:,.0f}" if value == round(value) else f"{value:.3g}"
