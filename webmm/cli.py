"""The `webmm` command."""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from webmm.dtypes import BYTES, MATRIX_DTYPES, names
from webmm.errors import ConfigError, NoAdapterError, WebmmError
from webmm.text import printable, whole
from webmm.version import __version__


class Seconds(click.FloatRange):
    """A number within a range: NaN, which is neither below nor above it, is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; fails as FloatRange does."""
        seconds = super().convert(value, param, ctx)
        return self.fail(f"{value} is no number of seconds.", param, ctx) if seconds != seconds else seconds


OP_HELP = "gemm, quantized, weights, reduce, normalise or elementwise; a variant of one as in reduce:max."
OP = click.option("--op", default="gemm", show_default=True, help=OP_HELP)
WHICH = "Index, kind (discrete, integrated, cpu), or part of a name."
ADAPTER = click.option("--adapter", metavar="WHICH", help=WHICH)
LAYOUT = click.option("--layout", default="nn", show_default=True, help="nn, nt, tn or tt: t for a transposed A or B.")
DTYPE = click.option("--dtype", default="float32", show_default=True, help=f"Storage type: {names(MATRIX_DTYPES)}.")
BUDGET = click.option("--budget", type=Seconds(1, 10**6), default=60, show_default=True, help="Seconds in all.")
PROFILE = click.option(
    "--profile",
    is_flag=False,
    flag_value="",
    metavar="[TRACE.json]",
    help="Show where the time goes; with a name, write a trace for Perfetto, too.",
)
OP_DTYPE = click.option("--dtype", help=f"Storage type: {names(MATRIX_DTYPES)}; of quantized {names(BYTES)}.")


class Commands(click.Group):
    """A group in which every expected failure is one line on stderr and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; report webmm's own errors without a traceback."""
        try:
            return super().invoke(ctx)
        except WebmmError as error:
            click.echo(f"webmm: {printable(str(error))}", err=True)
            ctx.exit(1 if isinstance(error, NoAdapterError) and ctx.invoked_subcommand == "info" else 2)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone; say no more
            ctx.exit(1)
        except OSError as error:
            what = f"{error.filename or 'output'}: {error.strerror or error}"
            click.echo(f"webmm: {printable(what)}", err=True)
            ctx.exit(2)
        except MemoryError as error:
            click.echo(f"webmm: there is not enough memory: {error}", err=True)
            ctx.exit(2)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="webmm")
