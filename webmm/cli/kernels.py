"""Commands for looking at kernels: print their WGSL, validate it, and trace what they compute."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from webmm.cli.options import LAYOUT, OP, OP_DTYPE, PLUGIN, on_device, pair, parse_sizes, setting

if TYPE_CHECKING:
    from webmm.render import Shader
    from webmm.report import Open

MATRICES = ("gemm", "quantized", "weights")  # ops whose result elements are addressed as ROW,COL


@click.command()
@click.argument("kernel")
@PLUGIN
@OP
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a tunable; may be repeated.")
@click.option("--dialect", default="naga", show_default=True, help="naga (wgpu) or tint (browsers).")
@click.option("--size", "shape", default="1024", show_default=True, help="Specialise for size N or MxNxK.")
@LAYOUT
@OP_DTYPE
@click.option("--json", "as_json", is_flag=True, help="Print JSON with bindings, workgroup size, grid rule and limits.")
@click.option("--to", "target", type=click.Choice(("msl", "hlsl", "spirv")), help="Print naga-cli's translation.")
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
    """Print the WGSL of KERNEL, exactly as it runs.

    The text is ready for use in another WebGPU program. With --to, print the translation that wgpu gives to a Metal
    (msl), Direct3D (hlsl) or Vulkan (spirv) driver. SPIR-V is binary: use --to spirv > FILE.
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
        raise ConfigError("--to translates the naga dialect only: leave --dialect out")
    if target == "spirv" and sys.stdout.isatty():
        raise ConfigError("SPIR-V is binary; write it to a file: --to spirv > shader.spv")
    name = {"msl": "MSL", "hlsl": "HLSL", "spirv": "SPIR-V"}[target]
    found = naga.translate(shader.wgsl, shader.label)
    if name not in found:
        raise UnsupportedError(f"naga {naga.VERSION} cannot translate {shader.label} to {name}")
    return found[name]


@click.command()
@click.argument("kernel")
@click.argument("size", nargs=-1, required=True, metavar="M N K")
@PLUGIN
@OP
@click.option("--at", "elements", multiple=True, metavar="ROW,COL", help="Element of the result; may be repeated.")
@click.option("--steps", is_flag=False, flag_value=":", metavar="[A:B]", help="Show all inner steps, or A up to B.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a tunable; may be repeated.")
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
    """Show how KERNEL computes one element, step by step.

    The output lists what the kernel loads, shares and accumulates for an element of an M×N×K product, next to NumPy's
    values. Other ops (--op) take their sizes as in `webmm bench`: 3 1000 is a matrix of 3 rows and 1000 columns. In a
    reduction of its rows, --at 2 is the third result; in a normalisation, --at 2,5 is the third row's sixth element.

    On a terminal, --steps shows one page of steps at a time: press Enter for the next page, enter a number to go to
    that step, or q to quit. Exits with code 1 if a value is wrong.
    """
    from webmm.cases import op_of
    from webmm.kernels import configure
    from webmm.report import debug as report

    known = op_of(op)
    column = "" if known.name in MATRICES else ",0"  # --at ROW is enough
    at = [pair(text + column * ("," not in text), ",", "an element is ROW,COL") for text in elements or ("0,0",)]
    shown = None if steps is None else slice(None) if steps == ":" else slice(*pair(steps, ":", "steps are A:B"))
    stage = configure(kernel, dict(map(setting, settings)), known.name)
    problem = known.problem(known.parse("x".join(size)), dtype or known.dtypes[0].name, layout)
    ctx.exit(0 if report.run(open_device, stage, problem, at, shown, as_json) else 1)


@click.command()
@PLUGIN
def check() -> None:
    """Validate every shader with naga-cli and Tint.

    naga-cli also translates each shader to SPIR-V, MSL and HLSL. With --plugin, validate only the plugin's shaders.
    """
    from concurrent.futures import ThreadPoolExecutor

    from webmm import naga, tint
    from webmm.check import inexpressible, registered, texts
    from webmm.kernels import REGISTERED

    naga.find()  # fails early, with the error that says what to install
    shaders = (list(registered()),) if REGISTERED else ()  # empty: webmm's shaders
    with ThreadPoolExecutor() as pool:  # naga runs in processes, while Tint validates in this thread
        known = texts("naga", *shaders)
        translated = pool.map(naga.translate, known.keys(), known.values())
        browsers = texts("tint", *shaders)
        if tint.installed():
            for wgsl, label in browsers.items():
                tint.validate(wgsl, label)
        list(translated)
    click.echo(f"{len(known)} shaders are valid and translate to {', '.join(naga.TARGETS)} (naga {naga.VERSION})")
    if not shaders:
        click.echo("shaders that use f64 were not translated to MSL nor rendered for Tint: Metal and browsers lack f64")
    for kernel in () if shaders else inexpressible("naga"):
        click.echo(f"{kernel.name} of {kernel.op} is rendered for Tint only; naga: {kernel.not_in['naga']}")
    if tint.installed():
        click.echo(f"{len(browsers)} shaders are valid for browsers (Tint of wgpudawn {tint.version()})")
    else:
        click.echo(f"{len(browsers)} shaders for browsers were not validated: {tint.ABSENT}")
