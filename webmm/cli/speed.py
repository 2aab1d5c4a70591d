"""Commands for performance: measure kernels, tune them, and manage the tuned records."""

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
from webmm.errors import ConfigError
from webmm.problems.gemm import PRECISIONS
from webmm.wgsl.epilogues import ACTIVATIONS

if TYPE_CHECKING:
    from webmm.report import Open


@click.command()
@PLUGIN
@OP
@click.option(
    "--sizes",
    help="Sizes M×N×K, such as 256,1024,333x257x129; 64x64x64@8 is a batch of 8. Default: sizes that suit the device.",
)
@click.option("--kernels", help="Such as naive,pipelined:bm=128:bn=128. Default: the whole ladder.")
@OP_DTYPE
@click.option("--precision", type=click.Choice(PRECISIONS), help="Float32 gemm only: see docs/precision.md.")
@LAYOUT
@click.option(
    "--bias", type=click.Choice(("row", "column")), help="gemm only: add a vector to C, one element per row or column."
)
@click.option("--activation", type=click.Choice(tuple(ACTIVATIONS)), help="gemm only: function applied to C.")
@click.option("--out-dtype", metavar="DTYPE", help="gemm only: dtype of C. Default: that of A and B.")
@click.option("--clock", type=click.Choice(("timestamp", "wall")), help="Default: timestamps if the device has them.")
@click.option("--against", type=click.Path(path_type=Path), help="Compare with an earlier run's records (JSON file).")
@click.option(
    "--reference",
    type=click.Choice(("numpy", "torch", "onnxruntime")),
    default="numpy",
    show_default=True,
    help="The library to compare with, on the device that it sees: torch and onnxruntime for plain gemm.",
)
@click.option("--ablate", metavar="KERNEL", help="Vary the tunables of this kernel, one at a time, then in pairs.")
@on_device()
@BUDGET
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write records as JSON.")
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), help="Write records as CSV.")
@click.option("--plot", "plot_file", type=click.Path(path_type=Path), help="Draw the ladder and roofline (.png, .svg).")
@PROFILE
@click.pass_context
def bench(
    ctx: click.Context,
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
    reference: str,
    ablate: str | None,
    open_device: Open,
    budget: float,
    json_file: Path | None,
    csv_file: Path | None,
    plot_file: Path | None,
    profile: str | None,
) -> None:
    """Check and time every kernel of an op.

    The kernels of an op form a ladder of stages, from naive to fastest; each result is checked before it is timed. The
    table has them in this order, branches indented; "× before" is the speedup over the stage that a stage follows.
    --profile shows how long upload, dispatches and readback take in one call of each size's fastest kernel. --against
    shows each kernel's speedup over an earlier run, and whether it exceeds the spread of both runs. --ablate shows
    what each tunable of a kernel contributes to its speed on this device.

    Exits with code 1 if a kernel does not compile or its result is wrong; the others are measured nevertheless.
    """
    from webmm import files, report
    from webmm.cases import op_of
    from webmm.measure import records, references
    from webmm.report import ablation, ladder

    outputs = [path for path in (json_file, csv_file, plot_file) if path]
    check_outputs([*outputs, *trace_file(profile)], plot_file)
    known = op_of(op)
    if plot_file and not known.plotted:
        raise ConfigError(f"--plot does not draw op {known.name}; --json and --csv write its records")
    dtype = dtype or known.dtypes[0].name
    known = known.finished(dtype, precision=precision, bias=bias, activation=activation, out_dtype=out_dtype)
    wanted = [known.parse(text) for text in sizes.split(",")] if sizes else None
    chosen = parse_kernels(kernels, known.name) if kernels else None
    old = records.from_json(files.read_text(against)) if against else []
    if reference != "numpy" and (ablate or known.name != "gemm" or bias or activation or out_dtype):
        raise ConfigError(f"--reference {reference} computes plain gemm: no other op, no epilogue, no --ablate")
    library = references.find(reference)
    if library:
        library.check(dtype)
    asked = ladder.Wanted(known, dtype, chosen, wanted, layout, clock or "", budget, library, profile)
    if ablate:
        named = parse_kernels(ablate, known.name)
        if len(named) > 1 or plot_file or kernels or profile is not None:
            raise ConfigError("--ablate takes one kernel: leave --kernels, --plot and --profile out")
        results = ablation.ablate(open_device, named[0], asked)
    else:
        results, ceiling = ladder.run_bench(open_device, asked)
    if against:
        ladder.compare(old, results, click.echo)
    if json_file:
        records.save(json_file, records.to_json(results, **records.provenance()))
    if csv_file:
        records.save(csv_file, records.to_csv(results))
    if plot_file:
        from webmm.report import plot

        plot.save(plot_file, results, ceiling)
    ctx.exit(0 if report.right(results) else 1)


@click.command()
@PLUGIN
@OP
@click.option("--sizes", help="Sizes M×N×K, such as 256,333x257x129. Default: sizes that suit the device.")
@LAYOUT
@OP_DTYPE
@on_device()
@BUDGET
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write the records of all candidates as JSON."
)
@click.pass_context
def tune(
    ctx: click.Context,
    op: str,
    sizes: str | None,
    layout: str,
    dtype: str | None,
    open_device: Open,
    budget: float,
    json_file: Path | None,
) -> None:
    """Find the fastest kernel for each size, and save it.

    matmul() and the other calls use the saved kernels from then on. A candidate that fails is left out; if all
    candidates of a kernel fail, the reason is shown, and the command exits with code 1.
    """
    from webmm.cases import op_of
    from webmm.choose import tuned
    from webmm.measure import records
    from webmm.report import choice

    check_outputs([json_file] if json_file else [], None)
    wanted = parse_sizes(sizes, op) if sizes else None
    outcomes, right = choice.tune(open_device, op_of(op), wanted, layout, dtype or op_of(op).dtypes[0].name, budget)
    if json_file:
        records.save(json_file, records.to_json(outcomes, **records.provenance()))
    click.echo(f"{tuned.path()}: {tuned.add(outcomes)} tuned records added")
    ctx.exit(0 if right else 1)


@click.group()
def cache() -> None:
    """Show, clear, export or import your tuned records."""


@cache.command()
def show() -> None:
    """List your tuned records."""
    from webmm.choose import tuned
    from webmm.report import choice

    records = tuned.load()
    click.echo(f"{tuned.path()}: {len(records)} tuned records")
    for record in records:
        click.echo(f"  {record.adapter}: {choice.summary(record)}")


@cache.command()
def clear() -> None:
    """Delete your tuned records, self-test results and probed rates."""
    from webmm.choose import tuned

    click.echo(f"{tuned.path()}: {tuned.clear()} tuned records deleted")


@cache.command(name="export")
@click.argument("file", type=click.Path(path_type=Path))
def export_records(file: Path) -> None:
    """Write your tuned records to FILE."""
    from webmm.choose import tuned
    from webmm.measure import records

    found = tuned.load()
    records.save(file, records.to_json(found))
    click.echo(f"{file}: {len(found)} tuned records")


@cache.command(name="import")
@click.argument("file", type=click.Path(path_type=Path))
def import_records(file: Path) -> None:
    """Add the fastest kernel of each size in FILE.

    FILE holds records (JSON) from `webmm bench`, the web page or `webmm cache export`.
    """
    from webmm import files
    from webmm.choose import tuned
    from webmm.measure import records

    def complain(words: str) -> None:
        click.echo(f"{file}: {words}", err=True)

    found = records.from_json(files.read_text(file), complain, tuned.refusal)
    click.echo(f"{tuned.path()}: {tuned.add(found)} tuned records added")
