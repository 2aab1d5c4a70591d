"""A call on files in pieces: what a worker needs to know, and the matrices in files that it reads and writes."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.cut.pieces import ranges
from webmm.dtypes import BOOL, I8, I32, REALS, U8, DType
from webmm.errors import ConfigError, ProblemError
from webmm.files import cast, load_matrix, reading, writing

ZARR = ".zarr"
SCHEMA = "webmm.pieces/1"
STORED = (*REALS, I32, I8, U8, BOOL)  # element types of results
END = 2**20  # bytes at the beginning and at the end of an operand that identify it
# Files of a Zarr array: metadata, and chunks, whose writing may have been cut off.
ZARR_FILE = re.compile(
    r"zarr\.json|\.z(array|attrs|metadata)|c|(c[./])?\d+([./]\d+)*|.*\.[0-9a-f]{32}\.partial", re.DOTALL
)
Corner = tuple[int, int]  # the first row and column of a piece of C
Written = tuple[int, int, int]  # … and the checksum of its bytes


@dataclass(frozen=True)
class FileCall:
    """An op of matrices in files: everything that a worker needs to compute a piece."""

    operands: tuple[str, ...]
    part: str
    zarr: bool  # whether `part` is a Zarr folder
    shape: tuple[int, int]  # of the result
    dtype: str
    lengths: tuple[int, int]  # the rows and columns of a piece
    memory: int | None
    op: str  # NAME or NAME:VARIANT
    axis: int = 1
    arguments: tuple[tuple[str, Any], ...] = ()  # numbers and words by name
    sources: tuple[str, ...] = ()  # files that say what is computed, if they are not webmm's
    run: str = ""  # names what began the `.part`, as its list says

    def corners(self) -> list[Corner]:
        """Return the pieces in row-major order."""
        m, n = self.shape
        return [
            (row, column)
            for (row, _), (column, _) in itertools.product(ranges(m, self.lengths[0]), ranges(n, self.lengths[1]))
        ]

    def has(self, corner: Corner) -> bool:
        """Return whether there is such a piece."""
        return all(at in range(0, size, step) for at, size, step in zip(corner, self.shape, self.lengths, strict=True))

    def slices(self, corner: Corner) -> tuple[slice, slice]:
        """Return the rows and columns of a piece."""
        (row, column), (rows, columns), (m, n) = corner, self.lengths, self.shape
        return slice(row, min(row + rows, m)), slice(column, min(column + columns, n))

    def nbytes(self, corner: Corner) -> int:
        """Return the size of a piece in bytes."""
        rows, columns = self.slices(corner)
        return int((rows.stop - rows.start) * (columns.stop - columns.start) * np.dtype(self.dtype).itemsize)

    def header(self, part: int, run: str) -> dict[str, Any]:
        """Return what must be unchanged to resume a call; `part` is the number of the `.part` in its file system."""
        operands = [[name, *fingerprint(Path(name))] for name in (*self.operands, *self.sources)]
        call = {"op": self.op, "axis": self.axis, "arguments": [list(each) for each in self.arguments]}
        known = call | {"shape": list(self.shape), "dtype": self.dtype, "tile": list(self.lengths), "zarr": self.zarr}
        return {"schema": SCHEMA, **known, "operands": operands, "part": part, "run": run}

    @classmethod
    def of(cls, header: dict[str, Any]) -> FileCall:
        """Return the job of a header, without its files; raises ValueError, TypeError or KeyError if it is invalid."""
        (m, n), (rows, columns) = header["shape"], header["tile"]
        numbers = (m, n, rows, columns, header["part"])
        if not (header["schema"] == SCHEMA and all(type(number) is int and number > 0 for number in numbers)):
            raise ValueError("the header is invalid")
        if not isinstance(header["op"], str) or not isinstance(header["run"], str):
            raise ValueError("the header is invalid")
        if header["dtype"] not in [dtype.name for dtype in STORED] or not isinstance(header["zarr"], bool):
            raise ValueError("the header is invalid")
        return cls((), "", header["zarr"], (m, n), header["dtype"], (rows, columns), None, header["op"])


def fingerprint(path: Path) -> tuple[int, int, str]:
    """Return size, time of the last change, and a hash of both ends, for a file or for all files in a Zarr folder.

    Raises ProblemError if they cannot be read.
    """
    with reading(path):
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        found = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        digest = hashlib.sha256(repr(found).encode())
        with files[0].open("rb") as first, files[-1].open("rb") as last:
            digest.update(first.read(END))
            last.seek(-min(END, found[-1][1]), os.SEEK_END)
            digest.update(last.read())
    return sum(size for _, size, _ in found), max(time for _, _, time in found), digest.hexdigest()


def zarr_library() -> Any:
    """Return the module zarr; raises ConfigError if it is not installed."""
    try:
        import zarr
    except ImportError as error:
        raise ConfigError("Zarr files need zarr, which is not installed: pip install 'webmm[dask]'") from error
    return zarr


def is_zarr_array(folder: Path) -> bool:
    """Return whether `folder` holds one Zarr array, and no other files."""
    try:
        zarr_library().open_array(store=str(folder), mode="r")
    except ConfigError:
        raise
    except Exception:  # as for opened()
        return False
    files = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return all(ZARR_FILE.fullmatch(path.relative_to(folder).as_posix()) for path in files)


def opened(path: Path, zarr: bool | None = None, dtypes: tuple[DType, ...] = REALS) -> Any:
    """Return the matrix in a memory-mapped .npy file or in a .zarr folder; raises ProblemError for anything else.

    `zarr` says which it is, by default the suffix.
    """
    if not (path.suffix == ZARR if zarr is None else zarr):
        return load_matrix(path, dtypes)
    library = zarr_library()
    try:
        found = library.open_array(store=str(path), mode="r")
    except Exception as error:  # the store, the metadata and the codecs raise errors of any type
        raise ProblemError(f"cannot read {path} as a Zarr array: {' '.join(str(error).split())}") from error
    if found.ndim != 2 or 0 in found.shape:
        raise ProblemError(f"{path} has shape {found.shape}; webmm reads matrices, 2-D and not empty")
    if found.dtype not in [dtype.numpy for dtype in dtypes]:
        names = " or ".join(dtype.name for dtype in dtypes)
        raise ProblemError(f"{path} holds {found.dtype}; cast to {names}, e.g. {cast(dtypes[0])}")
    return found


def checksum(values: Any) -> int:
    """Return the checksum of the bytes of an array in C order."""
    return zlib.crc32(np.ascontiguousarray(values).data)


def store(job: FileCall, corner: Corner, values: NDArray[Any]) -> Written:
    """Write a piece to the `.part`, and return it with its checksum once it is on the disk.

    Raises ConfigError if it cannot be written, such as for a full disk, or if the `.part` is that of another run: a
    task may still run when the run that began it was interrupted.
    """
    values = np.ascontiguousarray(values)
    rows, columns = job.slices(corner)
    if values.shape != (rows.stop - rows.start, columns.stop - columns.start) or values.dtype != job.dtype:
        raise ConfigError(f"op {job.op} gave {values.dtype} of shape {values.shape} for the piece at {corner}")
    with writing(Path(job.part)):
        if run_of(Path(f"{job.part}.done")) != job.run:
            raise ConfigError(f"{job.part} is that of another run by now")
        (_store_in_zarr if job.zarr else _store_in_npy)(job, corner, values)
    return *corner, checksum(values)


def _store_in_npy(job: FileCall, corner: Corner, values: NDArray[Any]) -> None:
    """Write by system calls: with a memory map, a full disk would kill the process."""
    rows, columns = job.slices(corner)
    matrix: Any = load_matrix(Path(job.part), STORED)
    start, n = matrix.offset, job.shape[1]
    lines = values if values.shape[1] < n else values.reshape(1, -1)
    with open(job.part, "r+b") as file:
        for i, line in enumerate(lines, rows.start):
            file.seek(start + (i * n + columns.start) * values.itemsize)
            file.write(line.data)
        file.flush()
        os.fsync(file.fileno())


def run_of(done: Path) -> str:
    """Return what a list of finished pieces says of its run, "" if there is no such list."""
    try:
        with done.open("rb") as file:
            return str(json.loads(file.readline())["run"])
    except (OSError, ValueError, KeyError):
        return ""


def _store_in_zarr(job: FileCall, corner: Corner, values: NDArray[Any]) -> None:
    array = zarr_library().open_array(store=job.part, mode="r+")
    array[job.slices(corner)] = values
    chunk = Path(job.part) / array.metadata.encode_chunk_key(
        tuple(at // size for at, size in zip(corner, job.lengths, strict=True))
    )
    if chunk.exists():  # zeros are not stored
        with chunk.open("rb") as file:
            os.fsync(file.fileno())
