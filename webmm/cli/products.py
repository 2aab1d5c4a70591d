"""Commands about products: of the user's own matrices, and which kernel computes one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from webmm.cli.options import LAYOUT, OP, OP_DTYPE, PLUGIN, PROFILE, check_outputs, on_device, parse_kernels, trace_file
from webmm.dtypes import MATRIX_DTYPES, names
from webmm.errors import ConfigError

if TYPE_CHECKING:
    from webmm.report import Open

MAX_WORKERS = 4096


@click.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Where to write the product.")
@click.option("--force", is_flag=True, help="Overwrite an existing output.")
@click.option("--kernel", "kernel_text", help="Such as blocked or pipelined:bm=128. Default: chosen by webmm.")
@click.option("--workers", type=click.IntRange(0, 1024), default=0, help="Processes, each with an adapter of its own.")
@click.option("--memory", metavar="BYTES", help="What matrices take on a device of a worker, such as 8GB.")
@PROFILE
@on_device()
def run(
    a: Path,
    b: Path,
    output: Path,
    force: bool,
    kernel_text: str | None,
    workers: int,
    memory: str | None,
    profile: str | None,
    open_device: Open,
) -> None:
    """Multiply the matrices in A and B, .npy files or .zarr folders.

    With --workers, or where one of them is Zarr, it goes tile by tile, and on from where it was stopped.
    """
    from webmm import report

    if workers or ".zarr" in (a.suffix, b.suffix, output.suffix):
        from webmm.report import tiled

        if kernel_text or profile is not None:
            raise ConfigError("--kernel and --profile are for .npy files, without --workers")
        named = click.get_current_context().params
        if workers and named["engine"]:
            raise ConfigError("--engine is for this process; for --workers set WEBMM_ENGINE")
        adapters = [named["adapter"]] * workers if named["adapter"] else None
        click.echo(tiled.multiply(a, b, output, workers, adapters, memory, force, open_device), err=True)
        return
    if memory:
        raise ConfigError("--memory is for --workers and .zarr; the setting of a device is Device.memory")
    if output.exists() and not force:
        raise ConfigError(f"{output} exists; --force overwrites it")
    check_outputs([output, *trace_file(profile)], None)
    kernel = parse_kernels(kernel_text)[0] if kernel_text else None
    click.echo(report.multiply_files(a, b, output, kernel, open_device, profile), err=True)


@click.command()
@click.argument("size", nargs=-1, required=True, metavar="M N K")
@PLUGIN
@OP
@LAYOUT
@OP_DTYPE
@on_device()
def explain(size: tuple[str, ...], op: str, layout: str, dtype: str | None, open_device: Open) -> None:
    """Say which kernel computes an M×N×K product here, which come next, and why others cannot.

    With --op, a problem of another op, whose size is written as in a bench: 512 8192 or 512x8192 rows and columns.
    """
    from webmm.cases import op_of
    from webmm.report import choice

    known = op_of(op)
    click.echo(choice.explain(known, known.parse("x".join(size)), layout, dtype or known.dtypes[0].name, open_device))


@click.command()
@click.argument("size", nargs=3, metavar="M N K")
@click.option(
    "--devices", type=click.IntRange(1, MAX_WORKERS), default=1, show_default=True, help="How many, all alike."
)
@click.option("--rate", default="49.8T", show_default=True, help="Operations a device does per second.")
@click.option("--memory", default="2GiB", show_default=True, help="What a device keeps of the matrices: 80GB.")
@click.option("--bandwidth", default="25GB", show_default=True, help="Bytes per second, to and from each device.")
@click.option("--host", metavar="BANDWIDTH", help="Bytes per second of all devices together. Default: no limit.")
@click.option("--dtype", default="float32", show_default=True, help=f"Storage type: {names(MATRIX_DTYPES)}.")
@click.option("--json", "as_json", is_flag=True, help="Every share, as JSON.")
def plan(size: tuple[str, str, str], devices: int, dtype: str, as_json: bool, **amounts: str | None) -> None:
    """Say how an M×N×K product would be divided among devices that need not be here, and what that would take."""
    from webmm.report import scaling

    click.echo(scaling.describe(size, devices, dtype, amounts, as_json))
