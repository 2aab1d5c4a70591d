"""The `webmm` command: its subcommands, and how it reports errors."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

import click

from webmm.cli import foreign, kernels, page, products, speed, system, watch
from webmm.cli.options import OP_HELP, parse_kernels, parse_sizes
from webmm.errors import NoAdapterError, ShaderError, WebmmError
from webmm.text import printable
from webmm.version import __version__

__all__ = ["OP_HELP", "main", "parse_kernels", "parse_sizes"]


class Commands(click.Group):
    """A command group that reports every expected error on stderr: bad input as one line, with exit code 2.

    A kernel that does not compile or is wrong gives exit code 1, and several lines.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; report webmm's errors, and those of files and memory, without a traceback."""
        try:
            return super().invoke(ctx)
        except WebmmError as error:
            click.echo(f"webmm: {printable(str(error))}", err=True)
            no_adapter = isinstance(error, NoAdapterError) and ctx.invoked_subcommand == "info"
            ctx.exit(1 if no_adapter or isinstance(error, ShaderError) else 2)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader closed the pipe
            ctx.exit(1)
        except OSError as error:
            what = f"{error.filename or 'output'}: {error.strerror or error}"
            click.echo(f"webmm: {printable(what)}", err=True)
            ctx.exit(2)
        except MemoryError as error:
            click.echo(f"webmm: not enough memory: {error}", err=True)
            ctx.exit(2)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="webmm")
def main() -> None:
    """Matrix multiplication on any GPU, from one set of WGSL shaders."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # its encoding may lack "→", or bytes of a file's name
        sys.stdout.reconfigure(errors="backslashreplace")
    from webmm import config, log

    chosen = config.settings()
    log.show(chosen.log, chosen.log_file)


for _command in (
    *(system.selftest, system.probe, system.config, system.info, system.report),
    *(speed.bench, speed.tune, speed.cache),
    *(kernels.shader, kernels.debug, kernels.check, foreign.kernel),
    watch.watch,
    *(products.run, products.explain, products.plan),
    *(page.bundle, page.serve, page.leaderboard),
):
    main.add_command(_command)
