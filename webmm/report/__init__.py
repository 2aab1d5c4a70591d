"""What the command line shows: the system, the ladder as tables, and the product of two files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import fields
from pathlib import Path
from textwrap import wrap
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table

from webmm import config, roofline
from webmm.bench import CPU_STAGE, Bench, Progress, relative, time_product
from webmm.calls.gemm import multiply
from webmm.cases.base import Op, Size
from webmm.choose import choose, run
from webmm.dtypes import FLOATS, dtype_of
from webmm.engine.adapters import AdapterInfo, adapters, engine_of, installed, reaches_more
from webmm.engine.array import Array
from webmm.engine.device import Device
from webmm.engine.profiling import Profile, profile
from webmm.engine.wgpu import WGPU
from webmm.errors import ProblemError, UnsupportedError, WebmmError
from webmm.files import load_matrix, save_matrix
from webmm.kernels import KERNELS, label_of
from webmm.kernels.base import Kernel
from webmm.problems.gemm import Gemm, gemm
from webmm.records import Record

Open = Callable[[], Device]  # opens the device that a command is to use
TABLE_WIDTH = 124  # columns that a ladder table takes; narrower terminals wrap it
INDENT = 6 * " "
SHOWN_LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroups-per-dimension",
)


def plain() -> Console:
    """Return a console for tables, in which text is what it says: reasons may hold what rich takes for markup."""
    return Console(width=max(Console().width, TABLE_WIDTH), markup=False, highlight=False)


def system(open_device: Open) -> dict[str, Any]:
    """Return every engine's adapters, and of the chosen one limits, features and which stages run, as JSON types."""
    with open_device() as device:
        chosen, offered, engine = device.info, device.capabilities, device.engine.name
        adapter_features = device.wgpu_device.adapter.features
        hint = elsewhere(device)
    stages = [
        {
            "kernel": stage.name,
            "dtype": dtype.name,
            "config": stage.on(offered).config,
            "ineligible": stage.on(offered).check(gemm(1024, 1024, 1024, dtype=dtype), offered),
        }
        for stage in KERNELS.values()
        for dtype in FLOATS
    ]
    return {
        "engine": engine,
        "engines": {each.name: each.version() for each in installed()},
        "adapters": [
            {"engine": each.name, **info.to_json(), "features": sorted(adapter.features)}
            for each in installed()
            for info, adapter in adapters(each)
        ],
        "chosen": chosen.index,
        "limits": dict(offered.limits),
        "features": sorted(offered.features),
        "adapter_features": sorted(adapter_features),
        "matrix_units": [str(shape) for shape in sorted(offered.matrix_shapes)],
        "no_matrix_units": offered.no_matrix,
        "elsewhere": hint,
        "stages": stages,
    }


def elsewhere(device: Device) -> str:
    """Say what another engine could do that this one cannot, and how to use it; empty where there is nothing."""
    adapter = device.wgpu_device.adapter
    if device.capabilities.matrix_shapes or device.engine is not WGPU or WGPU.matrix_units not in adapter.features:
        return ""
    how = "pip install 'webmm[dawn]'" if len(installed()) == 1 else "--engine dawn"
    if how == "--engine dawn" and not reaches_more(device.info, adapter):
        return ""
    return f"this adapter has matrix units; Dawn reaches them: {how}"


