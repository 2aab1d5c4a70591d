"""The command that shows products being computed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from webmm.cli.options import PLUGIN, check_outputs, on_device, parse_kernels, parse_sizes
from webmm.errors import ConfigError

if TYPE_CHECKING:
    from webmm.report import Open

MOST = 8  # kernels side by side


@click.command()
@click.argument("kernels", nargs=-1, required=True, metavar="KERNEL…")
@PLUGIN
@click.option("--size", default="512", show_default=True, metavar="SIZE", help="N or MxNxK.")
@click.option("--pictures", type=click.IntRange(2, 1000), default=64, show_default=True, help="Pictures at most.")
@click.option("--save", type=click.Path(path_type=Path), metavar="FILE.gif", help="Write a GIF; open no window.")
@click.option("--once", is_flag=True, help="Close the window after the last picture.")
@on_device()
def watch(kernels: tuple[str, ...], size: str, pictures: int, save: Path | None, once: bool, open_device: Open) -> None:
    """Show how each KERNEL fills C, side by side, on the device that computes.

    Each picture is a dispatch of the first workgroups of a kernel's grid; C, NaN before, is read back. A kernel may
    have settings: pipelined:bm=64. Needs the extra webmm[window].
    """
    from webmm.problems.gemm import gemm
    from webmm.report import watch as report

    stages = [stage for text in kernels for stage in parse_kernels(text)]
    if len(stages) > MOST:
        raise ConfigError(f"at most {MOST} kernels fit side by side, not {len(stages)}")
    m, n, k, *batch = parse_sizes(size)[0]
    if batch or "," in size:
        raise ConfigError(f"one size N or MxNxK, not {size!r}")
    report.check(save)
    if save:
        check_outputs([save], None)
    problem = gemm(m, n, k)
    with open_device() as device:
        images = report.pictures(report.fillings(device, stages, problem, pictures), problem)
        if save:
            made = list(images)
            report.save(save, made)
            click.echo(f"{save}: {len(made)} picture{'s' * (len(made) > 1)} of {problem} on {device.info.name}")
        else:
            report.show(images, f"webmm: {problem} on {device.info.name}", once=once)
