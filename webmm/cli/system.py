"""Commands about this machine: its settings, its adapters, and whether their drivers are right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from webmm.cli.options import on_device
from webmm.errors import ConfigError
from webmm.text import printable

if TYPE_CHECKING:
    from webmm.report import Open


@click.command()
@on_device()
def selftest(open_device: Open) -> None:
    """Compute small problems of every op by the kernels that would be chosen, and say whether the driver is right."""
    from webmm.report import choice

    for line in choice.selftest(open_device):
        click.echo(line)


@click.command()
@on_device()
def probe(open_device: Open) -> None:
    """Measure for a second how fast the device is, and remember it: predicted times then go by that."""
    from webmm import roofline
    from webmm.engine import rates

    with open_device() as device:
        click.echo(f"{device.info}")
        found = roofline.probe(device)
        rates.keep(device, found)
    click.echo(f"{found}\n{rates.path()}: remembered")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--write",
    is_flag=False,
    flag_value="webmm.toml",
    type=click.Path(path_type=Path),
    metavar="[FILE]",
    help="Write a file with every setting, its default, and what it is for. Default: webmm.toml.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def config(as_json: bool, write: Path | None, force: bool) -> None:
    """Show every setting, its value here, and where that comes from; or write a file that sets them."""
    from webmm import config, files, report

    if write:
        if write.exists() and not force:
            raise ConfigError(f"{write} exists; --force overwrites it")
        files.write_atomically(write, lambda out: out.write(config.template().encode()))
        click.echo(f"{write}: {len(report.settings())} settings, all at their defaults")
        return
    click.echo(json.dumps(report.settings(), indent=1) if as_json else printable(report.describe_settings()))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@on_device()
def info(as_json: bool, open_device: Open) -> None:
    """Show the adapters, what they offer, and which stages can run on the chosen one."""
    from webmm import report

    click.echo(json.dumps(report.system(open_device), indent=1) if as_json else report.describe(open_device))