def describe(open_device: Open) -> str:
    """Return the same in words."""
    data = system(open_device)
    lines = []
    for engine, version in data["engines"].items():
        lines.append(f"Adapters of {version}")
        listed = [adapter for adapter in data["adapters"] if adapter["engine"] == engine]
        for adapter in listed:
            info = AdapterInfo(**{field.name: adapter[field.name] for field in fields(AdapterInfo)})
            arrow = "→" if (engine, info.index) == (data["engine"], data["chosen"]) else " "
            lines.append(f" {arrow} {info.index}: {info}")
            lines += wrap(", ".join(adapter["features"]), TABLE_WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
        if not listed:
            lines.append(f"   none is accepted: {engine_of(engine).refuses}")
    lines.append("Limits")
    lines += [f"   {name:<40} {data['limits'][name]:>15,}" for name in SHOWN_LIMITS]
    lines.append(f"Features used: {', '.join(data['features']) or 'none'}")
    lines.append(f"Matrix units: {'; '.join(data['matrix_units']) or data['no_matrix_units'] or 'none'}")
    if data["elsewhere"]:
        lines.append(f"   {data['elsewhere']}")
    lines.append("Stages")
    for stage in data["stages"]:
        verdict = f"no: {stage['ineligible']}" if stage["ineligible"] else "yes"
        lines.append(f"   {stage['kernel']:<14} {stage['dtype']:<8} {verdict}")
    return "\n".join(lines)


def settings() -> list[dict[str, Any]]:
    """Return every setting: its name, value, where that comes from, variable, and what it is for, as JSON types."""
    return [
        {
            "name": field.name,
            "value": str(value) if isinstance(value, Path) else value,
            "source": source or "default",
            "variable": config.variable(field.name),
            "doc": field.metadata["doc"],
        }
        for field, (value, source) in zip(fields(config.Settings), config.effective().values(), strict=True)
    ]


def describe_settings() -> str:
    """Return the same in words, and which variables of the environment are no settings though they look like it."""
    rows = [(row["name"], json.dumps(row["value"], ensure_ascii=False), row["source"]) for row in settings()]
    name, value, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = [f"{row[0]:<{name}}  {row[1]:<{value}}  {row[2]}" for row in rows]
    lines += [f"{stranger} is in the environment, and no setting" for stranger in config.strangers()]
    return "\n".join(lines)


def run_bench(
    open_device: Open,
    op: Op[Any],
    kernels: list[Any] | None,
    sizes: list[Size] | None,
    dtype: str,
    budget: float,
    trace: str | None = None,
) -> tuple[list[Record], roofline.Roofline]:
    """Run `kernels`, else all stages that are made for `dtype`, with live progress; print a table per size.

    With `trace`, print where the time of a call of each size's fastest goes, and write it to the file of that name
    unless it is empty. Returns the records and the device's ceilings.
    """
    dtype = dtype_of(dtype).name
    console, status = plain(), Console(stderr=True)
    with open_device() as device:
        console.print(f"{device.info}")
        ceiling = roofline.measure(device)
        console.print(f"measured peak: {ceiling.gflops:,.0f} GFLOP/s f32, {ceiling.gbytes:,.1f} GB/s")
        sizes = sizes or op.default_sizes(ceiling, budget)
        any_problem = op.problem(sizes[0], dtype)
        made_for_it = (stage for stage in op.stages if stage().unsuited(any_problem) is None)
        kernels = kernels or [stage.on(device.capabilities) for stage in made_for_it]
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
        with ProgressBar(*columns, console=status, transient=True) as bar:
            task = bar.add_task("", total=None)

            def show(progress: Progress) -> None:
                text = f"{progress.label}, {progress.seconds_left:.0f} s left"
                bar.update(task, completed=progress.done, total=progress.total, description=text)

            results = list(Bench(device, kernels, sizes, dtype, budget, ceiling, show, op).run())
        if all(r.status == "unsupported" for r in results if r.kernel != CPU_STAGE):
            raise UnsupportedError("; ".join({f"{label_of(r)}: {r.reason}" for r in results if r.reason}))
        found = None if trace is None else _profile_fastest(device, op, kernels, results)
        calls = _calls(device, op, results)
    for size in dict.fromkeys(record.size for record in results):
        console.print(ladder_table([record for record in results if record.size == size], op))
        for record in results:
            if record.size == size and record.status != "ok":
                console.print(f"  {label_of(record)}: {record.status}: {first_line(record)}")
        if words := calls.get(size):
            console.print(f"  {words}\n")
    if found:
        _show_profile(found, trace)
    return results, ceiling


def _calls(device: Device, op: Op[Any], results: list[Record]) -> dict[str, str]:
    """Return for each size what a user's call takes by the wall clock, in words; of products of floats only."""
    measured = {r.size: r for r in results if r.median_us and r.kernel != CPU_STAGE and op.name == "gemm"}
    words = {}
    for size, r in measured.items():
        problem = op.problem((r.m, r.n, r.k), r.dtype)
        with suppress(WebmmError):  # the ladder says what there is no room for
            timed, kernel = time_product(device, problem)
            rate = problem.flops / timed.median_us / 1e3
            words[size] = f"A @ B, as a user calls it: {duration(timed.median_us)}, {rate:,.1f} {op.unit}, by {kernel}"
    return words


def _profile_fastest(device: Device, op: Op[Any], kernels: list[Any], results: list[Record]) -> Profile:
    """Profile a call of each size's fastest kernel: operands go up, the result comes back."""
    measured = [r for r in results if r.median_us and r.kernel != CPU_STAGE]
    fastest = {r.size: r for r in sorted(measured, key=lambda r: -(r.median_us or 0))}
    calls = []
    for r in fastest.values():
        kernel = next(k for k in kernels if (k.name, k.config) == (r.kernel, r.config))
        case = op.case(device, op.problem((r.m, r.n, r.k), r.dtype))
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


def _show_profile(found: Profile, trace: str | None) -> None:
    plain().print(found.table())
    if trace:
        found.save(trace)


def first_line(record: Record) -> str:
    """Return why a record has no time."""
    return (record.reason or "").splitlines()[0]


def ladder_table(records: list[Record], op: Op[Any]) -> Table:
    """Return the records of one size as a table, fastest first."""
    first = op.stages[0].name
    base = next((r for r in records if r.kernel == first), None)
    numpy = next((r for r in records if r.kernel == CPU_STAGE), None)
    title = " ".join(filter(None, (records[0].size, records[0].dtype, records[0].variant)))
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("kernel", no_wrap=True)
    for name in ("median", "best", op.unit, f"× {first}", "× NumPy", "of peak", "error", "bound"):
        table.add_column(name, justify="right", no_wrap=True)
    measured = [r for r in records if r.median_us is not None]
    for record in sorted(measured, key=lambda r: r.median_us or math.inf):
        table.add_row(
            label_of(record) if record.kernel != CPU_STAGE else "cpu (NumPy)",
            duration(record.median_us),
            duration(record.best_us),
            f"{op.rate(record):,.{1 if op.rate(record) < 1000 else 0}f}",
            _times(relative(record, base)),
            _times(relative(record, numpy)),
            "–" if record.peak_fraction is None else f"{record.peak_fraction:.0%}",
            f"{record.max_error:.1e}",
            f"{record.error_bound:.1e}",
        )
    return table


def duration(us: float | None) -> str:
    """Return µs in a unit that fits."""
    if us is None:
        return "–"
    for factor, unit in ((1e6, "s"), (1e3, "ms")):
        if us >= factor:
            return f"{us / factor:.3g} {unit}" if us < 1000 * factor else f"{us / factor:,.0f} {unit}"
    return f"{us:.3g} µs"


def _times(ratio: float) -> str:
    if math.isnan(ratio):
        return "–"
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2g}" if ratio < 10 else f"{ratio:.1f}"


