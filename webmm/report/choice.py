"""What the command line shows of choices: which kernel and why, what a search found, whether shaders are right."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as ProgressBar

from webmm import roofline, tuner
from webmm.calls.parts import Part, limits, parts
from webmm.cases import OPS
from webmm.cases.base import Op, Size
from webmm.choose import adapted, candidates, choose, refused, tuned
from webmm.choose.gemm import attainable
from webmm.dtypes import F64
from webmm.engine.device import Device
from webmm.errors import ConfigError, ProblemError, WebmmError
from webmm.kernels import label_of
from webmm.kernels.base import Kernel
from webmm.kernels.product import ProductKernel
from webmm.problems.base import Problem
from webmm.problems.gemm import Gemm
from webmm.records import Record
from webmm.report import Open, first_line, plain
from webmm.selftest import run as run_selftest

MOST_DISPATCHES = 10_000  # of a product that is explained: to cut it takes a second


def title(problem: Problem) -> str:
    """Return what is computed in words, such as "64x64x64 nn float32"; other ops than products of floats are named."""
    op = "" if problem.op == "gemm" else f"{problem.op}:{problem.variant}".rstrip(":")
    size = str(problem) if problem.op == "gemm" else "×".join(map(str, problem.sizes[:3]))
    return " ".join(filter(None, (op, size, problem.layout, problem.dtype.name)))


def what(record: Record) -> str:
    """Return the same of a record, with its kernel and speed."""
    op = "" if record.op == "gemm" else f"{record.op}:{record.variant}".rstrip(":")
    words = " ".join(filter(None, (op, record.size, record.layout, record.dtype)))
    if record.op not in OPS:
        return f"{words}: {label_of(record)}, of an op that is not registered"
    known = type(OPS[record.op])(record.variant)
    return f"{words}: {label_of(record)}, {known.rate(record):,.1f} {known.unit}"


def explain(op: Op[Any], size: Size, layout: str, dtype: str, open_device: Open) -> str:
    """Return the choice for a problem, its runners-up, and the stages that cannot compute it with their reasons."""
    problem = op.problem(size, dtype, layout)
    with open_device() as device:
        lines = [f"{title(problem)} on {device.info}"]
        if problem.dtype == F64 and device.info.kind == "cpu":
            lines.append("float64 is faster by NumPy where the device is the CPU: compute it there")
        cut = _cut(problem, device) if isinstance(problem, Gemm) else ()
        if len(cut) > 1:
            problem = cut[0].problem
            lines.append(f"too large for one dispatch: cut into {len(cut):,}, the first of them {title(problem)}")
        ranked = candidates(problem, device, device.settings.tune)
        for place, (kernel, why) in enumerate(ranked.items()):
            reason = refused(kernel, problem, device)
            workgroups = sum(math.prod(step.dispatch(problem)) for step in kernel.dispatches)
            told = f"cannot: {reason}" if reason else f"{why}, {workgroups:,} workgroups{_loads(kernel, problem)}"
            lines.append(f" {place + 1}. {kernel}: {told}")
        lines.append(f"→  {choose(problem, device)}")
        for stage in op.stages:
            reason = stage.on(device.capabilities).check(problem, device.capabilities)
            if reason and stage not in map(type, ranked):
                lines.append(f"    {stage.name} cannot: {reason}")
    return "\n".join(lines)


def _loads(kernel: Kernel[Any], problem: Problem) -> str:
    """Return how many loads a kernel issues for its arithmetic, where that is counted."""
    traffic = kernel.traffic(problem) if isinstance(kernel, ProductKernel) else None
    return f", {traffic.loads_per_fma:.2g} loads per FMA of four" if traffic else ""


def _cut(problem: Gemm, device: Device) -> tuple[Part, ...]:
    """Return the dispatches of a product; raises ProblemError where they are too many to be listed."""
    most = limits(device, problem.dtype)
    dispatches = max(problem.flops / most.flops, problem.bytes / most.binding)
    if dispatches > MOST_DISPATCHES:
        raise ProblemError(f"{problem} takes at least {dispatches:,.0f} dispatches; only a smaller one is explained")
    return parts(attainable(problem, device), most)


def tune(
    open_device: Open, op: Op[Any], sizes: list[Size] | None, layout: str, dtype: str, budget: float
) -> list[Record]:
    """Tune each size, those of a bench by default, within its share of `budget` seconds.

    Prints what was found, corrects the model of time by it, and returns all outcomes.
    """
    console, status = plain(), Console(stderr=True)
    outcomes: list[Record] = []
    with open_device() as device, tuner.Worker.like(device) as worker:
        console.print(f"{device.info}")
        ceiling = roofline.measure(device)
        roofline.probe_and_keep(device, ceiling)
        sizes = sizes or op.default_sizes(ceiling, budget)
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
        with ProgressBar(*columns, console=status, transient=True) as bar:
            task = bar.add_task("", total=None)

            def show(step: tuner.Step) -> None:
                text = f"{step.label}, {step.seconds_left:.0f} s left"
                bar.update(task, completed=step.done, total=step.total, description=text)

            for size in sizes:
                problem = op.problem(size, dtype, layout)
                if op.variant != problem.variant:
                    raise ConfigError(f"{op.variant} is no matter of tuning: what is fastest for {op.name} is, with it")
                default = choose(problem, device)
                share = budget / len(sizes)
                found = tuner.tune(device, problem, share, worker=worker, first=[default], on_step=show)
                outcomes += found
                console.print(_verdict(found, default))
        adapted.learn(device, outcomes)
    return outcomes


def _verdict(found: list[Record], default: Kernel[Any]) -> str:
    best = tuned.fastest(found)
    if not best:
        return "nothing ran: " + "; ".join(sorted({first_line(record) for record in found}))
    winner = best[0]
    before = min(r.median_us or math.inf for r in found if r.kernel == default.name and r.config == default.config)
    failed = sum(record.status != "ok" for record in found)
    ratio = before / (winner.median_us or 1)
    gain = f"{ratio:.2f} × the default" if math.isfinite(ratio) else "the default did not run"
    tried = f"{len({(r.kernel, str(r.config)) for r in found})} candidates, {failed} failed"
    return f"{what(winner)}, {gain} ({tried})"


def selftest(open_device: Open) -> Iterator[str]:
    """Yield a line per shader that is tried, and one in the end; raises WebmmError where any computes wrongly."""
    with open_device() as device:
        yield f"{device.info}"
        wrong, tried = 0, 0
        for problem, kernel, complaint in run_selftest(device):
            wrong, tried = wrong + bool(complaint), tried + 1
            yield f"  {title(problem)}: {kernel}: {complaint or 'right'}"
        if wrong:
            raise WebmmError(f"{wrong} of {tried} shaders are wrong on {device.info}; they are not used there")
        yield f"{tried} shaders are right"
