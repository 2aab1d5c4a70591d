"""Figures of chapters: what kernels count of their work, what records say, and what the model of cost predicts."""

from __future__ import annotations

import dataclasses
import functools
import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from webmm.cases import op_of
from webmm.choose.tables import shipped
from webmm.errors import ConfigError
from webmm.kernels import STAGES
from webmm.kernels.base import Kernel
from webmm.kernels.traffic import Traffic, loads_per_fma
from webmm.learn.directives import directive
from webmm.learn.kernels import problem_for, stage_of
from webmm.measure.records import Record, from_json
from webmm.problems.base import Problem

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"  # of a checkout
SIZE = "4096"
LADDERS = ("h200-f32", "lavapipe-f32")  # records of ladders
SHOWN = ("512", "1024", "4096")  # the sizes of a table of gains


@functools.cache
def records(name: str) -> tuple[Record, ...]:
    """Return the records of a file of `bench/results`, named without `.json`."""
    for path in (RESULTS / f"{name}.json", RESULTS / f"{name}.json.gz"):
        if path.is_file():
            text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            return tuple(from_json(text.decode()))
    raise ConfigError(f"there are no records {name} in bench/results")


def best(
    stage: str, name: str, size: str, dtype: str = "float32", variant: str = "", layout: str = "nn", **tunables: Any
) -> Record | None:
    """Return the fastest record of OP/STAGE (or OP/cublas …) for a size.

    All settings that were measured compete, or, of stages that have these tunables, those with their values.
    """
    op, _, kernel = stage.partition("/")
    m, n, k = _sides(op, size)
    fitting = [
        r
        for r in records(name)
        if (r.op, r.kernel, r.dtype, r.variant, r.batch) == (op, kernel, dtype, variant, 1)
        and (r.m, r.n, r.k) == (m, n, k)
        and r.layout in ("", layout)
        and all(r.config.get(tunable, value) == value for tunable, value in tunables.items())
        and r.gflops
    ]
    return max(fitting, key=lambda r: r.gflops or 0.0, default=None)


def _sides(op: str, size: str) -> tuple[int, int, int]:
    sides = [*op_of(op).parse(size), 1, 1]
    return sides[0], sides[1], sides[2]


@directive
def speed(stage: str, name: str, size: str = SIZE, **where: Any) -> str:
    """Return the recorded rate of a stage in GFLOP/s (10⁹ operations/s)."""
    return rate(_rate(stage, name, size, **where))


@directive
def gain(stage: str, name: str, size: str = SIZE, over: str = "", **where: Any) -> str:
    """Return the recorded rate of a stage, divided by that of the one that it follows or of another one."""
    op, _, kernel = stage.partition("/")
    other = f"{op}/{over or STAGES[op][kernel].follows}"
    return ratio(_rate(stage, name, size, **where) / _rate(other, name, size, **where))


def _rate(stage: str, name: str, size: str, **where: Any) -> float:
    found = best(stage, name, size, **where)
    if found is None or found.gflops is None:
        raise ConfigError(f"{name} has no record of {stage} at {size}")
    return found.gflops


def rate(gflops: float) -> str:
    """Return a rate in words: three figures at least, and no fraction from 100 on."""
    return f"{gflops:,.0f}" if gflops >= 100 else f"{gflops:.3g}"


def ratio(value: float) -> str:
    """Return a ratio in words."""
    return f"{value:,.0f}" if value >= 20 else f"{value:.1f}" if value >= 3 else f"{value:.2f}"


@directive
def tunable(stage: str, name: str, **tunables: Any) -> str:
    """Return the default of a tunable."""
    return str(stage_of(stage, **tunables).config[name])