def multiply_files(
    a_path: Path,
    b_path: Path,
    output: Path,
    kernel: Kernel[Any] | None,
    open_device: Open,
    trace: str | None = None,
) -> str:
    """Write A·B of two .npy files to `output` and return a line about it.

    They may be of any size that `matmul()` takes; `kernel`, where it is given, computes each part. With `trace`, print
    where the time went, and write it to the file of that name unless it is empty. Raises ProblemError for files that
    are no such matrices or do not fit together, ConfigError where `output` cannot be written.
    """
    a, b = load_matrix(a_path), load_matrix(b_path)
    if a.dtype != b.dtype:
        raise ProblemError(f"{a_path} is {a.dtype}, {b_path} is {b.dtype}; cast one, e.g. x.astype('{a.dtype}')")
    if a.shape[1] != b.shape[0]:
        raise ProblemError(f"{a_path} has {a.shape[1]} columns, {b_path} has {b.shape[0]} rows; they must be equal")
    used: dict[str, None] = {}
    with open_device() as device:

        def compute(problem: Gemm, device: Device, *arrays: Array) -> None:
            chosen = kernel or choose(problem, device)
            used[str(chosen)] = None
            if kernel:
                device.run(kernel, problem, *arrays)
            else:
                run(problem, device, *arrays)

        with nullcontext() if trace is None else profile(device) as found:
            product = multiply(a, b, device, compute)
        save_matrix(output, product)
        if found:
            _show_profile(found, trace)
        (m, n), by = product.shape, ", ".join(used)
        return f"{output}: {m}×{n} {product.dtype}, by {by} on {device.info.name}"
