"""Output of `webmm bench`: the ladder at each size, the wall clock of a call, and the comparison of two runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from textwrap import fill
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from webmm.cases import op_of
from webmm.cases.base import Op, Size
from webmm.choose import suited
from webmm.choose.tuned import kernel_of
from webmm.dtypes import dtype_of
from webmm.engine.device import Device
from webmm.engine.profiling import Profile, profile
from webmm.engine.timing import duration
from webmm.errors import UnsupportedError, WebmmError
from webmm.kernels import STAGES, branch, label_of
from webmm.kernels.base import Kernel
from webmm.measure import references, roofline
from webmm.measure.bench import CPU_STAGE, REFERENCES, Bench, Progress, record_of, relative, time_product
from webmm.measure.records import Record
from webmm.problems.base import Problem
from webmm.report import LINE, Open, plain, progress_bar, show_profile, show_reasons
from webmm.report.choice import loads_of


@dataclass(frozen=True)
class Wanted:
    """The options of a bench; for those that are None or empty, defaults that suit the device are chosen."""

    op: Op[Any]
    dtype: str
    kernels: list[Any] | None = None
    sizes: list[Size] | None = None
    layout: str = "nn"
    clock: str = ""
    budget: float = 60.0
    reference: references.Reference | None = None  # None: NumPy
    trace: str | None = None  # trace file of a profiled call of each size's fastest kernel; empty: print it only


def run_bench(open_device: Open, wanted: Wanted) -> tuple[list[Record], roofline.Roofline]:
    """Run the wanted kernels (default: all stages that suit the dtype), with live progress; print a table per size.

    Returns the records and the device's roofline. Raises UnsupportedError if none of the kernels can run.
    """
    console, op = plain(), wanted.op
    dtype = dtype_of(wanted.dtype).name
    with open_device() as device:
        if wanted.sizes:  # refused before anything is measured
            _check_some_can_run(list(_expected(device, wanted, dtype, wanted.sizes)))
        ceiling = announce(device)
        sizes = wanted.sizes or op.default_sizes(ceiling, wanted.budget)
        kernels = compared(wanted, device, op.problem(sizes[0], dtype, wanted.layout))
        bench = Bench(device, kernels, sizes, dtype, wanted.budget, ceiling, op=op, layout=wanted.layout)
        results = measured(replace(bench, clock=wanted.clock, reference=wanted.reference))
        _check_some_can_run(results)
        found = None if wanted.trace is None else _profile_fastest(device, op, kernels, results)
        calls = _calls(device, op, results)
    for size in dict.fromkeys(record.size for record in results):
        table = ladder_table([record for record in results if record.size == size], op)
        plain(table).print(table)
        show_reasons([record for record in results if record.size == size])
        if words := calls.get(size):
            console.print(f"  {words}\n")
    if found:
        show_profile(found, wanted.trace)
    return results, ceiling


def compared(wanted: Wanted, device: Device, problem: Problem) -> list[Any]:
    """Return the kernels to measure, by default all stages that suit problems like `problem`."""
    stages = (stage for stage in wanted.op.stages if stage().unsuited(problem) is None)
    return wanted.kernels or [suited(stage, problem, device) for stage in stages]


def _expected(device: Device, wanted: Wanted, dtype: str, sizes: list[Size]) -> Iterator[Record]:
    """Yield a record for each kernel and size that says whether it can run."""
    problems = [wanted.op.problem(size, dtype, wanted.layout) for size in sizes]
    for kernel in compared(wanted, device, problems[0]):
        for problem in problems:
            reason = kernel.check(problem, device.capabilities)
            yield record_of(device, problem, kernel, "unsupported" if reason else "ok", reason)


def _check_some_can_run(records: list[Record]) -> None:
    """Raise UnsupportedError, with all reasons, if none of the kernels can run."""
    if all(r.status == "unsupported" for r in records if r.kernel not in REFERENCES):
        raise UnsupportedError("; ".join({f"{label_of(r)}: {r.reason}" for r in records if r.reason}))


def announce(device: Device) -> roofline.Roofline:
    """Measure the device's roofline and print it with the device's name; save the rates for the cost model."""
    ceiling = roofline.measure(device)
    roofline.probe_and_keep(device, ceiling)
    plain().print(f"{device.info}")
    plain().print(fill(peak(ceiling, device.info.kind == "cpu"), LINE))
    return ceiling


def peak(ceiling: roofline.Roofline, cpu: bool) -> str:
    """Return the rates of a roofline, and what they are."""
    words = (
        f"best rates measured, to which 'of peak' refers: {ceiling.gflops:,.0f} GFLOP/s f32 by a kernel of independent "
        f"FMAs, {ceiling.gbytes:,.1f} GB/s by a copy"
    )
    return words + "; on a CPU, NumPy may exceed them, since they are those of code that this driver compiles" * cpu


def measured(bench: Bench) -> list[Record]:
    """Return the records of a bench, with live progress."""
    with progress_bar() as bar:

        def show(progress: Progress) -> None:
            bar(f"{progress.label}, {progress.seconds_left:.0f} s left", progress.done, progress.total)

        return list(replace(bench, on_progress=show).run())


def problem_of(record: Record) -> Any:
    """Return the problem, with dense operands, that a record measured."""
    sizes = record.m, record.n, record.k, record.batch
    return op_of(record.op, record.variant).dense(sizes, record.dtype, record.layout)


def _calls(device: Device, op: Op[Any], results: list[Record]) -> dict[str, str]:
    """Return, for each size of an op that has an operator, a line with the wall clock of a public call."""
    timed = {r.size: problem_of(r) for r in results if op.operator and r.median_us and r.kernel not in REFERENCES}
    words = {}
    for size, problem in timed.items():
        with suppress(WebmmError):  # if memory is short, the ladder has reported it
            took, kernel = time_product(device, problem)
            rate = problem.flops / took.median_us / 1e3
            words[size] = (
                f"{op.operator}, wall clock of a call: {duration(took.median_us)}, {figures(rate)} GFLOP/s, by {kernel}"
            )
    return words


def _profile_fastest(device: Device, op: Op[Any], kernels: list[Any], results: list[Record]) -> Profile:
    """Profile one call of each size's fastest kernel, with upload of the operands and readback of the result."""
    with_time = [r for r in results if r.median_us and r.kernel not in REFERENCES]
    fastest = {r.size: r for r in sorted(with_time, key=lambda r: -(r.median_us or 0))}
    calls = []
    for r in fastest.values():
        kernel = next(k for k in kernels if (k.name, k.config) == (r.kernel, r.config))
        case = op.case(device, problem_of(r))
        calls.append((kernel, case.problem, {name: array.numpy() for name, array in case.inputs.items()}))
    with profile(device) as found:
        for kernel, problem, inputs in calls:
            arrays = {
                e.name: device.zeros((e.end,), e.dtype) if e.written else device.array(inputs[e.name])
                for e in problem.buffers()
            }
            device.run(kernel, problem, *arrays.values())
            next(arrays[e.name] for e in problem.buffers() if e.written).numpy()
    return found


