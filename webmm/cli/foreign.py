"""Commands for shaders from outside webmm: WGSL files that the user wrote."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webmm.cli.options import (
    AT,
    BUDGET,
    STEPS,
    budget,
    check_outputs,
    on_device,
    parse_kernels,
    parse_sizes,
    places,
    shown_steps,
)
from webmm.errors import ConfigError, ProblemError
from webmm.problems import DEFAULT_OP

if TYPE_CHECKING:
    from webmm.foreign import Foreign
    from webmm.foreign.tasks import OfOp, Size, Work
    from webmm.report import Open

ERROR = click.FloatRange(min=0)


@click.group()
def kernel() -> None:
    """Check, time, tune and debug a WGSL shader of your own.

    The shader computes C = A·B of dense row-major matrices, another op's problem (--problem), or the array in a file
    (--inputs and --expect). docs/extending.md describes what it may contain.
    """


def of_text(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that describe a WGSL file, its dispatch and what it computes: `foreign` and `work`."""

    @click.argument("file", type=click.Path(path_type=Path))
    @click.option("--problem", default=DEFAULT_OP, show_default=True, help="The op that it computes: reduce:max.")
    @click.option("--inputs", metavar="A.npy,B.npy", help="Operands in files, called a, b, …; with --expect.")
    @click.option("--expect", type=click.Path(path_type=Path), help=".npy file with the result for --inputs.")
    @click.option("--rtol", type=ERROR, help="Error allowed in --expect, relative to each element.")
    @click.option("--atol", type=ERROR, help="Error allowed in --expect, added to that.")
    @click.option("--bindings", help="The buffers, in binding order. Default: a,b,c, or in the problem's order.")
    @click.option("--uniform", default="", help="Members of the uniform at binding 0, all u32: m,n,k.")
    @click.option("--constants", default="", help="Constants in the shader that hold m, n and k, such as M,N,K.")
    @click.option("--tunable", "tunables", multiple=True, metavar="NAME=V,…", help="A constant to set, and its values.")
    @click.option("--workgroup", required=True, help="Workgroup size along x, y, z, such as 16,16 or BN/TN,BM/TM.")
    @click.option("--grid", required=True, help="Workgroups along x, y, z, such as n/16,m/16; divisions round up.")
    @click.option("--entry", default="main", show_default=True, help="Entry point.")
    @click.option("--dtype", default="", help="Of the operands of --problem. Default: the op's first, float32.")
    @functools.wraps(command)
    def run(
        file: Path,
        problem: str,
        inputs: str | None,
        expect: Path | None,
        rtol: float | None,
        atol: float | None,
        bindings: str | None,
        uniform: str,
        constants: str,
        tunables: tuple[str, ...],
        workgroup: str,
        grid: str,
        entry: str,
        dtype: str,
        **options: Any,
    ) -> None:
        from webmm.files import read_text
        from webmm.foreign import Foreign
        from webmm.foreign.counts import WORKGROUP, Counts
        from webmm.foreign.tunables import tunables_of

        text, values = read_text(file), tunables_of(tunables)
        work = work_of(problem, dtype, inputs, expect, rtol, atol)
        known = work.signature
        foreign = Foreign(
            file.name if file.suffix else f"{file.name}.wgsl",  # a record's name is never that of a stage
            text,
            names(bindings or "") or known.buffers,
            Counts(workgroup, tuple(values), WORKGROUP),
            Counts(grid, (*known.lengths, *values)),
            names(uniform),
            names(constants),
            entry,
            known,
            values,
        )
        command(foreign=foreign, work=work, **options)

    return run


def work_of(
    problem: str, dtype: str, inputs: str | None, expect: Path | None, rtol: float | None, atol: float | None
) -> Work:
    """Return what a text computes: problems of an op, or the result in a file; raises ConfigError for both at once."""
    from webmm.cases import op_of
    from webmm.foreign.tasks import OfFiles, OfOp

    if (inputs is None) != (expect is None):
        raise ConfigError("--inputs names the operands and --expect the result: give both, or neither")
    if inputs is None or expect is None:
        if rtol is not None or atol is not None:
            raise ConfigError("--rtol and --atol are for --expect; the bound of a problem comes from its op")
        return OfOp(op_of(problem), dtype)
    if problem != DEFAULT_OP or dtype:
        raise ConfigError("--inputs says what is computed, and of which type: leave --problem and --dtype out")
    if not all(math.isfinite(error or 0) for error in (rtol, atol)):
        raise ConfigError("--rtol and --atol are finite numbers: every result would be within inf, and none within nan")
    return OfFiles([Path(name) for name in names(inputs)], expect, rtol, atol)


