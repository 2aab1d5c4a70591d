"""The unfinished output of a call in pieces: `C.npy.part` or `C.zarr.part`, and the list of its finished pieces.

The list, `C….part.done`, begins with a header: what is multiplied, and which file or folder is its `.part`. A line for
each piece follows once its data are on the disk. A `.part` that does not agree with its list is not webmm's, and is not
touched. `C….part.lock` is locked during a run; the system unlocks it when the process ends, however it ends.
`C.zarr.part.old` is an array that is being replaced.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from webmm.dask.stored import (
    STORED,
    ZARR,
    Corner,
    FileCall,
    Written,
    checksum,
    is_zarr_array,
    opened,
    run_of,
    zarr_library,
)
from webmm.errors import ConfigError, ProblemError
from webmm.files import check_output, is_stream, write_atomically, writing

BESIDE = (".part", ".part.done", ".part.lock", ".part.old")
DISCARDED = "discarded"  # a line of the list: the `.part` is being deleted


@dataclass(frozen=True)
class List:
    """The list of finished pieces: a header, pieces with their checksums, and what happened to the folders."""

    job: FileCall
    header: dict[str, Any]
    finished: dict[Corner, int]
    old: int | None  # the number of the folder that is being replaced
    discarded: bool
    nbytes: int  # without a last line that was cut off

    @classmethod
    def parse(cls, text: bytes) -> List:
        """Return the list in `text`; raises ValueError, TypeError or KeyError if it is not a valid one."""
        whole = text[: text.rfind(b"\n") + 1]
        header, *notes = (json.loads(line) for line in whole.splitlines())
        job = FileCall.of(header)
        finished: dict[Corner, int] = {}
        old, discarded = None, False
        for note in notes:
            match note:
                case [int(row), int(column), int(total)] if job.has((row, column)):
                    finished[row, column] = total
                case {"old": int(number)}:
                    old = number
                case _ if note == DISCARDED:
                    discarded = True
                case _:
                    raise ValueError(f"invalid line: {note}")
        return cls(job, header, finished, old, discarded, len(whole))


class Output:
    """The output of a call in pieces, and the files beside it; `force` allows to replace a .npy file or Zarr array.

    Raises ConfigError for a path that cannot be such an output.
    """

    def __init__(self, path: Path, operands: tuple[Path, ...], force: bool) -> None:
        if path.suffix not in (ZARR, ".npy"):
            raise ConfigError(f"the output must be a .npy or .zarr path, not {path}")
        self.path, self.zarr = path, path.suffix == ZARR
        self._operands, self._force = operands, force
        self._target = self._check_output(force=True)
        self.part, self.done, self._lock, self._old = (self._target.with_name(self._target.name + e) for e in BESIDE)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Return a context in which no other run writes to this output.

        Raises ConfigError if another does, or if the output exists and must not be replaced.
        """
        with writing(self.path):
            lock = self._acquired()
        try:
            with writing(self.path):
                self._recover()
                self._check()
            yield
        finally:
            with suppress(OSError):  # an open file cannot be deleted on Windows, but then filelock does
                self._lock.unlink()
            lock.release()

    def _acquired(self) -> filelock.BaseFileLock:
        if os.path.lexists(self._lock) and not (_is_file(self._lock) and not self._lock.lstat().st_size):
            raise self._foreign(self._lock)  # such as a link to a file that locking would truncate
        lock = filelock.FileLock(self._lock, timeout=0)
        try:
            lock.acquire()
            if self._lock.exists():
                return lock
            lock.release()  # the run that held it deleted it and ended just now
        except filelock.Timeout:
            pass
        except NotImplementedError as error:
            raise ConfigError(f"cannot write {self.path}: its file system has no locks") from error
        raise ConfigError(f"another run is writing {self.path}; wait until it has ended, or name another output")

    def _foreign(self, path: Path) -> ConfigError:
        return ConfigError(f"{path} exists, but is not from an unfinished run; move it away, or name another output")

    def _check_output(self, force: bool) -> Path:
        return check_output(self.path, force=force, folders=self.zarr, operands=self._operands, beside=BESIDE)

    def _check(self) -> None:
        """Raise ConfigError if the output must not be replaced."""
        if is_stream(self.path):
            raise ConfigError(f"{self.path} is a pipe or a device; a call in pieces needs a file or a folder")
        self._check_output(self._force)
        if self.zarr and self._target.exists() and not is_zarr_array(self._target):
            raise ConfigError(f"{self.path} is not a Zarr array, or holds other files, too; move it away")

    def _recover(self) -> None:
        """End the replacement of a folder by a run that was killed: undo it, or delete the old folder."""
        if not (self.zarr and os.path.lexists(self._old)):
            return
        found = self._list()
        if not found or found.old != self._old.lstat().st_ino:
            raise self._foreign(self._old)
        if not os.path.lexists(self._target):
            os.rename(self._old, self._target)
        elif os.path.lexists(self.part):
            raise self._foreign(self._old)
        else:
            shutil.rmtree(self._old)

    def _list(self) -> List | None:
        """Return the list of finished pieces, None if there is none; raises ConfigError if it is not a valid one."""
        if not os.path.lexists(self.done):
            return None
        try:
            if not _is_file(self.done):
                raise ValueError("it is not a file")
            return List.parse(self.done.read_bytes())
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise ConfigError(
                f"{self.done} is damaged, or not a list of pieces; to start again, move it and {self.part.name} away"
            ) from error

    @property
    def run(self) -> str:
        """What names the run that began the `.part`; tasks of another do not write to it."""
        return run_of(self.done)

    def _header(self, job: FileCall) -> dict[str, Any]:
        return job.header(self.part.lstat().st_ino, self.run)

    def resume(self, job: FileCall) -> set[Corner]:
        """Return the finished pieces of an interrupted run of this job; if there are none, begin a new `.part`.

        Raises ConfigError for a `.part` or a list that is not from such a run, and for a disk with too little space.
        """
        with writing(self.part):
            found = self._list()
            if os.path.lexists(self.part):
                if not found or not self._agrees(found):
                    raise self._foreign(self.part)
                os.truncate(self.done, found.nbytes)
                if not found.discarded and found.header == self._header(job):
                    self._check_space(
                        sum(job.nbytes(corner) for corner in job.corners() if corner not in found.finished)
                    )
                    return set(found.finished)
                self._discard(found.job)
            self._check_space(sum(map(job.nbytes, job.corners())))
            self._begin(job)
        return set()

    def abandon(self, job: FileCall) -> None:
        """Delete a `.part` without finished pieces, and its list."""
        with writing(self.part):
            self._discard(job)
            self.done.unlink()

    def _discard(self, job: FileCall) -> None:
        self._note(DISCARDED)
        shutil.rmtree(self.part) if job.zarr else self.part.unlink()

    def _agrees(self, found: List) -> bool:
        """Return whether the `.part` is that of its list, with every piece in it."""
        if self.part.is_symlink() or self.part.lstat().st_ino != found.header["part"]:
            return False
        if found.discarded:
            return True
        job = found.job
        try:
            c = opened(self.part, zarr=job.zarr, dtypes=STORED)
            same = c.chunks == job.lengths if job.zarr else _is_plain(c, self.part)
            same = same and (c.shape, c.dtype) == (job.shape, job.dtype)
            return same and all(checksum(c[job.slices(corner)]) == total for corner, total in found.finished.items())
        except Exception:  # as for opened(); also from reading a chunk
            return False

    def _check_space(self, needed: int) -> None:
        free = shutil.disk_usage(self.part.parent).free
        if needed > free:
            raise ConfigError(f"cannot write {self.part}: it needs {needed:,} bytes, the disk has {free:,} left")

    def _begin(self, job: FileCall) -> None:
        """Create an empty `.part`; its list comes first, so that at no moment there is a `.part` of unknown origin."""
        with tempfile.TemporaryDirectory(dir=self.part.parent, prefix=f".{self.part.name}.") as folder:
            new = Path(folder) / "part"
            if self.zarr:
                zarr_library().create_array(store=str(new), shape=job.shape, chunks=job.lengths, dtype=job.dtype)
            else:
                np.lib.format.open_memmap(new, "w+", dtype=np.dtype(job.dtype), shape=job.shape)
            line = json.dumps(job.header(new.lstat().st_ino, secrets.token_hex(8))) + "\n"
            write_atomically(self.done, lambda file: file.write(line.encode()))
            os.rename(new, self.part)

    def add(self, piece: Written) -> None:
        """List a piece as finished; raises ConfigError if that fails."""
        with writing(self.done):
            self._note(piece)

    def _note(self, note: object) -> None:
        """Append a line to the list."""
        with self.done.open("ab") as file:
            file.write(json.dumps(note).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def finish(self, job: FileCall) -> None:
        """Rename the `.part`, whose pieces are all finished, to the output, and delete the list.

        Raises ProblemError if an operand changed since the beginning, ConfigError if the output cannot be replaced.
        """
        with writing(self.path):
            found = self._list()
            if not found or found.header != self._header(job):
                raise ProblemError(f"{' or '.join(job.operands)} changed meanwhile; run this again")
            self._check()
            if self.zarr:
                self._replace_folder()
            else:
                os.replace(self.part, self._target)
            self.done.unlink()

    def _replace_folder(self) -> None:
        for path in self.part.rglob("*.partial"):
            path.unlink()  # chunks whose writing was cut off
        replaced = self._target.exists()
        if replaced:
            self._note({"old": self._target.lstat().st_ino})
            os.rename(self._target, self._old)
        try:
            os.rename(self.part, self._target)
        except OSError:
            if replaced:
                os.rename(self._old, self._target)
            raise
        if replaced:
            shutil.rmtree(self._old)


def _is_plain(matrix: Any, path: Path) -> bool:
    """Return whether a memory map's file holds its header and its rows, and nothing else."""
    return bool(matrix.flags.c_contiguous and matrix.offset + matrix.nbytes == path.stat().st_size)


def _is_file(path: Path) -> bool:
    return stat.S_ISREG(path.lstat().st_mode)
