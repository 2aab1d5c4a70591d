"""The `webmm` command: its subcommands, and how it reports errors."""

from __future__ import annotations

import io
import os
import sys
from typing import IO, Any

import click

from webmm.cli import foreign, kernels, page, products, speed, system, watch
from webmm.cli.options import OP_HELP, parse_kernels, parse_sizes
from webmm.errors import NoAdapterError, ShaderError, WebmmError
from webmm.text import printable
from webmm.version import __version__

__all__ = ["OP_HELP", "main", "parse_kernels", "parse_sizes"]

HELP: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())  # since click 8.2


class Commands(click.Group):
    """A command group that reports every expected error on stderr: bad input as one line, with exit code 2.

    A kernel that does not compile or is wrong gives exit code 1, and several lines.
    """

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the words before the subcommand."""
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            raise in_a_line(error, "webmm") from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; report webmm's errors, and those of files and memory, without a traceback."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise in_a_line(error, f"{ctx.command_path} {ctx.invoked_subcommand or ''}".strip()) from None
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


def in_a_line(error: click.UsageError, command: str) -> click.ClickException:
    """Return the error as one line, unless it is a request for help: a group without a subcommand."""
    return error if isinstance(error, HELP) else _Line(error, command)


class _Line(click.ClickException):
    """What is wrong with the words of a command, in one line instead of click's four."""

    exit_code = 2

    def __init__(self, error: click.UsageError, command: str) -> None:
        self.command = error.ctx.command_path if error.ctx else command
        super().__init__(" ".join(error.format_message().split()))

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line."""
        line = f"{self.command}: {self.message.rstrip('.')}; see '{self.command} --help'"
        click.echo(printable(line), file=file, err=True)


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
