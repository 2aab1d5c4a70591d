"""Commands about WGSL texts that somebody wrote elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webmm.cli.options import BUDGET, check_outputs, on_device, parse_kernels, parse_sizes
from webmm.errors import ConfigError, ProblemError
from webmm.text import whole

if TYPE_CHECKING:
    from webmm.foreign import Foreign
    from webmm.report import Open


@click.group()
def kernel() -> None:
    """Check and time a WGSL text of your own: C = A·B of dense matrices."""


def of_text(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the arguments that say what a text is and how it is run, as `foreign`."""

    @click.argument("file", type=click.Path(path_type=Path))
    @click.option("--bindings", default="a,b,c", show_default=True, help="The matrices in the order of their bindings.")
    @click.option("--uniform", default="", help="Members of the uniform of u32 at binding 0, such as m,n,k.")
    @click.option("--constants", default="", help="Constants of the text that stand for m, n and k, such as M,N,K.")
    @click.option("--workgroup", required=True, help="Invocations of a workgroup along x, y, z, such as 16,16.")
    @click.option("--grid", required=True, help="Workgroups along x, y, z, such as n/16,m/16; divisions round up.")
    @click.option("--entry", default="main", show_default=True, help="The entry point.")
    @click.option("--dtype", default="float32", show_default=True, help="float32 or float16: of all three matrices.")
    @functools.wraps(command)
    def run(
        file: Path, bindings: str, uniform: str, constants: str, workgroup: str, grid: str, entry: str, **options: Any
    ) -> None:
        from webmm.files import read_text
        from webmm.foreign import Foreign
        from webmm.foreign.counts import Counts

        command(
            foreign=Foreign(
                file.name,
                read_text(file),
                names(bindings),
                invocations(workgroup),
                Counts(grid),
                names(uniform),
                names(constants),
                entry,
            ),
            **options,
        )

    return run


def names(text: str) -> tuple[str, ...]:
    """Return the words of "a,b,c"."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def invocations(text: str) -> tuple[int, int, int]:
    """Return (x, y, z) of "16,16"; raises ConfigError for anything but one to three numbers of at least 1."""
    numbers = [whole(part.strip()) for part in text.split(",")]
    if len(numbers) > 3 or not all(numbers):
        raise ConfigError(f"a workgroup is one to three numbers of at least 1, such as 16,16, not {text!r}")
    x, y, z = (*(number or 1 for number in numbers), 1, 1)[:3]
    return x, y, z


def matrices(text: str) -> list[tuple[int, int, int]]:
    """Return (m, n, k) of each of "64,65x67x63"; raises ProblemError for anything else, a batch included."""
    sizes = parse_sizes(text)
    if any(len(size) > 3 for size in sizes):
        raise ProblemError(f"a text multiplies one matrix by another: leave the batch out of {text!r}")
    return [size[:3] for size in sizes]


@kernel.command()
@of_text
@click.option("--sizes", help="Such as 64,65x67x63 (M×N×K). Default: several, of which tiles divide only the first.")
@on_device()
@click.pass_context
def check(ctx: click.Context, foreign: Foreign, sizes: str | None, dtype: str, open_device: Open) -> None:
    """Check the WGSL text FILE beside NumPy, in poisoned surroundings, and on a CPU with its lanes in both orders.

    Exit code 1 says that something is wrong.
    """
    from webmm.report.foreign import run_check

    wanted = matrices(sizes) if sizes else None
    ctx.exit(0 if run_check(open_device, foreign, wanted, dtype) else 1)


@kernel.command()
@of_text
@click.option("--sizes", default="256,512", show_default=True, help="Such as 256,333x257x129 (M×N×K).")
@click.option("--kernels", help="What to time beside it, such as naive,blocked. Default: the whole ladder.")
@on_device()
@BUDGET
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write records as JSON.")
def bench(
    foreign: Foreign,
    sizes: str,
    dtype: str,
    kernels: str | None,
    open_device: Open,
    budget: float,
    json_file: Path | None,
) -> None:
    """Time the WGSL text FILE beside the ladder."""
    from webmm import records
    from webmm.report.foreign import run_bench

    check_outputs([json_file] if json_file else [], None)
    beside = parse_kernels(kernels) if kernels else None
    found = run_bench(open_device, foreign, beside, matrices(sizes), dtype, budget)
    if json_file:
        records.save(json_file, records.to_json(found))
