"""Commands for matrix products: multiply files, explain a choice of kernel, plan for many devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from webmm.cli.options import (
    LAYOUT,
    OP,
    OP_DTYPE,
    PLUGIN,
    PROFILE,
    argument,
    check_outputs,
    on_device,
    parse_kernels,
    trace_file,
)
from webmm.dtypes import MATRIX_DTYPES, names
from webmm.errors import ConfigError
from webmm.problems import DEFAULT_OP

if TYPE_CHECKING:
    from webmm.report import Open

MAX_WORKERS = 4096


@click.command()
@click.argument("operands", nargs=-1, required=True, metavar="A [B] ...", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="File or Zarr folder for the result."
)
@PLUGIN
@OP
@click.option("--expression", metavar="TEXT", help='Of the elements of up to 4 files, such as "exp(x) * y + 1".')
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Argument of the op: scale_a=0.1.")
@click.option("--axis", type=click.IntRange(-2, 1), default=-1, show_default=True, help="Axis of an op of A.")
@click.option("--force", is_flag=True, help="Overwrite an existing output.")
@click.option("--kernel", "kernel_text", help="Such as blocked or pipelined:bm=128. Default: chosen by webmm.")
@click.option("--workers", type=click.IntRange(0, 1024), default=0, help="Worker processes, each with its own adapter.")
@click.option("--memory", metavar="BYTES", help="Device memory for matrices, per worker, such as 8GB.")
@PROFILE
@on_device()
def run(
    operands: tuple[Path, ...],
    output: Path,
    op: str,
    expression: str | None,
    settings: tuple[str, ...],
    axis: int,
    force: bool,
    kernel_text: str | None,
    workers: int,
    memory: str | None,
    profile: str | None,
    open_device: Open,
) -> None:
    """Multiply the matrices in the files A and B, or compute an op (--op) or an expression of files.

    Operands and output are .npy files or .zarr folders. With --op, --expression or --workers, or if one of them is
    Zarr, the result is computed piece by piece; running the command again resumes an interrupted run. This needs the
    extra webmm[dask]. Ops are named as in `webmm bench`, reduce:max, or by their variant, softmax; reductions keep the
    axis, with length 1. --op quantized takes the arguments of webmm.qmatmul() by --set. In an expression, the files are
    x, y, z and w; they broadcast.
    """
    from webmm import files, report

    plain = op == DEFAULT_OP and expression is None
    if plain and len(operands) != 2:
        raise ConfigError("a product takes two files, A and B")
    if not plain or workers or ".zarr" in (path.suffix for path in (*operands, output)):
        from webmm.report import file_call

        if kernel_text or profile is not None:
            raise ConfigError("--kernel and --profile are for products of .npy files without --workers")
        if expression is not None and (op != DEFAULT_OP or settings):
            raise ConfigError("--expression is for elements alone: leave out --op and --set")
        chosen = click.get_current_context().params
        if workers and chosen["engine"]:
            raise ConfigError("--engine does not reach --workers: set WEBMM_ENGINE instead")
        adapters = [chosen["adapter"]] * workers if chosen["adapter"] else None
        named = [argument(each) for each in settings]
        if len(dict(named)) < len(named):
            raise ConfigError("--set names an argument twice")
        arguments: dict[str, int | float | str] = dict(named) if expression is None else {"expression": expression}
        op = op if expression is None else "expression"
        line = file_call.compute(op, axis, arguments, operands, output, workers, adapters, memory, force, open_device)
        click.echo(line, err=True)
        return
    if memory:
        raise ConfigError(
            "--memory is for --workers, .zarr, --op and --expression; in Python, Device.memory sets a device's limit"
        )
    if settings:
        raise ConfigError("--set gives the arguments of an --op; a product of .npy files has none")
    a, b = operands
    files.check_output(output, force=force, operands=(a, b))
    check_outputs(trace_file(profile), None)
    kernel = parse_kernels(kernel_text)[0] if kernel_text else None
    click.echo(report.multiply_files(a, b, output, kernel, open_device, profile), err=True)


@click.command()
@click.argument("size", nargs=-1, required=True, metavar="M N K|STAGE")
@PLUGIN
@OP
@LAYOUT
@OP_DTYPE
@on_device()
@click.pass_context
def explain(
    ctx: click.Context, size: tuple[str, ...], op: str, layout: str, dtype: str | None, open_device: Open
) -> None:
    """Show which kernel is chosen for a problem, and why; or what a stage changes, and what it gains here.

    For an M×N×K product on this device, lists the candidates in order of preference, and the kernels that cannot run,
    with the reason. Other ops (--op) take their sizes as in `webmm bench`: 512 8192, or 512x8192, is a matrix of 512
    rows and 8192 columns. For a stage, such as tile_2d, prints what its chapter says in short, and times it for some
    seconds beside the stage that it follows. Exits with code 1 if a kernel of a plugin does not compile or is wrong.
    """
    from webmm.cases import op_of
    from webmm.report import choice, lesson

    if len(size) == 1 and not size[0][:1].isdigit():
        row = lesson.op_with(op, size[0])
        words, right = lesson.explain_stage(row, size[0], layout, dtype or row.dtypes[0].name, open_device)
    else:
        row = op_of(op)
        dtype = dtype or row.dtypes[0].name
        words, right = choice.explain(row, row.parse("x".join(size)), layout, dtype, open_device)
    click.echo(words)
    ctx.exit(0 if right else 1)


@click.command()
@click.argument("size", nargs=3, metavar="M N K")
@click.option(
    "--devices", type=click.IntRange(1, MAX_WORKERS), default=1, show_default=True, help="Number of equal devices."
)
@click.option("--rate", default="49.8T", show_default=True, help="Operations per second of a device.")
@click.option("--memory", default="2GiB", show_default=True, help="Memory of a device for matrices, such as 80GB.")
@click.option("--bandwidth", default="25GB", show_default=True, help="Bytes per second, to and from each device.")
@click.option(
    "--host", metavar="BANDWIDTH", help="Bytes per second of the host, shared by all devices. Default: no limit."
)
@click.option("--dtype", default="float32", show_default=True, help=f"Storage type: {names(MATRIX_DTYPES)}.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON with each device's share.")
def plan(size: tuple[str, str, str], devices: int, dtype: str, as_json: bool, **amounts: str | None) -> None:
    """Plan an M×N×K product across many devices.

    Shows how the product would be divided, how much data would move, and the predicted time. The devices need not be
    present.
    """
    from webmm.report import scaling

    click.echo(scaling.describe(size, devices, dtype, amounts, as_json))