def ladder_table(records: list[Record], op: Op[Any]) -> Table:
    """Return the records of one size as a table in the order of the ladder, branches indented, the fastest in bold.

    Each stage is compared with the first, and with the one that it follows: where a branch begins (└) the nearest above
    with less indentation, else the one before it on its branch. Columns in which nothing is known are left out.
    """
    order = [stage.name for stage in op.stages]
    place = {name: i for i, name in enumerate(order)}
    timed = sorted(
        (r for r in records if r.median_us), key=lambda r: (place.get(r.kernel, len(order)), r.median_us or math.inf)
    )
    best = {r.kernel: r for r in reversed(timed)}  # of each stage its fastest
    fastest = min(best.values(), key=lambda r: r.median_us or math.inf, default=None)
    reference = next((best[name] for name in REFERENCES if name in best), None)
    follows = {stage.name: stage.follows for stage in op.stages}
    layout = records[0].layout.replace("nn", "")
    title = " ".join(filter(None, (records[0].size, layout, records[0].dtype, records[0].variant)))
    heads = (
        "kernel",
        "median",
        "best",
        op.unit,
        f"× {order[0]}",
        "× before",
        f"× {_library(reference)}",
        "of peak",
        "loads/FMA",
        "error",
        "bound",
    )
    rows = [heads]
    for record in timed:
        where = "cpu" if record.kernel == CPU_STAGE else record.adapter.lower()
        label = f"{where} ({_library(record)})" if record.kernel in REFERENCES else label_of(record)
        row = (
            _branch(record) + label,
            duration(record.median_us),
            duration(record.best_us),
            figures(op.rate(record)),
            _times(relative(record, best.get(order[0]))),
            _times(relative(record, best.get(follows.get(record.kernel, "")))),
            _times(relative(record, reference)),
            "–" if record.peak_fraction is None else f"{record.peak_fraction:.0%}",
            _loads(record),
            f"{record.max_error:.1e}",
            f"{record.error_bound:.1e}",
        )
        rows.append(row)
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    columns = [column for column in zip(*rows, strict=True) if set(column[1:]) != {"–"}]
    for head, *_ in columns:
        table.add_column(head, justify="left" if head == "kernel" else "right", no_wrap=True)
    for record, cells in zip(timed, zip(*(column[1:] for column in columns), strict=True), strict=True):
        table.add_row(*cells, style="bold" if record is fastest else "")
    return table


