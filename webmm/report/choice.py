"""Output of `webmm explain`, `webmm tune` and `webmm selftest`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from textwrap import fill, indent
from typing import Any

from webmm.cases import OPS
from webmm.cases.base import Op, Size
from webmm.choose import COLUMNS, adapted, candidates, choose, refused, tuned
from webmm.choose.limits import dispatch_limits
from webmm.cut.pieces import Piece
from webmm.dtypes import BYTES
from webmm.engine.device import Device
from webmm.errors import ConfigError, ProblemError, ShaderError
from webmm.kernels import REGISTERED, label_of
from webmm.kernels.base import Kernel
from webmm.kernels.traffic import loads_per_fma
from webmm.measure import roofline, tuner
from webmm.measure.records import Record
from webmm.measure.selftest import run as run_selftest
from webmm.problems import DEFAULT_OP
from webmm.problems.base import Problem
from webmm.problems.product import Product
from webmm.report import LINE, Open, first_line, plain, progress_bar, right, show_reasons
from webmm.text import printable

MAX_DISPATCHES = 10_000  # for explain: cutting a product into this many pieces takes about a second


def title(problem: Problem) -> str:
    """Return a short description of a problem, such as "64x64x64 nn float32"; other ops than the default are named."""
    op = "" if problem.op == DEFAULT_OP else f"{problem.op}:{problem.variant}".rstrip(":")
    size = str(problem) if problem.op == DEFAULT_OP else "×".join(map(str, problem.sizes[:3]))
    return " ".join(filter(None, (op, size, problem.layout, problem.dtype.name)))


def summary(record: Record) -> str:
    """Return a short description of a record: its problem, kernel and speed."""
    op = "" if record.op == DEFAULT_OP else f"{record.op}:{record.variant}".rstrip(":")
    words = " ".join(filter(None, (op, record.size, record.layout, record.dtype)))
    if record.op not in OPS:
        return f"{words}: {label_of(record)} (op not registered)"
    known = type(OPS[record.op])(record.variant)
    return f"{words}: {label_of(record)}, {known.rate(record):,.1f} {known.unit}"


def explain(op: Op[Any], size: Size, layout: str, dtype: str, open_device: Open) -> tuple[str, bool]:
    """Return the candidates for a problem in order of preference, the choice, and why other stages cannot run.

    Also return whether no stage from outside the package failed its self-test.
    """
    right = True
    problem = op.problem(size, dtype, layout)
    with open_device() as device:
        lines = [_wrapped(f"{title(problem)} on {device.info}")]
        if problem.dtype.wide and device.info.kind == "cpu":
            lines.append(f"this device is a CPU, on which NumPy is faster for {problem.dtype.name}")
        cut = _pieces(problem, device)
        if len(cut) > 1:
            problem = cut[0].problem
            words = f"too large for one dispatch: cut into {len(cut):,} pieces, the first is {title(problem)}"
            lines.append(_wrapped(words))
        ranked = candidates(problem, device, device.settings.tune)
        if any(why.startswith("predicted ") for why in ranked.values()):
            lines.append(_wrapped(f"predicted by rates {adapted.origin(device)}"))
        for place, (kernel, why) in enumerate(ranked.items()):
            reason = refused(kernel, problem, device)
            workgroups = sum(math.prod(step.dispatch(problem)) for step in kernel.dispatches)
            verdict = (
                f"cannot run: {reason}"
                if reason
                else f"{why}, {workgroups:,} workgroup{'s' * (workgroups > 1)}{_loads(kernel, problem)}"
            )
            lines.append(_wrapped(verdict, f" {place + 1}. {kernel}: "))
            failed = reason and type(kernel) in REGISTERED and not kernel.check(problem, device.capabilities)
            right = right and not failed
        lines.append(f"→  {choose(problem, device)}")
        for stage in op.stages:
            reason = stage.on(device.capabilities).check(problem, device.capabilities)
            if reason and stage not in map(type, ranked):
                lines.append(_wrapped(f"{stage.name} cannot run: {reason}", "    "))
    return printable("\n".join(lines)), right


def _wrapped(line: str, head: str = "") -> str:
    """Return text whose first line is cut to LINE characters; its head, such as a kernel to copy, stays whole."""
    first, newline, quoted = line.partition("\n")
    return (
        fill(
            first, LINE, initial_indent=head, subsequent_indent=" " * 4, break_long_words=False, break_on_hyphens=False
        )
        + newline
        + quoted
    )


def _loads(kernel: Kernel[Any], problem: Problem) -> str:
    """Return the loads that a kernel issues per vec4 FMA, as text; empty if `loads_of()` is."""
    found = loads_of(kernel, problem)
    return f", {found} loads per vec4 FMA" if found else ""


def loads_of(kernel: Kernel[Any], problem: Problem) -> str:
    """Return the loads that a kernel issues per vec4 FMA, as text; "" if it multiplies otherwise, or is not counted."""
    floats = isinstance(problem, Product) and problem.dtype not in BYTES and not kernel.matrix_shape
    traffic = kernel.traffic(problem) if floats else None
    return f"{loads_per_fma(traffic):.2g}" if traffic else ""


def _pieces(problem: Problem, device: Device) -> list[Piece]:
    """Return the pieces that the dispatches of a problem are cut into, [] for an op of which only arrays are cut.

    Raises ProblemError if there are more than MAX_DISPATCHES.
    """
    column = COLUMNS.get(problem.op)
    if column is None or not hasattr(column, "pieces"):
        return []
    most = dispatch_limits(device, problem.dtype)
    dispatches = max(problem.flops / most.flops, problem.bytes / most.binding)
    if dispatches > MAX_DISPATCHES:
        raise ProblemError(
            f"{problem} takes at least {dispatches:,.0f} dispatches; explain handles at most {MAX_DISPATCHES:,}"
        )
    cut: list[Piece] = column.pieces(problem, device, most)
    return cut


def tune(
    open_device: Open, op: Op[Any], sizes: list[Size] | None, layout: str, dtype: str, budget: float
) -> tuple[list[Record], bool]:
    """Tune each size, each with an equal share of `budget` seconds; default sizes are those of `webmm bench`.

    Prints the winners, and the reasons of kernels whose candidates all failed; corrects the cost model with the
    measurements. Returns the records of all candidates, and whether no kernel failed.
    """
    console = plain()
    outcomes: list[Record] = []
    broken: list[Record] = []
    with open_device() as device, tuner.TunerProcess.like(device) as worker:
        for size in sizes or ():  # refused before anything is measured
            choose(op.problem(size, dtype, layout), device)
        console.print(f"{device.info}")
        if not sizes or device.info.kind != "cpu":
            ceiling = roofline.measure(device)
            roofline.probe_and_keep(device, ceiling)
            sizes = sizes or op.default_sizes(ceiling, budget)
        with progress_bar() as bar:

            def show(step: tuner.SearchProgress) -> None:
                bar(f"{step.label}, {step.seconds_left:.0f} s left", step.done, step.total)

            for size in sizes:
                problem = op.problem(size, dtype, layout)
                if op.variant != problem.variant:
                    raise ConfigError(f"{op.name}:{op.variant} uses the tuned records of {op.name}: tune {op.name}")
                default = choose(problem, device)
                share = budget / len(sizes)
                found = tuner.tune(device, problem, share, worker=worker, first=[default], on_step=show)
                outcomes += found
                console.print(_verdict(found, default))
                failures = list(_without_candidates(found))
                show_reasons(failures)
                broken += failures
        adapted.correct(device, outcomes)
    return outcomes, right(broken)


def _without_candidates(found: list[Record]) -> Iterator[Record]:
    """Yield the first failure of each kernel whose candidates all failed."""
    for name in dict.fromkeys(record.kernel for record in found):
        tried = [record for record in found if record.kernel == name]
        failed = [record for record in tried if not right([record])]
        if failed and all(record.status != "ok" for record in tried):
            words = f"all {len(tried)} candidates failed: " if len(tried) > 1 else ""
            yield dataclasses.replace(failed[0], reason=f"{words}{failed[0].reason}")


def _verdict(found: list[Record], default: Kernel[Any]) -> str:
    best = tuned.fastest(found)
    if not best:
        return "no candidate ran: " + "; ".join(sorted({first_line(record) for record in found}))
    winner = best[0]
    ran = (r.median_us for r in found if r.kernel == default.name and r.config == default.config and r.median_us)
    *_, before = [math.inf, *ran]  # in the last round, in which the winner was timed, too
    failed = sum(record.status != "ok" for record in found)
    ratio = before / (winner.median_us or 1)
    gain = f"{ratio:.2f} × the default" if math.isfinite(ratio) else "the default did not run"
    tried = f"{len({(r.kernel, str(r.config)) for r in found})} candidates, {failed} failed"
    return f"{summary(winner)}, {gain} ({tried})"


def selftest(open_device: Open) -> Iterator[str]:
    """Yield a line per tested shader and a final summary; raises ShaderError if a shader is refused or wrong.

    More lines quote the compiler or the wrong element, once for each kernel and op.
    """
    quoted = set[tuple[str, str]]()
    with open_device() as device:
        yield f"{device.info}"
        wrong, tried = 0, 0
        for problem, kernel, complaint in run_selftest(device):
            wrong, tried = wrong + bool(complaint), tried + 1
            first, _, more = complaint.partition("\n")
            yield f"  {title(problem)}: {kernel}: {first or 'right'}"
            if more and (kernel.name, problem.op) not in quoted:
                quoted.add((kernel.name, problem.op))
                yield printable(indent(more, "  "))
        if wrong:
            raise ShaderError(f"{wrong} of {tried} shaders are wrong on {device.info}; webmm does not use them there")
        yield f"{tried} shaders are right"
