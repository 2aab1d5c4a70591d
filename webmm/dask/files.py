"""Calls on matrices in files, larger than memory: piece by piece, with several workers, and resumable.

Pieces are written to `C.npy.part` or `C.zarr.part`; `C….part.done` lists the finished ones (`webmm.dask.output`). When
all pieces are finished, the `.part` is renamed and the list is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from distributed import Client, as_completed

from webmm.calls.executor import Progress
from webmm.cut.files import side_of
from webmm.cut.pieces import Piece
from webmm.dask.file_op import Arguments
from webmm.dask.ops import op_of_files
from webmm.dask.output import Output
from webmm.dask.products import own_device
from webmm.dask.stored import Corner, FileCall, Written, opened, store
from webmm.dask.workers import RESOURCE, cluster, count
from webmm.engine.device import Device
from webmm.errors import ConfigError, WebmmError


def multiply_files(
    a: Path,
    b: Path,
    c: Path,
    *,
    workers: int = 0,
    adapters: list[str] | None = None,
    client: Client | None = None,
    device: Device | None = None,
    tile: tuple[int, int] | None = None,
    memory: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Write the product of the matrices in `a` and `b` to `c`, each a .npy file or a .zarr folder, and return its path.

    Everything else is as for `apply_to_files()`.
    """
    return apply_to_files(
        *("gemm", (a, b), c),
        workers=workers,
        adapters=adapters,
        client=client,
        device=device,
        tile=tile,
        memory=memory,
        force=force,
        progress=progress,
    )


def apply_to_files(
    op: str,
    operands: Path | Sequence[Path],
    output: Path,
    *,
    axis: int = -1,
    arguments: Arguments | None = None,
    workers: int = 0,
    adapters: list[str] | None = None,
    client: Client | None = None,
    device: Device | None = None,
    tile: int | tuple[int, int] | None = None,
    memory: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Write an op of the matrices in `operands` to `output`, each a .npy file or a .zarr folder, and return its path.

    Arguments:

    - `op`: named as in `webmm bench`: "gemm", the product of two; "quantized", whose `arguments` are those of
      `webmm.qmatmul()`, numbers each; a reduction (reduce:max), a normalisation (softmax), an elementwise function
      (gelu) or a plugin's op of one; "expression", whose argument `expression` is one of `webmm.elementwise()` of the
      operands x, y, z and w, which broadcast.
    - `axis`: of an op of one matrix. Reductions keep the axis, with length 1.
    - `workers`: so many processes on this machine compute pieces, each with its own adapter, those of `adapters` if
      given. With a `client`, its workers do, which need access to the same files. Otherwise this process does, on
      `device`.
    - `tile`: the number of rows and columns of a piece, or one number for the axis that is cut; by default as planned.
      Of an op of one matrix, the axis of the op is never cut.
    - `memory`: `Device.memory` of each worker, in bytes.
    - `force`: replace an existing .npy file or Zarr array.
    - `progress`: called as `progress(done, total)` after every piece.

    An interrupted call is resumed if op, arguments and operands did not change.
    Raises ProblemError for files that are not valid matrices, whose shapes or dtypes do not fit, or that change
    meanwhile, and for another axis; ConfigError for other ops or arguments, for a plugin's op with workers, for an
    output that cannot be written, that another run is writing, or that exists, and for files beside it named `.part…`
    that are not from an unfinished run.
    """
    paths = [operands] if isinstance(operands, Path) else list(operands)
    call = op_of_files(op, side_of(axis), arguments)
    found = [opened(path, dtypes=call.dtypes) for path in paths]
    shape, dtype = call.result(found, paths)
    if (workers or client) and call.from_plugin:
        raise ConfigError(f"op {op} is from a plugin, which does not reach workers; leave them out")
    target = Output(output, tuple(paths), force)
    rows, columns = call.lengths(found, shape, workers)
    if tile is not None:
        rows, columns = call.tiled(tile, (rows, columns))
    job = FileCall(
        tuple(str(path.resolve()) for path in paths),
        str(target.part),
        target.zarr,
        shape,
        dtype,
        (min(rows, shape[0]), min(columns, shape[1])),
        memory,
        call.name,
        call.axis,
        tuple(sorted(call.arguments.items())),
        tuple(map(str, call.sources)),
    )
    return _run(job, target, workers, adapters, client, device, progress)


def _run(
    job: FileCall,
    output: Output,
    workers: int,
    adapters: list[str] | None,
    client: Client | None,
    device: Device | None,
    progress: Progress | None,
) -> Path:
    """Compute the pieces that are not finished, write them, and return the path of the output.

    If the first piece cannot be computed, no file is left.
    """
    with output.locked():
        count = len(finished := output.resume(job))
        job = replace(job, run=output.run)
        todo = [each for each in job.corners() if each not in finished]
        try:
            with ExitStack() as stack:
                if workers and client is None and todo:
                    client = stack.enter_context(Client(stack.enter_context(cluster(adapters, workers=workers))))
                for each in _computed(job, todo, client, device):
                    output.add(each)
                    count += 1
                    if progress:
                        progress(count, len(finished) + len(todo))
        except WebmmError:
            if not count:  # such as a dtype that the device does not support
                output.abandon(job)
            raise
        output.finish(job)
    return output.path


def _computed(job: FileCall, todo: list[Corner], client: Client | None, device: Device | None) -> Iterator[Written]:
    """Compute pieces, and yield each after it is written."""
    if client is None:
        yield from (compute(job, each, device) for each in todo)
        return
    count(client)  # raises if no worker has a device, as the tasks would never start
    tasks = [client.submit(compute, job, each, resources={RESOURCE: 1}, pure=False, retries=2) for each in todo]
    for future in as_completed(tasks):
        yield future.result()


def compute(job: FileCall, corner: Corner, device: Device | None = None) -> Written:
    """Compute a piece, write it, and return it with its checksum."""
    call = op_of_files(job.op, job.axis, dict(job.arguments))
    (m, n), operands = job.slices(corner), [opened(Path(name), dtypes=call.dtypes) for name in job.operands]
    piece = Piece({"m": (m.start, m.stop), "n": (n.start, n.stop)})
    with own_device(memory=job.memory, device=device) as device:
        return store(job, corner, call.piece(operands, piece, device))
