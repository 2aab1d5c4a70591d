"""Commands for looking at kernels: print their WGSL, validate it, and trace what they compute."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from webmm.cli.options import (
    AT,
    LAYOUT,
    OP,
    OP_DTYPE,
    PLUGIN,
    STEPS,
    on_device,
    parse_sizes,
    places,
    setting,
    shown_steps,
)

if TYPE_CHECKING:
    from webmm.engine.device import Device
    from webmm.report import Open


@click.command()
@click.argument("kernel")
@PLUGIN
@OP
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a tunable; may be repeated.")
@click.option("--dialect", default="naga", show_default=True, help="naga (wgpu) or tint (browsers).")
@click.option("--size", "shape", metavar="SIZE", help="Specialise for a size, N or MxNxK; by default, right at any.")
@click.option("--general", is_flag=True, help="With --size: the text for any size, and the numbers for SIZE.")
@click.option("--pinned", is_flag=True, help="With --dialect tint: ask for the size of subgroups, not compare it.")
@click.option("--dispatch", "number", type=click.IntRange(1), help="Print only this dispatch of a stage of several.")
@LAYOUT
@OP_DTYPE
@click.option("--json", "as_json", is_flag=True, help="Print JSON: dispatches, buffers, scratch, valid_for.")
@click.option("--to", "target", type=click.Choice(("msl", "hlsl", "spirv")), help="Print naga-cli's translation.")
def shader(
    kernel: str,
    op: str,
    settings: tuple[str, ...],
    dialect: str,
    shape: str | None,
    general: bool,
    pinned: bool,
    number: int | None,
    layout: str,
    dtype: str | None,
    as_json: bool,
    target: str | None,
) -> None:
    """Print the WGSL of KERNEL for use in another WebGPU program.

    The text is right at every size. With --size, it is what runs for that size, and its header says for which sizes it
    holds. A stage of several dispatches prints their texts one after another.

    With --to, print the translation that wgpu gives to a Metal (msl), Direct3D (hlsl) or Vulkan (spirv) driver. SPIR-V
    is binary: use --to spirv > FILE.
    """
    from webmm.cases import op_of
    from webmm.errors import ConfigError
    from webmm.kernels import configure
    from webmm.wgsl import export

    known = op_of(op)
    problem = known.problem(parse_sizes(shape or "2", op)[0], dtype or known.dtypes[0].name, layout)
    stage = configure(kernel, dict(map(setting, settings)), known.name)
    if number and number > len(stage.dispatches):
        raise ConfigError(f"{kernel} has no dispatch {number}: its dispatches are 1 to {len(stage.dispatches)}")
    if target and dialect != "naga":
        raise ConfigError("--to translates the naga dialect only: leave --dialect out")
    general, sized = general or not shape, bool(shape)
    data = export.stage(stage, problem, dialect, general=general, pinned=pinned, sized=sized)  # type: ignore[arg-type]
    dispatches = data["dispatches"] if number is None else [data["dispatches"][number - 1]]
    if target:
        click.echo(_translated(dispatches, target), nl=False)
    elif as_json:
        click.echo(json.dumps(data if number is None else dispatches[0], indent=1))
    else:
        click.echo("\n".join(each["wgsl"] for each in dispatches), nl=False)


def _translated(dispatches: list[dict[str, Any]], target: str) -> bytes:
    from webmm.errors import ConfigError, UnsupportedError
    from webmm.wgsl import naga

    if target == "spirv" and sys.stdout.isatty():
        raise ConfigError("SPIR-V is binary; write it to a file: --to spirv > shader.spv")
    if target == "spirv" and len(dispatches) > 1:
        raise ConfigError(f"SPIR-V of {len(dispatches)} dispatches makes no single file; choose one: --dispatch 1")
    name = {"msl": "MSL", "hlsl": "HLSL", "spirv": "SPIR-V"}[target]
    texts = []
    for each in dispatches:
        found = naga.translate(each["wgsl"], each["kernel"])
        if name not in found:
            raise UnsupportedError(f"naga {naga.version()} cannot translate {each['kernel']} to {name}")
        texts.append(found[name])
    return b"\n".join(texts)


@click.command()
@click.argument("kernel")
@click.argument("size", nargs=-1, required=True, metavar="M N K")
@PLUGIN
@OP
@AT
@STEPS
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
    reduction of its rows, --at 2 is the third result; in a normalisation, --at 2,5 is the third row's sixth element;
    in attention, --at 1,2,5 is the second head's third query's sixth column.

    On a terminal, --steps shows one page of steps at a time: press Enter for the next page, enter a number to go to
    that step, or q to quit. Exits with code 1 if a value is wrong.
    """
    from webmm.cases import op_of
    from webmm.debug import inspect_each
    from webmm.kernels import configure
    from webmm.report import debug as report

    known = op_of(op)
    at, shown = places(elements, known), shown_steps(steps)
    given = dict(map(setting, settings))
    configure(kernel, given, known.name)  # refuses bad settings before a device is opened
    problem = known.problem(known.parse("x".join(size)), dtype or known.dtypes[0].name, layout)

    def inspect(device: Device) -> Any:
        stage = configure(kernel, given, known.name, device.capabilities)
        if "unroll" in stage.config and "unroll" not in given:
            stage = dataclasses.replace(stage, unroll=1)  # the same steps; else each copy of the loop's body records
        return inspect_each(device, stage, problem, at)

    right = report.run(open_device, inspect, shown, as_json)
    ctx.exit(0 if right else 1)


@click.command()
@PLUGIN
def check() -> None:
    """Validate every shader with naga-cli and Tint.

    naga-cli also translates each shader to SPIR-V, MSL and HLSL. With --plugin, validate only the plugin's shaders.
    Exits with code 1 if one is invalid.
    """
    from concurrent.futures import ThreadPoolExecutor

    from webmm.errors import ShaderError
    from webmm.kernels import REGISTERED
    from webmm.wgsl import naga, tint
    from webmm.wgsl.check import inexpressible, located, registered, shipped, texts

    naga.find()  # fails early, with the error that says what to install
    shaders = (list(registered()),) if REGISTERED else ()  # empty: webmm's shaders
    try:
        with ThreadPoolExecutor() as pool:  # naga runs in processes, while Tint validates in this thread
            known = texts("naga", *shaders)
            translated = pool.map(naga.translate, known.keys(), known.values())
            browsers = texts("tint", *shaders)
            if tint.installed():
                for wgsl, label in browsers.items():
                    tint.validate(wgsl, label)
            list(translated)
    except ShaderError as error:
        raise located(error, *(shaders or (shipped(),))) from error
    click.echo(f"{len(known)} shaders are valid and translate to {', '.join(naga.TARGETS)} (naga {naga.version()})")
    if not shaders:
        click.echo("shaders that use f64 were not translated to MSL nor rendered for Tint: Metal and browsers lack f64")
    for kernel in () if shaders else inexpressible("naga"):
        click.echo(f"{kernel.name} of {kernel.op} is rendered for Tint only; naga: {kernel.not_in['naga']}")
    if tint.installed():
        click.echo(f"{len(browsers)} shaders are valid for browsers (Tint of wgpudawn {tint.version()})")
    else:
        click.echo(f"{len(browsers)} shaders for browsers were not validated: {tint.ABSENT}")
