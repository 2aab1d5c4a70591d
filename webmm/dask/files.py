"""Products of matrices in files, larger than memory: tile by tile, with several workers, and resumable.

Tiles are written to `C.npy.part` or `C.zarr.part`; `C….part.done` lists the finished tiles after a header that
identifies the product. When all tiles are finished, the `.part` is renamed and the list is deleted.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, as_completed
from numpy.typing import NDArray

from webmm.calls.gemm import gemm
from webmm.calls.gemm import matmul as multiply
from webmm.calls.scaling import Types
from webmm.calls.stream import Progress
from webmm.dask.products import own_device, tile_of
from webmm.dask.workers import RESOURCE, cluster, count
from webmm.dtypes import F64, FLOATS, dtype_of
from webmm.engine.device import Device
from webmm.errors import ConfigError, ProblemError
from webmm.files import load_matrix

ZARR, NPY = ".zarr", ".npy"
SLAB = 2**28  # bytes of Zarr operands that are read at a time
Tile = tuple[int, int]  # the first row and column of a tile


@dataclass(frozen=True)
class Job:
    """A product of two files, written to a third: everything that a worker needs to compute a tile."""

    a: str
    b: str
    part: str
    shape: tuple[int, int, int]
    dtype: str
    tile: tuple[int, int]
    memory: int | None

    def tiles(self) -> list[Tile]:
        """Return all tiles in row-major order."""
        m, n, _ = self.shape
        return [(row, column) for row in range(0, m, self.tile[0]) for column in range(0, n, self.tile[1])]

    def header(self) -> str:
        """Return what must be unchanged to resume a product: sizes, tiles, and the files' time stamps."""
        stamps = [[str(Path(name).resolve()), _stamp(Path(name))] for name in (self.a, self.b)]
        return json.dumps({"shape": self.shape, "dtype": self.dtype, "tile": self.tile, "operands": stamps})


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

    With `workers`, that many processes on this machine compute tiles, each with its own adapter. With a `client`, its
    workers do, which need access to the same files. Otherwise this process does, on `device`. `tile` is the number of
    rows and columns of a tile, by default as planned; `memory` is `Device.memory` of each worker. `progress(done,
    total)` is called after every tile. An interrupted product is resumed if the operands did not change.
    Raises ProblemError for files that are not valid matrices or whose shapes or dtypes differ, ConfigError for an
    output that cannot be written, or that exists (unless `force` is set).
    """
    x, y = opened(a), opened(b)
    if x.dtype != y.dtype:
        raise ProblemError(f"{a} is {x.dtype}, {b} is {y.dtype}; cast one, e.g. x.astype('{x.dtype}')")
    if x.shape[1] != y.shape[0]:
        raise ProblemError(f"{a} has {x.shape[1]} columns, {b} has {y.shape[0]} rows; they must be equal")
    _check_output(c, force)
    sizes = (x.shape[0], y.shape[1], x.shape[1])
    size = x.dtype.itemsize
    rows, columns = tile or tile_of(sizes, Types(size, size), workers)[:2]
    part, done = c.with_name(c.name + ".part"), c.with_name(c.name + ".part.done")
    names = [str(path.resolve()) for path in (a, b, part)]
    job = Job(names[0], names[1], names[2], sizes, str(x.dtype), (min(rows, sizes[0]), min(columns, sizes[1])), memory)
    finished = _finished(job, part, done)
    todo = [each for each in job.tiles() if each not in finished]
    total = len(todo) + len(finished)
    with ExitStack() as stack:
        if workers and client is None and todo:
            client = stack.enter_context(Client(stack.enter_context(cluster(adapters, workers=workers))))
        listing = stack.enter_context(done.open("a", encoding="utf-8"))
        for i, each in enumerate(_computed(job, todo, client, device), len(finished) + 1):
            print(*each, file=listing, flush=True)
            if progress:
                progress(i, total)
    if c.exists():
        shutil.rmtree(c) if c.is_dir() else c.unlink()
    part.rename(c)
    done.unlink()
    return c


def opened(path: Path) -> Any:
    """Return the matrix in a memory-mapped .npy file or in a .zarr folder; raises ProblemError for anything else."""
    if path.suffix != ZARR:
        return load_matrix(path)
    zarr = _zarr()
    try:
        found = zarr.open_array(store=str(path), mode="r")
    except Exception as error:  # the store, the metadata and the codecs raise errors of any type
        raise ProblemError(f"cannot read {path} as a Zarr array: {' '.join(str(error).split())}") from error
    if found.ndim != 2 or 0 in found.shape:
        raise ProblemError(f"{path} has shape {found.shape}; a product takes matrices, 2-D and not empty")
    if found.dtype not in [dtype.numpy for dtype in (*FLOATS, F64)]:
        names = " or ".join(dtype.name for dtype in (*FLOATS, F64))
        raise ProblemError(f"{path} holds {found.dtype}; cast to {names}, e.g. x.astype('{FLOATS[0].name}')")
    return found


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ConfigError("Zarr files need zarr, which is not installed: pip install 'webmm[dask]'") from error
    return zarr


def _check_output(c: Path, force: bool) -> None:
    if c.suffix not in (ZARR, NPY):
        raise ConfigError(f"the output must be a .npy or .zarr path, not {c}")
    if c.exists() and not force:
        raise ConfigError(f"{c} exists; --force overwrites it")
    if not c.parent.is_dir():
        raise ConfigError(f"cannot write {c}: there is no folder {c.parent}")


def _stamp(path: Path) -> list[int]:
    """Return the time of the last change and the size in bytes, of a file or of all files in a Zarr folder."""
    files = [path, *path.rglob("*")] if path.is_dir() else [path]
    return [max(file.stat().st_mtime_ns for file in files), sum(file.stat().st_size for file in files)]


def _finished(job: Job, part: Path, done: Path) -> set[Tile]:
    """Return the finished tiles; if there are none, or they belong to another product, create a new `.part`."""
    lines = done.read_text(encoding="utf-8").splitlines() if done.exists() and part.exists() else []
    if lines and lines[0] == job.header():
        # The last line may be truncated.
        found = [tuple(map(int, line.split())) for line in lines[1:] if len(line.split()) == 2]
        return {(row, column) for row, column in found} & set(job.tiles())
    if part.is_dir():
        shutil.rmtree(part)
    m, n, _ = job.shape
    nbytes, free = m * n * np.dtype(job.dtype).itemsize, shutil.disk_usage(part.parent).free
    if nbytes > free:  # the system kills a process that writes to a memory map when the disk is full
        raise ConfigError(f"cannot write {part}: it needs {nbytes:,} bytes, the disk has {free:,} left")
    try:
        if part.stem.endswith(ZARR):
            _zarr().create_array(store=str(part), shape=(m, n), chunks=job.tile, dtype=job.dtype)
        else:
            np.lib.format.open_memmap(part, "w+", dtype=np.dtype(job.dtype), shape=(m, n))
        done.write_text(job.header() + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {part}: {error.strerror or error}") from error
    return set()


def _computed(job: Job, todo: list[Tile], client: Client | None, device: Device | None) -> Iterator[Tile]:
    """Compute tiles, and yield each after it is written."""
    if client is None:
        yield from (compute(job, each, device) for each in todo)
        return
    count(client)  # raises if no worker has a device, as the tasks would never start
    tasks = [client.submit(compute, job, each, resources={RESOURCE: 1}, pure=False, retries=2) for each in todo]
    for future in as_completed(tasks):
        yield future.result()


def compute(job: Job, tile: Tile, device: Device | None = None) -> Tile:
    """Compute a tile, write it, and return it."""
    row, column = tile
    m, n, _ = job.shape
    rows, columns = slice(row, min(row + job.tile[0], m)), slice(column, min(column + job.tile[1], n))
    a, b = opened(Path(job.a)), opened(Path(job.b))
    with own_device(memory=job.memory, device=device) as device:
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and not job.part.endswith(ZARR + ".part"):
            c = np.load(job.part, mmap_mode="r+", allow_pickle=False)
            multiply(a[rows], b[:, columns], out=c[rows, columns], device=device)
            c.flush()
            return tile
        found = _in_slabs(a, b, rows, columns, device)
    if job.part.endswith(ZARR + ".part"):
        _zarr().open_array(store=job.part, mode="r+")[rows, columns] = found
    else:
        c = np.load(job.part, mmap_mode="r+", allow_pickle=False)
        c[rows, columns] = found
        c.flush()
    return tile


def _in_slabs(a: Any, b: Any, rows: slice, columns: slice, device: Device) -> NDArray[Any]:
    """Return a tile; reads the operands in slabs along k and accumulates the sum on the device."""
    dtype, k = dtype_of(a.dtype), a.shape[1]
    m, n = rows.stop - rows.start, columns.stop - columns.start
    step = max(1, SLAB // ((m + n) * dtype.itemsize))
    with device.zeros((m, n), dtype.sums) as total:
        for start in range(0, k, step):
            inner = slice(start, min(start + step, k))
            with device.array(a[rows, inner]) as x, device.array(b[inner, columns]) as y:
                gemm(x, y, total, beta=1.0)
        return np.asarray(total.numpy(), dtype.numpy)