@directive
def traffic(stage: str, field: str, size: str = SIZE, dtype: str = "float32", **tunables: Any) -> str:
    """Return what a kernel counts of its work: a field of `Traffic`, or of COUNTED."""
    op = str(tunables.pop("op", "")) or stage
    kernel, problem = stage_of(stage, **tunables), problem_for(op, size, dtype)
    count = kernel.traffic(problem)
    if count is None:
        raise ConfigError(f"{kernel} does not count its work")
    value = COUNTED[field](count, problem) if field in COUNTED else getattr(count, field, None)
    if value is None:
        raise ConfigError(f"{field!r} is not counted; choose from {', '.join((*COUNTED, *Traffic._fields))}")
    return f"{value:,}" if isinstance(value, int) else f"{float(value):,.4g}"


def _loaded(count: Traffic, problem: Problem) -> float:
    return count.workgroups * count.steps * count.loaded


COUNTED = {
    "loads_per_fma": lambda count, problem: loads_per_fma(count) / 4,  # of scalar FMAs
    "flop_per_byte": lambda count, problem: problem.flops / _loaded(count, problem),
    "bytes_per_flop": lambda count, problem: _loaded(count, problem) / problem.flops,
    "loaded_bytes": _loaded,
}


@directive
def gains(stage: str, sizes: str = ",".join(SHOWN), over: str = "", **where: Any) -> str:
    """Return a table of rates, and gains over the stage that it follows: by the model, on the H200, on lavapipe."""
    op, _, kernel = stage.partition("/")
    before = over or STAGES[op][kernel].follows
    head = f"| M=N=K | model, H200 | H200, GFLOP/s | × {before} | lavapipe, GFLOP/s | × {before} |"
    lines = [head, "|--:|--:|--:|--:|--:|--:|"]
    for size in sizes.split(","):
        pairs = [(best(stage, name, size, **where), best(f"{op}/{before}", name, size, **where)) for name in LADDERS]
        lines.append(f"| {size} | {predicted(*pairs[0])} | {' | '.join(_cells(pairs))} |")
    return "\n".join(lines)


def _cells(pairs: Iterable[tuple[Record | None, Record | None]]) -> Iterable[str]:
    for ours, theirs in pairs:
        yield rate(ours.gflops) if ours and ours.gflops else "–"
        yield ratio(ours.gflops / theirs.gflops) if ours and theirs and ours.gflops and theirs.gflops else "–"


def predicted(ours: Record | None, theirs: Record | None, table: str = "nvidia-h200") -> str:
    """Return the gain that a device's rates alone, without fitted times, let expect for the settings of two records.

    A dash if one is missing, or its stage does not count its work.
    """
    if ours is None or theirs is None:
        return "–"
    rates = dataclasses.replace(shipped()[table], families={})
    problem = op_of(ours.op).problem((ours.m, ours.n, ours.k), ours.dtype)
    kernels = [_kernel(each) for each in (theirs, ours)]
    if any(kernel.traffic(problem) is None for kernel in kernels):
        return "–"
    before, after = rates.times(kernels, problem)
    return f"× {ratio(before / after)}"


def _kernel(record: Record) -> Kernel[Any]:
    """Return the kernel of a record, whose settings may name more than its tunables, such as the type of C."""
    cls = STAGES[record.op][record.kernel]
    tunables = {field.name for field in dataclasses.fields(cls)}
    kernel: Kernel[Any] = cls(**{name: value for name, value in record.config.items() if name in tunables})
    return kernel


@directive
def expected(stage: str, name: str, size: str = SIZE, over: str = "", **where: Any) -> str:
    """Return the gain that the model lets expect of the settings of a record over those of another stage's."""
    op, _, kernel = stage.partition("/")
    other = f"{op}/{over or STAGES[op][kernel].follows}"
    return predicted(best(stage, name, size, **where), best(other, name, size, **where)).removeprefix("× ")


@directive
def bandwidth(stage: str, name: str, size: str = SIZE, **where: Any) -> str:
    """Return the bytes of the operands and the result of a recorded product per second, each counted once, in GB/s."""
    found = best(stage, name, size, **where)
    if found is None or not found.median_us:
        raise ConfigError(f"{name} has no record of {stage} at {size}")
    return rate(problem_for(found.op, size, found.dtype).bytes / found.median_us / 1e3)
