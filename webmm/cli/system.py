"""Commands for this machine: its adapters, their speed, self-tests of their drivers, and settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from webmm.cli.options import PLUGIN, budget, on_device
from webmm.text import printable

if TYPE_CHECKING:
    from webmm.report import Open


@click.command()
@PLUGIN
@on_device()
def selftest(open_device: Open) -> None:
    """Check that this device's driver computes correctly.

    Solves small problems of every op with the kernels that would be chosen for them. With --plugin, tests only the
    plugin's kernels. Exits with code 1 if a kernel does not compile or is wrong.
    """
    from webmm.report import choice

    for line in choice.selftest(open_device):
        click.echo(line)


@click.command()
@on_device()
def probe(open_device: Open) -> None:
    """Measure the device's speed for a second, and save it.

    Choices of kernels are then predicted from the saved measurement.
    """
    from webmm.engine import rates
    from webmm.measure import roofline

    with open_device() as device:
        click.echo(f"{device.info}")
        found = roofline.probe(device)
        rates.keep(device, found)
    click.echo(f"{found}\n{rates.path()}: saved")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--write",
    is_flag=False,
    flag_value="webmm.toml",
    type=click.Path(path_type=Path),
    metavar="[FILE]",
    help="Write a commented file of all settings at their defaults. FILE defaults to webmm.toml.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def config(as_json: bool, write: Path | None, force: bool) -> None:
    """Show all settings, with their values and sources."""
    from webmm import config, files, report

    if write:
        files.check_output(write, force=force)
        files.write_atomically(write, lambda out: out.write(config.template().encode()))
        click.echo(f"{write}: {len(report.settings())} settings, all at their defaults")
        return
    click.echo(json.dumps(report.settings(), indent=1) if as_json else printable(report.describe_settings()))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@on_device()
def info(as_json: bool, open_device: Open) -> None:
    """Show adapters, their limits and features, and usable kernels.

    An arrow marks the chosen adapter; for each kernel that cannot run on it, the reason is shown.
    """
    from webmm import report

    click.echo(json.dumps(report.system(open_device), indent=1) if as_json else report.describe(open_device))


@click.command()
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="JSON file to write.")
@on_device()
@budget(90)
def report(output: Path, open_device: Open, budget: float) -> None:
    """Write a report on this device, to contribute or to attach to an issue.

    It covers every engine that offers the adapter: limits, features, a self-test, the measured rates, the ladder of
    matrix products and the time of the first product. It is a JSON file of at most 200 kB without personal data, and
    nothing is sent anywhere: attach it by hand.
    """
    from webmm import files
    from webmm.measure import records
    from webmm.report import evidence, progress_bar

    files.check_output(output, force=True)
    with progress_bar() as show:
        found = evidence.report(open_device, budget, show)
    records.save(output, found.text)
    click.echo(f"{output}: {len(found.text.encode()) / 1e3:.0f} kB on {printable(str(found.info))}")
    click.echo(f"{found.kernels} measurements of kernels by {', '.join(found.engines) or 'no engine'}")
    click.echo(f"contains: {evidence.CONTENTS}\ncontains {evidence.WITHOUT}")
    click.echo(f"to contribute: attach it to {found.link or evidence.NO_LINK}")
