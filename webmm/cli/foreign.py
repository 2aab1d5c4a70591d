"""Commands for shaders from outside webmm: WGSL files that the user wrote."""

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
    """Check and time a WGSL shader of your own.

    The shader computes C = A·B of dense row-major matrices. docs/extending.md describes what it may contain.
    """


def of_text(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that describe a WGSL file and its dispatch; it receives them as `foreign`."""

    @click.argument("file", type=click.Path(path_type=Path))
    @click.option("--bindings", default="a,b,c", show_default=True, help="The matrices, in binding order.")
    @click.option("--uniform", default="", help="Members of the uniform at binding 0, all u32: m,n,k.")
    @click.option("--constants", default="", help="Constants in the shader that hold m, n and k, such as M,N,K.")
    @click.option("--workgroup", required=True, help="Workgroup size along x, y, z, such as 16,16.")
    @click.option("--grid", required=True, help="Workgroups along x, y, z, such as n/16,m/16; divisions round up.")
    @click.option("--entry", default="main", show_default=True, help="Entry point.")
    @click.option("--dtype", default="float32", show_default=True, help="Of all matrices: float32 or float16.")
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
    """Return the comma-separated words of "a,b,c"."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def invocations(text: str) -> tuple[int, int, int]:
    """Return the workgroup size (x, y, z) in "16,16".

    Raises ConfigError unless `text` holds one to three numbers of at least 1.
    """
    numbers = [whole(part.strip()) for part in text.split(",")]
    if len(numbers) > 3 or not all(numbers):
        raise ConfigError(f"a workgroup size is one to three numbers of at least 1, such as 16,16, not {text!r}")
    x, y, z = (*(number or 1 for number in numbers), 1, 1)[:3]
    return x, y, z


def matrices(text: str) -> list[tuple[int, int, int]]:
    """Return (m, n, k) of each size in "64,65x67x63"; raises ProblemError for other texts and for batches."""
    sizes = parse_sizes(text)
    if any(len(size) > 3 for size in sizes):
        raise ProblemError(f"batches are not supported here: leave the batch out of {text!r}")
    return [size[:3] for size in sizes]


@kernel.command()
@of_text
@click.option(
    "--sizes", help="Sizes M×N×K, such as 64,65x67x63. Default: several, most of them no multiple of common tile sizes."
)
@on_device()
@click.pass_context
def check(ctx: click.Context, foreign: Foreign, sizes: str | None, dtype: str, open_device: Open) -> None:
    """Check the shader in FILE against NumPy.

    The memory around the operands and the result is poisoned, to find accesses out of bounds. On a CPU adapter, the
    shader also runs with its invocations in both orders, to find missing barriers. Exits with code 1 if an error is
    found.
    """
    from webmm.report.foreign import run_check

    wanted = matrices(sizes) if sizes else None
    ctx.exit(0 if run_check(open_device, foreign, wanted, dtype) else 1)


@kernel.command()
@of_text
@click.option("--sizes", default="256,512", show_default=True, help="Sizes M×N×K, such as 256,333x257x129.")
@click.option("--kernels", help="Kernels to compare with, such as naive,blocked. Default: the whole ladder.")
@on_device()
@BUDGET
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write records as JSON.")
@click.pass_context
def bench(
    ctx: click.Context,
    foreign: Foreign,
    sizes: str,
    dtype: str,
    kernels: str | None,
    open_device: Open,
    budget: float,
    json_file: Path | None,
) -> None:
    """Time the shader in FILE and compare it with webmm's kernels.

    Exits with code 1 if the shader does not compile or its result is wrong.
    """
    from webmm import report
    from webmm.measure import records
    from webmm.report.foreign import run_bench

    check_outputs([json_file] if json_file else [], None)
    compared = parse_kernels(kernels) if kernels else None
    found = run_bench(open_device, foreign, compared, matrices(sizes), dtype, budget)
    if json_file:
        records.save(json_file, records.to_json(found, **records.provenance()))
    ctx.exit(0 if report.right(found) else 1)