def main() -> None:
    """Matrix multiplication on any GPU, out of one set of WGSL shaders."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # whose encoding may lack "→", or bytes of a file's name
        sys.stdout.reconfigure(errors="backslashreplace")
    from webmm import config, log

    log.show(config.settings().log)


@main.command()
@ADAPTER
def selftest(adapter: str | None) -> None:
    """Compute small problems of every op by the kernels that would be chosen, and say whether the driver is right."""
    from webmm.report import choice

    for line in choice.selftest(adapter):
        click.echo(line)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def config(as_json: bool) -> None:
    """Show every setting, its value here, and where that comes from."""
    from webmm import report

    click.echo(json.dumps(report.settings(), indent=1) if as_json else printable(report.describe_settings()))


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@ADAPTER
def info(as_json: bool, adapter: str | None) -> None:
    """Show the adapters, what they offer, and which stages can run on the chosen one."""
    from webmm import report

    click.echo(json.dumps(report.system(adapter), indent=1) if as_json else report.describe(adapter))


@main.command()
@OP
@click.option("--sizes", help="Such as 256,1024,333x257x129 (M×N×K). Default: chosen to the device's speed.")
@click.option("--kernels", help="Such as naive,pipelined:bm=128:bn=128. Default: the whole ladder.")
@OP_DTYPE
@ADAPTER
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
    adapter: str | None,
    budget: float,
    json_file: Path | None,
    csv_file: Path | None,
    plot_file: Path | None,
    profile: str | None,
) -> None:
    """Run the ladder: every stage, checked and timed, fastest first.

    --profile shows, for one call of each size's fastest stage, how long upload, dispatches and readback take.
    """
    from webmm import records, report
    from webmm.cases import op_of

    outputs = [path for path in (json_file, csv_file, plot_file) if path]
    _check_outputs([*outputs, *_trace_file(profile)], plot_file)
    if plot_file and op != "gemm":
        raise ConfigError(f"plots show products; --json and --csv write the records of {op}")
    wanted = parse_sizes(sizes, op) if sizes else None
    dtype = dtype or op_of(op).dtypes[0].name
    chosen = parse_kernels(kernels, op_of(op).name) if kernels else None
    results, ceiling = report.run_bench(adapter, op_of(op), chosen, wanted, dtype, budget, profile)
    if json_file:
        records.save(json_file, records.to_json(results))
    if csv_file:
        records.save(csv_file, records.to_csv(results))
    if plot_file:
        from webmm import plot

        plot.save(plot_file, results, ceiling)


def _check_outputs(paths: list[Path], plot_file: Path | None) -> None:
    """Fail before the measuring, not after it, where a result could not be kept."""
    for path in paths:
        if not path.parent.is_dir():
            raise ConfigError(f"cannot write {path}: there is no folder {path.parent}")
    if plot_file:
        if plot_file.suffix not in (".png", ".svg"):
            raise ConfigError(f"a plot is .png or .svg, not {plot_file.suffix or plot_file}")
        try:
            import matplotlib  # noqa: F401
        except ImportError as error:
            raise ConfigError("plots need matplotlib: pip install 'webmm[plot]'") from error


def _trace_file(profile: str | None) -> list[Path]:
    """Return the file that --profile names, if any."""
    if profile and not profile.endswith(".json"):
        raise ConfigError(f"a trace is .json, not {profile!r}; write --profile=TRACE.json, or --profile at the end")
    return [Path(profile)] if profile else []


def parse_sizes(text: str, op: str = "gemm") -> list[tuple[int, int, int]]:
    """Return (m, n, k) for each of "256,333x257x129"; raises ProblemError for anything else."""
    from webmm.cases import op_of

    return [op_of(op).parse(item) for item in text.split(",")]


def parse_kernels(text: str, op: str = "gemm") -> list[Any]:
    """Return the kernels of "naive,pipelined:bm=128"; raises ConfigError for an unknown one."""
    from webmm.kernels import configure

    kernels = []
    for item in text.split(","):
        name, *settings = item.strip().split(":")
        kernel = configure(name, dict(_setting(s) for s in settings), op)
        if reason := kernel.invalid():
            raise ConfigError(f"{name}: {reason}")
        kernels.append(kernel)
    return kernels


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"a setting is NAME=VALUE, not {text!r}")
    return name, value


@main.command()
@click.argument("kernel")
@OP
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a tunable.")
@click.option("--dialect", default="naga", show_default=True, help="naga (wgpu) or tint (browsers).")
@click.option("--size", "shape", default="1024", show_default=True, help="Specialise for N or MxNxK.")
@LAYOUT
@OP_DTYPE
@click.option("--json", "as_json", is_flag=True, help="Print JSON with bindings, workgroup size, grid rule and limits.")
def shader(
    kernel: str,
    op: str,
    settings: tuple[str, ...],
    dialect: str,
    shape: str,
    layout: str,
    dtype: str | None,
    as_json: bool,
) -> None:
    """Print exactly the WGSL that runs, ready for another WebGPU program."""
    from webmm.cases import op_of
    from webmm.kernels import configure
    from webmm.render import render

    problem = op_of(op).problem(parse_sizes(shape, op)[0], dtype or op_of(op).dtypes[0].name, layout)
    rendered = render(configure(kernel, dict(map(_setting, settings)), op_of(op).name), problem, dialect)  # type: ignore[arg-type]
    click.echo(json.dumps(rendered.to_json(), indent=1) if as_json else rendered.wgsl, nl=as_json)


@main.command()
@click.argument("kernel")
@click.argument("m", type=click.IntRange(min=1))
@click.argument("n", type=click.IntRange(min=1))
@click.argument("k", type=click.IntRange(min=1))
@click.option("--at", "element", default="0,0", show_default=True, metavar="ROW,COL", help="Which element of C.")
@click.option("--steps", is_flag=False, flag_value=":", metavar="[A:B]", help="Show all inner steps, or A up to B.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a tunable.")
@LAYOUT
@DTYPE
@click.option("--adapter", metavar="WHICH", default="cpu", show_default=True, help=WHICH)
@click.option("--json", "as_json", is_flag=True, help="Print all steps as JSON.")
@click.pass_context
def debug(
    ctx: click.Context,
    kernel: str,
    m: int,
    n: int,
    k: int,
    element: str,
    steps: str | None,
    settings: tuple[str, ...],
    layout: str,
    dtype: str,
    adapter: str,
    as_json: bool,
) -> None:
    """Show what KERNEL loads, shares and sums up for one element of an M×N×K product, beside NumPy's values.

    Exit code 1 says that a value is wrong.
    """
    from webmm import report
    from webmm.cases.gemm import GemmOp
    from webmm.kernels import configure

    at = _pair(element, ",", "an element is ROW,COL")
    shown = None if steps is None else slice(None) if steps == ":" else slice(*_pair(steps, ":", "steps are A:B"))
    stage = configure(kernel, dict(map(_setting, settings)))
    inspection = report.run_debug(adapter, stage, GemmOp().problem((m, n, k), dtype, layout), at, shown, as_json)
    ctx.exit(0 if inspection.right else 1)


def _pair(text: str, between: str, what: str) -> tuple[int, int]:
    """Return the two numbers in `text`; raises ConfigError, which says `what` it should be."""
    first, _, second = text.replace(" ", "").partition(between)
    pair = whole(first), whole(second)
    if pair[0] is None or pair[1] is None:
        raise ConfigError(f"{what}, not {text!r}")
    return pair[0], pair[1]


@main.command()
def check() -> None:
    """Validate every shader with naga-cli, which translates it to SPIR-V, MSL and HLSL, and with Tint."""
    from concurrent.futures import ThreadPoolExecutor

    from webmm import naga, tint
    from webmm.check import inexpressible, texts

    naga.find()  # or the error that says what to install
    with ThreadPoolExecutor() as pool:  # each naga is a process, and Tint reads what it is given meanwhile
        known = texts("naga")
        translated = pool.map(naga.translate, *zip(*known.items(), strict=True))
        browsers = texts("tint")
        if tint.installed():
            for wgsl, label in browsers.items():
                tint.validate(wgsl, label)
        list(translated)
    click.echo(f"{len(known)} shaders are valid and translate to {', '.join(naga.TARGETS)} (naga {naga.VERSION})")
    for kernel in inexpressible("naga"):
        click.echo(f"{kernel.name} of {kernel.op} is rendered for Tint alone; naga: {kernel.not_in['naga']}")
    if tint.installed():
        click.echo(f"{len(browsers)} shaders are valid for browsers (Tint of wgpudawn {tint.version()})")
    else:
        click.echo(f"{len(browsers)} shaders for browsers were not validated: {tint.ABSENT}")


@main.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Where to write the product.")
@click.option("--force", is_flag=True, help="Overwrite an existing output.")
@click.option("--kernel", "kernel_text", help="Such as blocked or pipelined:bm=128. Default: chosen by webmm.")
@PROFILE
@ADAPTER
def run(
    a: Path,
    b: Path,
    output: Path,
    force: bool,
    kernel_text: str | None,
    profile: str | None,
    adapter: str | None,
) -> None:
    """Multiply the matrices in A.npy and B.npy."""
    from webmm import report

    if output.exists() and not force:
        raise ConfigError(f"{output} exists; --force overwrites it")
    _check_outputs([output, *_trace_file(profile)], None)
    kernel = parse_kernels(kernel_text)[0] if kernel_text else None
    click.echo(report.multiply_files(a, b, output, kernel, adapter, profile), err=True)


@main.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace what OUT holds, even if it is no page.")
def bundle(out: Path, force: bool) -> None:
    """Write the page with every shader that it may run to the folder OUT, ready for any static host."""
    from webmm.page import bundle as page

    summary = page.build(out, force=force)
    weights = f"{summary.nbytes / 1e6:.1f} MB, of which {summary.first_load / 1e3:.0f} KB load at first"
    click.echo(f"{out}: {summary.files:,} files with {summary.shaders:,} shaders, {weights}")


@main.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--browser/--no-browser", default=True, help="Open the page in the browser.")
def serve(folder: Path | None, port: int, browser: bool) -> None:
    """Serve the page on this machine only; without FOLDER it is built for the occasion."""
    from webmm.page import bundle as page
    from webmm.page import serve as http

    if folder:
        http.serve(folder, port, browser)
        return
    with tempfile.TemporaryDirectory() as temporary:
        page.build(Path(temporary, "page"))
        http.serve(Path(temporary, "page"), port, browser)


@main.command()
@OP
@click.option("--sizes", help="Such as 256,333x257x129 (M×N×K). Default: chosen to the device's speed.")
@LAYOUT
@OP_DTYPE
@ADAPTER
@BUDGET
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write every outcome as JSON.")
def tune(
    op: str,
    sizes: str | None,
    layout: str,
    dtype: str | None,
    adapter: str | None,
    budget: float,
    json_file: Path | None,
) -> None:
    """Search for the fastest kernel of each size and remember it for matmul() and the other calls."""
    from webmm import records
    from webmm.cases import op_of
    from webmm.choose import tuned
    from webmm.report import choice

    _check_outputs([json_file] if json_file else [], None)
    wanted = parse_sizes(sizes, op) if sizes else None
    outcomes = choice.tune(adapter, op_of(op), wanted, layout, dtype or op_of(op).dtypes[0].name, budget)
    if json_file:
        records.save(json_file, records.to_json(outcomes))
    click.echo(f"{tuned.path()}: {tuned.add(outcomes)} tuned records taken")


@main.group(cls=Commands)
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


@main.command()
@click.argument("size", nargs=-1, required=True, metavar="M N K")
@OP
@LAYOUT
@OP_DTYPE
@ADAPTER
def explain(size: tuple[str, ...], op: str, layout: str, dtype: str | None, adapter: str | None) -> None:
    """Say which kernel computes an M×N×K product here, which come next, and why others cannot.

    With --op, a problem of another op, whose size is written as in a bench: 512 8192 or 512x8192 rows and columns.
    """
    from webmm.cases import op_of
    from webmm.report import choice

    known = op_of(op)
    click.echo(choice.explain(known, known.parse("x".join(size)), layout, dtype or known.dtypes[0].name, adapter))


if __name__ == "__main__":
    main()