def names(text: str) -> tuple[str, ...]:
    """Return the comma-separated words of "a,b,c"."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def wanted(text: str | None, foreign: Foreign, work: Work, default: int | None = None) -> list[Size]:
    """Return the sizes (m, n, k) in "64,65x67x63", or the first `default` of those that are checked.

    Of an op of rows, a text that takes no k is not checked with columns. Raises ProblemError for other texts, for
    batches, and for sizes of arrays in files.
    """
    if text is None:
        rows = not work.fixed and op_in(work).op.axes < 3 and not {"k", "K"} & {*foreign.uniform, *foreign.constants}
        return [size for size in work.sizes if size[2] == 1 or not rows][:default]
    if work.fixed:
        raise ProblemError("the arrays of --inputs have one size: leave the sizes out")
    sizes = parse_sizes(text, op_in(work).op.name)
    if any(len(size) > 3 for size in sizes):
        raise ProblemError(f"batches are not supported here: leave the batch out of {text!r}")
    return [size[:3] for size in sizes]


def op_in(work: Work) -> OfOp:
    """Return `work` as problems of an op; raises ConfigError for files."""
    from webmm.foreign.tasks import OfOp

    if not isinstance(work, OfOp):
        raise ConfigError("this draws operands of an op: name it with --problem, and leave --inputs out")
    return work


@kernel.command()
@of_text
@click.option(
    "--sizes", help="Sizes M×N×K, such as 64,65x67x63. Default: several, most of them no multiple of common tile sizes."
)
@on_device()
@click.pass_context
def check(ctx: click.Context, foreign: Foreign, work: Work, sizes: str | None, open_device: Open) -> None:
    """Check the shader in FILE against NumPy.

    The memory around the operands and the result is poisoned, to find accesses out of bounds. On a CPU adapter, the
    shader also runs with its invocations in both orders, to find missing barriers. Exits with code 1 if an error is
    found.
    """
    from webmm.report.foreign import run_check

    ctx.exit(0 if run_check(open_device, foreign, work, wanted(sizes, foreign, work)) else 1)


@kernel.command()
@of_text
@click.option("--sizes", help="Sizes M×N×K, such as 256,333x257x129. Default: 256,512 for products.")
@click.option("--kernels", help="Kernels to compare with, such as naive,blocked. Default: the whole ladder.")
@on_device()
@BUDGET
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write records as JSON.")
@click.pass_context
def bench(
    ctx: click.Context,
    foreign: Foreign,
    work: Work,
    sizes: str | None,
    kernels: str | None,
    open_device: Open,
    budget: float,
    json_file: Path | None,
) -> None:
    """Time the shader in FILE and compare it with webmm's kernels.

    Exits with code 1 if the shader does not compile or its result is wrong.
    """
    from webmm import report
    from webmm.report.foreign import run_bench

    check_outputs([json_file] if json_file else [], None)
    compared = parse_kernels(kernels, op_in(work).op.name) if kernels else None
    usual = "256,512" if not work.fixed and op_in(work).op.name == DEFAULT_OP else None
    found = run_bench(open_device, foreign, work, compared, wanted(sizes or usual, foreign, work, 2), budget)
    save(json_file, found)
    ctx.exit(0 if report.right(found) else 1)


@kernel.command()
@of_text
@click.option("--size", help="Size M×N×K to be fast at, such as 1024. Default: 256 for products.")
@on_device()
@budget(60)
@click.option("-o", "--json", "json_file", type=click.Path(path_type=Path), help="Write all records as JSON.")
@click.pass_context
def tune(
    ctx: click.Context,
    foreign: Foreign,
    work: Work,
    size: str | None,
    open_device: Open,
    budget: float,
    json_file: Path | None,
) -> None:
    """Search the values of --tunable for the fastest combination.

    Each combination is checked before it is timed; the first values come first, the others in random order until
    the budget is spent. Prints the fastest, the reasons of those that failed, and the options of the best one.
    Exits with code 1 if no combination is right.
    """
    from webmm.report.foreign import run_tune

    check_outputs([json_file] if json_file else [], None)
    usual = "256" if not work.fixed and op_in(work).op.name == DEFAULT_OP else None
    sizes = wanted(size or usual, foreign, work, 1)
    if len(sizes) > 1:
        raise ProblemError(f"a search is for one size, not {size!r}")
    found = run_tune(open_device, foreign, work, sizes[0], budget)
    save(json_file, found)
    ctx.exit(0 if any(record.status == "ok" for record in found) else 1)


def save(path: Path | None, found: list[Any]) -> None:
    """Write records to a file, if one is wanted."""
    from webmm.measure import records

    if path:
        records.save(path, records.to_json(found, **records.provenance()))


@kernel.command()
@of_text
@click.option("--size", help="Size M×N×K. Default: the first that is checked.")
@AT
@STEPS
@on_device("cpu")
@click.option("--json", "as_json", is_flag=True, help="Print all steps as JSON.")
@click.pass_context
def debug(
    ctx: click.Context,
    foreign: Foreign,
    work: Work,
    size: str | None,
    elements: tuple[str, ...],
    steps: str | None,
    open_device: Open,
    as_json: bool,
) -> None:
    """Show how the shader in FILE computes one element, step by step.

    Comments such as //dbg(ACC, row, col, k, sum); in the text say what is shown: docs/debugging.md describes them, and
    the output, which is that of `webmm debug`. Exits with code 1 if a value is wrong.
    """
    from webmm.foreign.trace import inspect
    from webmm.report import debug as report

    of_op = op_in(work)
    at, shown = places(elements, of_op.op), shown_steps(steps)
    sizes = wanted(size, foreign, work, 1)
    if len(sizes) > 1:
        raise ProblemError(f"elements are of one size, not {size!r}")
    right = report.run(open_device, lambda device: inspect(foreign, device, of_op, sizes[0], at), shown, as_json)
    ctx.exit(0 if right else 1)
