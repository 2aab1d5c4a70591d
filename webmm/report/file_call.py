"""Output of `webmm run` for calls computed piece by piece: a progress bar and a line that describes the result."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from webmm.errors import ConfigError
from webmm.text import amount

if TYPE_CHECKING:
    from webmm.dask.file_op import Arguments
    from webmm.report import Open


def compute(
    op: str,
    axis: int,
    arguments: Arguments,
    operands: tuple[Path, ...],
    output: Path,
    workers: int,
    adapters: list[str] | None,
    memory: str | None,
    force: bool,
    open_device: Open,
) -> str:
    """Write an op of the operands to `output` and return a line that describes it.

    `adapters` names an adapter per worker; without workers, `open_device` opens the device of this process. `memory` is
    an amount such as "8GB". Raises as `webmm.dask.apply_to_files()` does.
    """
    room = None if memory is None else amount(memory)
    if memory is not None and (room is None or room < 1):
        raise ConfigError(f"--memory is an amount such as 8GB, not {memory!r}")
    from webmm.dask.files import apply_to_files

    began = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        nullcontext() if workers else open_device() as device,
        Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as bar,
    ):
        task = bar.add_task(output.name, total=None)
        apply_to_files(
            *(op, operands, output),
            axis=axis,
            arguments=arguments,
            workers=workers,
            adapters=adapters,
            device=device,
            memory=None if room is None else int(room),
            force=force,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    by = f"{workers} workers" if workers else "this process"
    return f"{output}: by {by} in {time.monotonic() - began:.1f} s"