def _library(reference: Record | None) -> str:
    """Return the name of the library that a reference is of."""
    return reference.kernel if reference and reference.kernel != CPU_STAGE else "NumPy"


def _branch(record: Record) -> str:
    return branch(record.kernel, record.op) if record.kernel in STAGES.get(record.op, ()) else ""


def _loads(record: Record) -> str:
    """Return the loads that a kernel issues per vec4 FMA, as text; "–" if they are not known."""
    kernel: Kernel[Any] | None = kernel_of(record)
    return (loads_of(kernel, problem_of(record)) if kernel else "") or "–"


def figures(rate: float) -> str:
    """Return a rate as text: three figures below 100, else one place, none from 1,000 on."""
    return f"{rate:#.3g}" if rate < 99.95 else f"{rate:,.{1 if rate < 1000 else 0}f}"


def _times(ratio: float) -> str:
    if math.isnan(ratio):
        return "–"
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2g}" if ratio < 10 else f"{ratio:.1f}"


# Comparison with an earlier run


def compare(old: Iterable[Record], new: Iterable[Record], show: Callable[[str], object]) -> None:
    """Show the speedup of each kernel of `new` over `old`, and whether it exceeds the spread of both.

    Records of different adapters, drivers and engines are compared, too, after a line that names the machines.
    """
    before = {_same(r): r for r in old if r.median_us}
    pairs = [(before[_same(r)], r) for r in new if r.median_us and r.kernel not in REFERENCES and _same(r) in before]
    if not pairs:
        show("the earlier records have none of these kernels and problems")
        return
    machines = {(r.adapter, r.driver, r.engine) for pair in pairs for r in pair}
    if len(machines) > 1:
        show(f"different machines: {' | '.join(', '.join(filter(None, each)) for each in sorted(machines))}")
    for was, now in pairs:
        ratio = relative(now, was)
        significant = abs((now.median_us or 0) - (was.median_us or 0)) > _spread(was) + _spread(now)
        flag = ("faster" if ratio > 1 else "SLOWER") if significant else "within the spread"
        times = f"{duration(was.median_us)} → {duration(now.median_us)}"
        show(f"  {now.size} {now.layout} {now.dtype} {label_of(now)}: {times}, {ratio:.2f} ×, {flag}")
    mean = math.exp(sum(math.log(relative(now, was)) for was, now in pairs) / len(pairs))
    show(f"speedup over the earlier run: {mean:.3f} ×, geometric mean of {len(pairs)}")


def _same(r: Record) -> tuple[Any, ...]:
    """Return the key by which records of two runs are compared."""
    return r.op, r.variant, r.kernel, tuple(sorted(r.config.items())), r.dtype, r.layout, r.size


def _spread(record: Record) -> float:
    """Return the spread of a record's median in µs; 2 % of the median if the record, of an older version, lacks it."""
    return record.spread_us if record.spread_us is not None else 0.02 * (record.median_us or 0)
