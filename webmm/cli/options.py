"""What commands share: options, and how their texts are read."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webmm.dtypes import BYTES, F64, I32, MATRIX_DTYPES, names
from webmm.errors import ConfigError
from webmm.text import whole

if TYPE_CHECKING:
    from webmm.cases.base import Size
    from webmm.engine.device import Device


class Seconds(click.FloatRange):
    """A number within a range: NaN, which is neither below nor above it, is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; fails as FloatRange does."""
        seconds = super().convert(value, param, ctx)
        return self.fail(f"{value} is no number of seconds.", param, ctx) if seconds != seconds else seconds


OP_HELP = (
    "gemm, quantized, weights, reduce, normalise or elementwise; a variant of one as in reduce:max; or a plugin's."
)
OP = click.option("--op", default="gemm", show_default=True, help=OP_HELP)
LAYOUT = click.option("--layout", default="nn", show_default=True, help="nn, nt, tn or tt: t for a transposed A or B.")
PLUGIN = click.option(
    "--plugin",
    multiple=True,
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, param, files: _load(files),
    help="A Python file that registers stages or ops of its own: see docs/extending.md.",
)
BUDGET = click.option("--budget", type=Seconds(1, 10**6), default=60, show_default=True, help="Seconds in all.")
PROFILE = click.option(
    "--profile",
    is_flag=False,
    flag_value="",
    metavar="[TRACE.json]",
    help="Show where the time goes; with a name, write a trace for Perfetto, too.",
)
OP_DTYPE = click.option(
    "--dtype",
    help=f"Storage type: {names(MATRIX_DTYPES)}; of gemm and of extremes {F64.name}, too; of reduce {I32.name}; of "
    f"quantized {names(BYTES)}.",
)


def _load(files: tuple[str, ...]) -> None:
    if files:
        from webmm import plugins

        for file in files:
            plugins.load(file)


def on_device(default: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command --adapter and --engine; it takes, as `open_device`, what opens the device that they name."""
    which = "Index, kind (discrete, integrated, cpu), or part of a name."
    engines = "wgpu, dawn or auto: dawn where it is installed and has matrix units."

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


def parse_sizes(text: str, op: str = "gemm") -> list[Size]:
    """Return each size of "256,333x257x129,64x64x64@8" as the op reads it; raises ProblemError for what is none."""
    from webmm.cases import op_of

    return [op_of(op).parse(item) for item in text.split(",")]


def parse_kernels(text: str, op: str = "gemm") -> list[Any]:
    """Return the kernels of "naive,pipelined:bm=128"; raises ConfigError for an unknown one."""
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
    """Return name and value of "NAME=VALUE"; raises ConfigError for anything else."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"a setting is NAME=VALUE, not {text!r}")
    return name, value


def pair(text: str, between: str, what: str) -> tuple[int, int]:
    """Return the two numbers in `text`; raises ConfigError, which says `what` it should be."""
    first, _, second = text.replace(" ", "").partition(between)
    one, two = whole(first), whole(second)
    if one is None or two is None:
        raise ConfigError(f"{what}, not {text!r}")
    return one, two


def check_outputs(paths: list[Path], plot_file: Path | None) -> None:
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


def trace_file(profile: str | None) -> list[Path]:
    """Return the file that --profile names, if any."""
    if profile and not profile.endswith(".json"):
        raise ConfigError(f"a trace is .json, not {profile!r}; write --profile=TRACE.json, or --profile at the end")
    return [Path(profile)] if profile else []
