"""Options that several commands share, and the parsing of their values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webmm.dtypes import BYTES, I32, MATRIX_DTYPES, WIDE, names
from webmm.errors import ConfigError
from webmm.problems import DEFAULT_OP, OPS
from webmm.text import whole

if TYPE_CHECKING:
    from webmm.cases.base import Op, Size
    from webmm.engine.device import Device


class Seconds(click.FloatRange):
    """A number of seconds within a range; rejects NaN, which FloatRange accepts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number of seconds; fails as FloatRange does."""
        seconds = super().convert(value, param, ctx)
        return self.fail(f"{value} is not a number of seconds.", param, ctx) if seconds != seconds else seconds


OP_HELP = f"{', '.join(OPS)} or a plugin's op; a variant follows a colon: reduce:max."
OP = click.option("--op", default=DEFAULT_OP, show_default=True, help=OP_HELP)
LAYOUT = click.option(
    "--layout", default="nn", show_default=True, help="nn, nt, tn or tt: t marks a transposed A or B."
)
PLUGIN = click.option(
    "--plugin",
    multiple=True,
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, param, files: _load(files),
    help="Load a Python file that registers kernels or ops: see docs/extending.md.",
)


def budget(seconds: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option --budget with a default in seconds."""
    allowed = Seconds(1, 10**6)
    return click.option("--budget", type=allowed, default=seconds, show_default=True, help="Time budget in seconds.")


BUDGET = budget(60)
AT = click.option("--at", "elements", multiple=True, metavar="ROW,COL", help="Element of the result; may be repeated.")
STEPS = click.option(
    "--steps", is_flag=False, flag_value=":", metavar="[A:B]", help="Show all inner steps, or A up to B."
)
PROFILE = click.option(
    "--profile",
    is_flag=False,
    flag_value="",
    metavar="[TRACE.json]",
    help="Show where the time goes; with a file name, also write a trace for Perfetto.",
)
OP_DTYPE = click.option(
    "--dtype",
    help=f"Storage type: {names(MATRIX_DTYPES)}; gemm, normalise and reduce, except sum and mean, also take "
    f"{names(WIDE)}, reduce takes {I32.name}, quantized {names(BYTES)}.",
)


def _load(files: tuple[str, ...]) -> None:
    if files:
        from webmm import plugins

        for file in files:
            plugins.load(file)


def on_device(default: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command --adapter and --engine; it receives `open_device`, a function that opens the device they name."""
    which = "Adapter: its index, kind (discrete, integrated, cpu), or part of its name."
    engines = "wgpu, dawn, or auto: dawn if it is installed and the adapter has matrix units."

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @click.option("--adapter", metavar="WHICH", default=default, show_default=True, help=which)
        @click.option("--engine", metavar="NAME", help=engines)
        @functools.wraps(command)
        def run(adapter: str | None, engine: str | None, **options: Any) -> None:
            command(open_device=functools.partial(_open, adapter, engine), **options)

        return run

    return decorate


def _open(adapter: str | None, engine: str | None) -> Device:
    from webmm.engine.device import Device

    return Device(adapter, engine=engine)


def parse_sizes(text: str, op: str = DEFAULT_OP) -> list[Size]:
    """Return each size in "256,333x257x129,64x64x64@8" as the op parses it; raises ProblemError for invalid ones."""
    from webmm.cases import op_of

    return [op_of(op).parse(item) for item in text.split(",")]


def parse_kernels(text: str, op: str = DEFAULT_OP) -> list[Any]:
    """Return the kernels in "naive,pipelined:bm=128"; raises ConfigError for unknown names and invalid settings."""
    from webmm.kernels import configure

    kernels = []
    for item in text.split(","):
        name, *settings = item.strip().split(":")
        kernel = configure(name, dict(setting(s) for s in settings), op)
        if reason := kernel.invalid():
            raise ConfigError(f"{name}: {reason}")
        kernels.append(kernel)
    return kernels


def setting(text: str) -> tuple[str, str]:
    """Return the name and value in "NAME=VALUE"; raises ConfigError for anything else."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"a setting is NAME=VALUE, not {text!r}")
    return name, value


def argument(text: str) -> tuple[str, int | float | str]:
    """Return the name and the value, a number or a word, in "NAME=VALUE"; raises ConfigError for anything else."""
    name, value = setting(text)
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            pass
    return name, value


def pair(text: str, separator: str, what: str) -> tuple[int, int]:
    """Return the two numbers in `text`; otherwise raises ConfigError, with `what` as the expected form."""
    first, _, second = text.replace(" ", "").partition(separator)
    one, two = whole(first), whole(second)
    if one is None or two is None:
        raise ConfigError(f"{what}, not {text!r}")
    return one, two


def places(elements: tuple[str, ...], op: Op[Any]) -> list[tuple[int, ...]]:
    """Return the indices of each of `elements`, of --at; raises ConfigError for other texts."""
    names = "HEAD,QUERY,COLUMN" if op.indices == 3 else "ROW,COL"
    count = names.count(",") + 1
    found = []
    for text in elements or (",".join("0" * count),):
        at = [whole(each) for each in text.replace(" ", "").split(",")]
        at += [0] * (op.indices == 1 and len(at) == 1)  # --at ROW is enough
        if len(at) != count or any(i is None for i in at):
            raise ConfigError(f"an element is {names}, not {text!r}")
        found.append(tuple(i for i in at if i is not None))
    return found


def shown_steps(steps: str | None) -> slice | None:
    """Return the steps that --steps asks for, None for the default; raises ConfigError for other texts."""
    return None if steps is None else slice(None) if steps == ":" else slice(*pair(steps, ":", "steps are A:B"))


def check_outputs(paths: list[Path], plot_file: Path | None) -> None:
    """Raise ConfigError for output files that cannot be written, before time is spent on measuring."""
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


def trace_file(profile: str | None) -> list[Path]:
    """Return the file that --profile names, if any; raises ConfigError unless it ends in .json."""
    if profile and not profile.endswith(".json"):
        raise ConfigError(f"a trace file is .json, not {profile!r}; use --profile=TRACE.json, or put --profile last")
    return [Path(profile)] if profile else []
