"""Output of the command line: adapters and features, settings, profiles, and products of two files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path
from textwrap import indent, wrap
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from webmm import config
from webmm.calls.product import multiply
from webmm.choose import choose, run
from webmm.dtypes import FLOATS
from webmm.engine.adapters import AdapterInfo, adapters, engine_of, installed, reaches_more
from webmm.engine.device import Array, Device
from webmm.engine.profiling import Profile, profile
from webmm.engine.wgpu import WGPU
from webmm.errors import ProblemError
from webmm.files import load_matrix, save_matrix
from webmm.kernels import KERNELS, label_of
from webmm.kernels.base import Kernel
from webmm.measure.records import Record
from webmm.problems.gemm import Gemm, gemm
from webmm.text import printable

Open = Callable[[], Device]  # opens the device that a command uses
TABLE_WIDTH = 124  # characters; narrower terminals wrap a table's lines
WIDEST = 400  # characters of a table
LINE = 100  # characters of a line of prose
INDENT = 6 * " "
SHOWN_LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroups-per-dimension",
)


def plain(table: Table | None = None) -> Console:
    """Return a console without markup: error messages may contain brackets that rich would interpret.

    It is wide enough for `table`, so that no figure is cut off.
    """
    console = Console(width=WIDEST, markup=False, highlight=False)
    needed = console.measure(table).maximum if table else 0
    console.width = max(Console().width, TABLE_WIDTH, needed)
    return console


Show = Callable[[str, int, int], object]  # shows a text, and how many of how many steps are done


@contextmanager
def progress_bar() -> Iterator[Show]:
    """Show a progress bar on stderr, until the context ends."""
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda text, done, total: bar.update(task, completed=done, total=total, description=text)


def system(open_device: Open) -> dict[str, Any]:
    """Return every engine's adapters, and the chosen one's limits, features and usable stages, as JSON types."""
    with open_device() as device:
        chosen, offered, engine = device.info, device.capabilities, device.engine.name
        adapter_features = device.wgpu_device.adapter.features
        hint = engine_hint(device)
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


def engine_hint(device: Device) -> str:
    """Return how to reach matrix units through Dawn if this engine cannot use them; empty if it can or Dawn cannot."""
    adapter = device.wgpu_device.adapter
    if device.capabilities.matrix_shapes or device.engine is not WGPU or WGPU.matrix_units not in adapter.features:
        return ""
    how = "pip install 'webmm[dawn]'" if len(installed()) == 1 else "--engine dawn"
    if how == "--engine dawn" and not reaches_more(device.info, adapter):
        return ""
    return f"this adapter has matrix units; Dawn reaches them: {how}"


def describe(open_device: Open) -> str:
    """Return the contents of `system()` as text."""
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
            lines.append(f"   none accepted: {engine_of(engine).rejects}")
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
    """Return every setting as JSON types: its name, value, source, environment variable and description.

    "ignored" is the project file that has the setting without effect, "" if there is none.
    """
    ignored = config.ignored()
    return [
        {
            "name": field.name,
            "value": str(value) if isinstance(value, Path) else value,
            "source": source or "default",
            "variable": config.variable(field.name),
            "ignored": ignored.get(field.name, ""),
            "doc": field.metadata["doc"],
        }
        for field, (value, source) in zip(fields(config.Settings), config.effective().values(), strict=True)
    ]


def describe_settings() -> str:
    """Return the settings as text, with a line for each that has no effect: in a project file, or a WEBMM_ variable."""
    rows = [(row["name"], json.dumps(row["value"], ensure_ascii=False), row["source"]) for row in settings()]
    name, value, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = [f"{row[0]:<{name}}  {row[1]:<{value}}  {row[2]}" for row in rows]
    lines += [f"{name} is set in {file}, but is ignored there" for name, file in config.ignored().items()]
    lines += [f"{name} is set in the environment, but is not a setting" for name in config.unknown_variables()]
    return "\n".join(lines)


def show_profile(found: Profile, trace: str | None) -> None:
    """Print a profile as a table; write its trace to the file `trace` unless that is empty or None."""
    plain().print(found.table())
    if trace:
        found.save(trace)


FAILED = ("compile", "runtime", "incorrect")  # the statuses of a kernel that does not do what it should


def first_line(record: Record) -> str:
    """Return the first line of the reason why a record has no time."""
    return (record.reason or "").partition("\n")[0]


def show_reasons(records: Sequence[Record], label: Callable[[Record], str] = label_of) -> None:
    """Print why records have no time, each reason once; so is what a compiler says about several records."""
    console, quoted = plain(), set[str]()
    reasons: dict[tuple[str, str], list[str]] = {}
    for record in records:
        if record.status != "ok":
            reasons.setdefault((record.status, record.reason or ""), []).append(label(record))
    for (status, reason), labels in reasons.items():
        first, _, more = reason.partition("\n")
        words = f"  {', '.join(labels)}: {status}: {first}"
        if more and more not in quoted:
            words += f"\n{indent(more, '  ')}"
        quoted.add(more)
        console.print(printable(words), soft_wrap=True)


def right(records: Sequence[Record]) -> bool:
    """Return whether no kernel failed; one that is too slow, or that this device cannot run, has not."""
    return not any(record.status in FAILED for record in records)


def multiply_files(
    a_path: Path,
    b_path: Path,
    output: Path,
    kernel: Kernel[Any] | None,
    open_device: Open,
    trace: str | None = None,
) -> str:
    """Write A·B of two .npy files to `output` and return a line that describes it.

    The matrices may have any size that `matmul()` accepts; `kernel`, if given, computes every piece. Unless `trace` is
    None, print a profile, and write its trace to that file unless the name is empty. Raises ProblemError for files that
    hold no such matrices and for shapes or dtypes that do not match, ConfigError if `output` cannot be written.
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
            show_profile(found, trace)
        (m, n), by = product.shape, ", ".join(used)
        return f"{output}: {m}×{n} {product.dtype}, by {by} on {device.info.name}"
