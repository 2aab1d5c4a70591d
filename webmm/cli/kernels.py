"""Commands that look at kernels: their texts, whether they are valid, what they compute step by step."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from webmm.cli.options import LAYOUT, OP, OP_DTYPE, PLUGIN, on_device, pair, parse_sizes, setting

if TYPE_CHECKING:
    from webmm.render import Shader
    from webmm.report import Open

MATRICES = ("gemm", "quantized", "weights")  # ops whose results have rows and columns


@click.command()
@click.argument("kernel")
@PLUGIN
@OP
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a tunable.")
@click.option("--dialect", default="naga", show_default=True, help="naga (wgpu) or tint (browsers).")
@click.option("--size", "shape", default="1024", show_default=True, help="Specialise for N or MxNxK.")
@LAYOUT
@OP_DTYPE
@click.option("--json", "as_json", is_flag=True, help="Print JSON with bindings, workgroup size, grid rule and limits.")
@click.option("--to", "target", type=click.Choice(("msl", "hlsl", "spirv")), help="Print what naga-cli makes of it.")
def shader(
    kernel: str,
    op: str,
    settings: tuple[str, ...],
    dialect: str,
    shape: str,
    layout: str,
    dtype: str | None,
    as_json: bool,
    target: str | None,
) -> None:
    """Print exactly the WGSL that runs, ready for another WebGPU program.

    With --to what a driver of Metal, Direct3D or Vulkan gets from wgpu; spirv is binary: --to spirv > FILE.
    """
    from webmm.cases import op_of
    from webmm.kernels import configure
    from webmm.render import render

    problem = op_of(op).problem(parse_sizes(shape, op)[0], dtype or op_of(op).dtypes[0].name, layout)
    rendered = render(configure(kernel, dict(map(setting, settings)), op_of(op).name), problem, dialect)  # type: ignore[arg-type]
    if target:
        click.echo(_translated(rendered, target), nl=False)
    else:
        click.echo(json.dumps(rendered.to_json(), indent=1) if as_json else rendered.wgsl, nl=as_json)


def _translated(shader: Shader, target: str) -> bytes:
    from webmm import naga
    from webmm.errors import ConfigError, UnsupportedError

    if shader.dialect != "naga":
        raise ConfigError("--to shows what naga makes of a shader in its own dialect: leave --dialect out")
    if target == "spirv" and sys.stdout.isatty():
        raise ConfigError("SPIR-V is binary; write it to a file: --to spirv > shader.spv")
    name = {"msl": "MSL", "hlsl": "HLSL", "spirv": "SPIR-V"}[target]
    found = naga.translate(shader.wgsl, shader.label)
    if name not in found:
        raise UnsupportedError(f"naga {naga.VERSION} writes no {name} of {shader.label}")
    return found[name]


@click.command()
@click.argument("kernel")
@click.argument("size", nargs=-1, required=True, metavar="M N K")
@PLUGIN
@OP
@click.option("--at", "elements", multiple=True, metavar="ROW,COL", help="Which element of C; several, if repeated.")
@click.option("--steps", is_flag=False, flag_value=":", metavar="[A:B]", help="Show all inner steps, or A up to B.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a tunable.")
@LAYOUT
@OP_DTYPE
@on_device("cpu")
@click.option("--json", "as_json", is_flag=True, help="Print all steps as JSON.")
@click.pass_context
def debug(
    ctx: click.Context,
    kernel: str,
    size: tuple[str, ...],
    op: str,
    elements: tuple[str, ...],
    steps: str | None,
    settings: tuple[str, ...],
    layout: str,
    dtype: str | None,
    open_device: Open,
    as_json: bool,
) -> None:
    """Show what KERNEL loads, shares and sums up for an element of an M×N×K product, beside NumPy's values.

    With --op, a problem of another op, whose size is written as in a bench: 3 1000 rows and columns, of which --at 2 is
    the third row's result, of a normalisation --at 2,5 its sixth element. On a terminal, --steps goes on from step to
    step: Enter shows the next, a number goes there, q ends it. Exit code 1 says that a value is wrong.
    """
    from webmm.cases import op_of
    from webmm.kernels import configure
    from webmm.report import debug as report

    known = op_of(op)
    column = "" if known.name in MATRICES else ",0"  # a result with one number
    at = [pair(text + column * ("," not in text), ",", "an element is ROW,COL") for text in elements or ("0,0",)]
    shown = None if steps is None else slice(None) if steps == ":" else slice(*pair(steps, ":", "steps are A:B"))
    stage = configure(kernel, dict(map(setting, settings)), known.name)
    problem = known.problem(known.parse("x".join(size)), dtype or known.dtypes[0].name, layout)
    ctx.exit(0 if report.run(open_device, stage, problem, at, shown, as_json) else 1)


@click.command()
@PLUGIN
def check() -> None:
    """Validate every shader with naga-cli, which translates it to SPIR-V, MSL and HLSL, and with Tint.

    With --plugin, those of the plugin's stages alone.
    """
    from concurrent.futures import ThreadPoolExecutor

    from webmm import naga, tint
    from webmm.check import inexpressible, registered, texts
    from webmm.kernels import REGISTERED

    naga.find()  # or the error that says what to install
    shaders = (list(registered()),) if REGISTERED else ()  # else webmm's own
    with ThreadPoolExecutor() as pool:  # each naga is a process, and Tint reads what it is given meanwhile
        known = texts("naga", *shaders)
        translated = pool.map(naga.translate, known.keys(), known.values())
        browsers = texts("tint", *shaders)
        if tint.installed():
            for wgsl, label in browsers.items():
                tint.validate(wgsl, label)
        list(translated)
    click.echo(f"{len(known)} shaders are valid and translate to {', '.join(naga.TARGETS)} (naga {naga.VERSION})")
    if not shaders:
        click.echo("of float64 by f64, which Metal and browsers do not have, there is no MSL, and no text for Tint")
    for kernel in () if shaders else inexpressible("naga"):
        click.echo(f"{kernel.name} of {kernel.op} is rendered for Tint alone; naga: {kernel.not_in['naga']}")
    if tint.installed():
        click.echo(f"{len(browsers)} shaders are valid for browsers (Tint of wgpudawn {tint.version()})")
    else:
        click.echo(f"{len(browsers)} shaders for browsers were not validated: {tint.ABSENT}")
