"""Commands about speed: measuring it, searching for more, and what is kept of both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from webmm.cli.options import (
    BUDGET,
    LAYOUT,
    OP,
    OP_DTYPE,
    PLUGIN,
    PROFILE,
    check_outputs,
    on_device,
    parse_kernels,
    parse_sizes,
    trace_file,
)
from webmm.epilogues import ACTIVATIONS
from webmm.errors import ConfigError
from webmm.problems.gemm import PRECISIONS

if TYPE_CHECKING:
    from webmm.report import Open


@click.command()
@PLUGIN
@OP
@click.option(
    "--sizes", help="Such as 256,1024,333x257x129 (M×N×K), 64x64x64@8 (a batch). Default: chosen to the device's speed."
)
@click.option("--kernels", help="Such as naive,pipelined:bm=128:bn=128. Default: the whole ladder.")
@OP_DTYPE
@click.option("--precision", type=click.Choice(PRECISIONS), help="Of products of float32: see docs/precision.md.")
@LAYOUT
@click.option(
    "--bias", type=click.Choice(("row", "column")), help="Of products of floats: a vector that is added to C."
)
@click.option("--activation", type=click.Choice(tuple(ACTIVATIONS)), help="Likewise: what becomes of each element.")
@click.option("--out-dtype", metavar="DTYPE", help="Likewise: the type of C. Default: that of A and B.")
@click.option("--clock", type=click.Choice(("timestamp", "wall")), help="Default: what serves on the device.")
@click.option("--against", type=click.Path(path_type=Path), help="Compare with the records in this JSON file.")
@click.option("--ablate", metavar="KERNEL", help="Change the tunables of this one, one at a time, then in pairs.")
@on_device()
@BUDGET
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write records as JSON.")
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), help="Write records as CSV.")
@click.option("--plot", "plot_file", type=click.Path(path_type=Path), help="Draw the ladder and roofline (.png, .svg).")
@PROFILE
def bench(
    op: str,
    sizes: str | None,
    kernels: str | None,
    dtype: str | None,
    precision: str | None,
    layout: str,
    bias: str | None,
    activation: str | None,
    out_dtype: str | None,
    clock: str | None,
    against: Path | None,
    ablate: str | None,
    open_device: Open,
    budget: float,
    json_file: Path | None,
    csv_file: Path | None,
    plot_file: Path | None,
    profile: str | None,
) -> None:
    """Run the ladder: every stage, checked and timed, fastest first.

    --profile shows, for one call of each size's fastest stage, how long upload, dispatches and readback take.
    --against says of each kernel how many times as fast it was in an earlier run, and what is beyond the spread of
    both. --ablate says what each idea of a stage is worth on this device.
    """
    from webmm import files, records
    from webmm.cases import op_of
    from webmm.cases.gemm import Finish
    from webmm.dtypes import dtype_of
    from webmm.report import ablation, ladder

    outputs = [path for path in (json_file, csv_file, plot_file) if path]
    check_outputs([*outputs, *trace_file(profile)], plot_file)
    if plot_file and op_of(op).name != "gemm":
        raise ConfigError(f"plots show products; --json and --csv write the records of {op}")
    finish = {"--precision": precision, "--bias": bias, "--activation": activation, "--out-dtype": out_dtype}
    if op != "gemm" and (given := next((name for name, value in finish.items() if value), None)):
        raise ConfigError(f"{given} is of products of floats; {op} knows none")
    dtype = dtype or op_of(op).dtypes[0].name
    if op == "gemm":
        other = dtype_of(out_dtype).name if out_dtype and dtype_of(out_dtype) != dtype_of(dtype) else ""
        op = f"gemm:{Finish(precision or PRECISIONS[0], bias or '', activation or '', other)}".rstrip(":")
    wanted = parse_sizes(sizes, op) if sizes else None
    chosen = parse_kernels(kernels, op_of(op).name) if kernels else None
    old = records.from_json(files.read_text(against)) if against else []
    asked = ladder.Wanted(op_of(op), dtype, chosen, wanted, layout, clock or "", budget, profile)
    if ablate:
        named = parse_kernels(ablate, op_of(op).name)
        if len(named) > 1 or plot_file or kernels or profile is not None:
            raise ConfigError("--ablate takes one kernel and changes it: leave --kernels, --plot and --profile out")
        results = ablation.ablate(open_device, named[0], asked)
    else:
        results, ceiling = ladder.run_bench(open_device, asked)
    if against:
        ladder.compare(old, results, click.echo)
    if json_file:
        records.save(json_file, records.to_json(results))
    if csv_file:
        records.save(csv_file, records.to_csv(results))
    if plot_file:
        from webmm import plot

        plot.save(plot_file, results, ceiling)


@click.command()
@PLUGIN
@OP
@click.option("--sizes", help="Such as 256,333x257x129 (M×N×K). Default: chosen to the device's speed.")
@LAYOUT
@OP_DTYPE
@on_device()
@BUDGET
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write every outcome as JSON.")
def tune(
    op: str,
    sizes: str | None,
    layout: str,
    dtype: str | None,
    open_device: Open,
    budget: float,
    json_file: Path | None,
) -> None:
    """Search for the fastest kernel of each size and remember it for matmul() and the other calls."""
    from webmm import records
    from webmm.cases import op_of
    from webmm.choose import tuned
    from webmm.report import choice

    check_outputs([json_file] if json_file else [], None)
    wanted = parse_sizes(sizes, op) if sizes else None
    outcomes = choice.tune(open_device, op_of(op), wanted, layout, dtype or op_of(op).dtypes[0].name, budget)
    if json_file:
        records.save(json_file, records.to_json(outcomes))
    click.echo(f"{tuned.path()}: {tuned.add(outcomes)} tuned records taken")


@click.group()
def cache() -> None:
    """Show, clear, export or import what is known to be fast here."""


@cache.command()
def show() -> None:
    """List the tuned records of this user."""
    from webmm.choose import tuned
    from webmm.report import choice

    records = tuned.load()
    click.echo(f"{tuned.path()}: {len(records)} tuned records")
    for record in records:
        click.echo(f"  {record.adapter}: {choice.what(record)}")


@cache.command()
def clear() -> None:
    """Forget the tuned records of this user."""
    from webmm.choose import tuned

    click.echo(f"{tuned.path()}: {tuned.clear()} tuned records forgotten")


@cache.command(name="export")
@click.argument("file", type=click.Path(path_type=Path))
def export_records(file: Path) -> None:
    """Write the tuned records to FILE."""
    from webmm import records
    from webmm.choose import tuned

    found = tuned.load()
    records.save(file, records.to_json(found))
    click.echo(f"{file}: {len(found)} tuned records")


@cache.command(name="import")
@click.argument("file", type=click.Path(path_type=Path))
def import_records(file: Path) -> None:
    """Take the fastest kernel of each size from FILE: a bench's, the page's, or an exported one."""
    from webmm import files, records
    from webmm.choose import tuned

    found = records.from_json(files.read_text(file), lambda complaint: click.echo(f"{file}: {complaint}", err=True))
    click.echo(f"{tuned.path()}: {tuned.add(found)} tuned records taken")
