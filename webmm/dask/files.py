"""Calls on matrices in files, larger than memory: piece by piece, with several workers, and resumable.

Pieces are written to `C.npy.part` or `C.zarr.part`; `C….part.done` lists the finished ones (`webmm.dask.output`). When
all pieces are finished, the `.part` is renamed and the list is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, as_completed
from numpy.typing import NDArray

from webmm.calls.executor import Progress
from webmm.calls.gemm import gemm
from webmm.calls.gemm import matmul as multiply
from webmm.cut.devices import Types
from webmm.dask.ops import OWN, op_for_files, result_of, result_shape
from webmm.dask.output import Output
from webmm.dask.products import own_device, task_sizes
from webmm.dask.stored import Corner, FileCall, Written, opened, store
from webmm.dask.workers import RESOURCE, cluster, count
from webmm.dtypes import dtype_of
from webmm.engine.device import Device
from webmm.errors import ConfigError, ProblemError, WebmmError

READ = 2**28  # bytes that are read at a time: of Zarr operands, or of the operand of an op


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

    With `workers`, that many processes on this machine compute pieces, each with its own adapter. With a `client`, its
    workers do, which need access to the same files. Otherwise this process does, on `device`. `tile` is the number of
    rows and columns of a piece, by default as planned; `memory` is `Device.memory` of each worker. `progress(done,
    total)` is called after every piece. An interrupted product is resumed if the operands did not change.
    Raises ProblemError for files that are not valid matrices or whose shapes or dtypes differ, or that change
    meanwhile; ConfigError for an output that cannot be written, that another run is writing, or that exists (`force`
    replaces a .npy file or a Zarr array), and for files beside it named `.part…` that are not from an unfinished run.
    """
    x, y = opened(a), opened(b)
    if x.dtype != y.dtype:
        raise ProblemError(f"{a} is {x.dtype}, {b} is {y.dtype}; cast one, e.g. x.astype('{x.dtype}')")
    if x.shape[1] != y.shape[0]:
        raise ProblemError(f"{a} has {x.shape[1]} columns, {b} has {y.shape[0]} rows; they must be equal")
    output = Output(c, (a, b), force)
    sizes = (x.shape[0], y.shape[1], x.shape[1])
    size = x.dtype.itemsize
    rows, columns = tile or task_sizes(sizes, Types(size, size), workers)[:2]
    names = [str(path.resolve()) for path in (a, b)]
    cut = (min(rows, sizes[0]), min(columns, sizes[1]))
    job = FileCall(names[0], names[1], str(output.part), output.zarr, sizes, str(x.dtype), cut, memory)
    return _run(job, output, workers, adapters, client, device, progress)


def apply_to_file(
    op: str,
    x: Path,
    y: Path,
    *,
    axis: int = -1,
    workers: int = 0,
    adapters: list[str] | None = None,
    client: Client | None = None,
    device: Device | None = None,
    tile: int | None = None,
    memory: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Write an op along an axis of the matrix in `x` to `y`, each a .npy file or a .zarr folder, and return its path.

    `op` is a reduction, a normalisation, an elementwise function or a plugin's op of one array, as in `webmm bench`:
    reduce:max, normalise:softmax. Reductions keep the axis, with length 1. `tile` is the number of rows, or for axis 0
    of columns, of a piece. Everything else, interruptions included, is as for `multiply_files()`. Raises ConfigError
    for other ops, and for a plugin's op with workers; ProblemError for another axis; otherwise as `multiply_files()`.
    """
    row, found, axis = op_for_files(op), opened(x), _axis(axis)
    m, n = found.shape
    if (workers or client) and row.name not in OWN:
        raise ConfigError(f"op {op} is from a plugin, which does not reach workers; leave them out")
    (rows, columns), dtype = result_shape(row, found.shape, axis, found.dtype)
    output = Output(y, (x,), force)
    across = (n if axis else m) * found.dtype.itemsize  # bytes of a row, or of a column
    length = max(1, READ // across) if tile is None else tile
    if length < 1:
        raise ProblemError(f"a piece has at least one row or column, not {tile}")
    lengths = (min(length, rows), columns) if axis else (rows, min(length, columns))
    named = f"{row.name}:{row.variant}" if row.variant else row.name
    name, shape = str(x.resolve()), (rows, columns, (m, n)[axis])
    job = FileCall(
        name,
        "",
        str(output.part),
        output.zarr,
        shape,
        dtype,
        lengths,
        memory,
        named,
        axis,
    )
    return _run(job, output, workers, adapters, client, device, progress)


def _axis(axis: int) -> int:
    if axis not in (-2, -1, 0, 1):
        raise ProblemError(f"axis {axis} is out of range for a matrix; choose 0 or 1")
    return axis % 2


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
    rows, columns = job.slices(corner)
    with own_device(memory=job.memory, device=device) as device:
        if job.op:
            x = opened(Path(job.a))
            return store(job, corner, result_of(job.op, x[rows] if job.axis else x[:, columns], job.axis, device))
        a, b = opened(Path(job.a)), opened(Path(job.b))
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            found = multiply(a[rows], b[:, columns], device=device)
        else:
            found = _along_k(a, b, rows, columns, device)
    return store(job, corner, found)


def _along_k(a: Any, b: Any, rows: slice, columns: slice, device: Device) -> NDArray[Any]:
    """Return a piece; reads the operands in pieces along k and accumulates the sum on the device."""
    dtype, k = dtype_of(a.dtype), a.shape[1]
    m, n = rows.stop - rows.start, columns.stop - columns.start
    step = max(1, READ // ((m + n) * dtype.itemsize))
    with device.zeros((m, n), dtype.sums) as total:
        for start in range(0, k, step):
            inner = slice(start, min(start + step, k))
            with device.array(a[rows, inner]) as x, device.array(b[inner, columns]) as y:
                gemm(x, y, total, beta=1.0)
        return np.asarray(total.numpy(), dtype.numpy)
