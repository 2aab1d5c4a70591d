"""Safe file access: what may be overwritten, atomic writes, size-limited reads, .npy matrices, shared documents."""

from __future__ import annotations

import errno
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from webmm.dtypes import BYTES, REALS, DType
from webmm.errors import ConfigError, ProblemError

MAX_TEXT = 2**26  # bytes
LOCK_TIMEOUT = 30  # seconds


# Outputs: the rules for every file or folder that webmm writes


def check_output(
    path: Path, *, force: bool, folders: bool = False, operands: Iterable[Path] = (), beside: Iterable[str] = ()
) -> Path:
    """Return what `path` names, or the target if it is a link, if writing there loses nothing.

    `beside` are endings: for each, the file of this name and ending is written, too. Raises ConfigError if any of them
    is one of the files or folders `operands`, is inside one or has one inside, by any links; if the folder to write to
    is missing; if `path` exists and `force` is not set; and if it is a folder, unless `folders` may be replaced.
    """
    target = resolved(path)
    names = (target, *(target.with_name(target.name + end) for end in beside))
    with writing(path):
        for other in (each for operand in operands for each in (operand, *_links(operand))):
            for name in names:
                if _inside(name, other) or _inside(other, name):
                    raise ConfigError(f"cannot write {path}: {name} and the operand {other} overlap; write elsewhere")
        if not target.parent.is_dir():
            raise ConfigError(f"cannot write {path}: there is no folder {target.parent}")
        if path.exists() and not force:
            raise ConfigError(f"{path} exists; --force overwrites it")
        if path.is_dir() and not folders:
            raise ConfigError(f"cannot write {path}: {os.strerror(errno.EISDIR)}")
    return target


def resolved(path: Path) -> Path:
    """Return `path` without links, whether it exists or not; raises ConfigError for links to each other."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise ConfigError(f"cannot write {path}: {os.strerror(errno.ELOOP)}")
    return target


def _inside(path: Path, folder: Path) -> bool:
    """Return whether `path`, which need not exist, is `folder` (or the same file) or lies in it."""
    path = Path(os.path.realpath(path))
    return folder.exists() and any(each.exists() and each.samefile(folder) for each in (path, *path.parents))


def _links(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_symlink()] if folder.is_dir() else []


def is_stream(path: Path) -> bool:
    """Return whether `path` is a pipe, a device or an unlinked file: something to write into that has no name."""
    return path.exists() and not path.is_dir() and not _replaceable(path)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise any OSError in this context as ConfigError: one line that names `path` and the reason."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Call `write` with a temporary file, then rename that file to `path`, or to the target if `path` is a link.

    A device or a pipe cannot be replaced, so `write` writes into it directly and may use `file.write()` only. Raises
    ConfigError on failure, such as a full disk or a pipe without a reader; no file has changed in that case.
    """
    try:
        if path.exists() and not _replaceable(path):
            _write_into(path, write)
        else:
            _replace(resolved(path), write)
    except OSError as error:
        no_reader = error.errno == errno.ENXIO and path.is_fifo()
        why = "nobody reads from this pipe; start its reader first" if no_reader else error.strerror or error
        raise ConfigError(f"cannot write {path}: {why}") from error


def _replaceable(path: Path) -> bool:
    """Return whether `path` resolves to a regular file; /dev/stdout may point to a file that was unlinked."""
    target = Path(os.path.realpath(path))
    return target.is_file() and target.samefile(path)


def _write_into(path: Path, write: Callable[[BinaryIO], object]) -> None:
    def opener(name: str, flags: int) -> int:
        file = os.open(
            name, flags & ~os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
        )  # opening would otherwise wait for a reader
        if hasattr(os, "O_NONBLOCK"):
            os.set_blocking(file, True)
        return file

    with open(path, "wb", opener=opener) as file:
        # NumPy asks a real file for its position, which a pipe lacks.
        write(SimpleNamespace(write=file.write))  # type: ignore[arg-type]


def _replace(path: Path, write: Callable[[BinaryIO], object]) -> None:
    temporary = ""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = file.name
            write(file)  # type: ignore[arg-type]
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    finally:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)


def read_text(path: Path) -> str:
    """Return the text of a file; raises ProblemError if it cannot be read or is larger than MAX_TEXT bytes."""
    with reading(path):
        if (size := _size(path)) > MAX_TEXT:
            raise ProblemError(f"{path} is too large: {size:,} bytes, of at most {MAX_TEXT:,}")
        return path.read_text(encoding="utf-8")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise any OSError in this context as ProblemError: one line that names `path` and the reason."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _size(path: Path) -> int:
    """Return the size of a file in bytes; raises OSError for pipes and devices, whose reading may never end."""
    status = path.stat()
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):  # opening a folder fails with its own error
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")
    return status.st_size


def load_matrix(path: Path, dtypes: tuple[DType, ...] = REALS) -> NDArray[Any]:
    """Return the 2-D array of one of `dtypes` in the .npy file `path`, memory-mapped; never unpickles.

    Raises ProblemError for anything else; the message names what was found.
    """
    data = load_array(path)
    if data.ndim != 2:
        raise ProblemError(f"{path} holds a {data.ndim}-D array; webmm reads matrices, 2-D")
    if data.size == 0:
        raise ProblemError(f"{path} holds an empty matrix of shape {data.shape}")
    _check_dtype(path, data, dtypes)
    return data


def load_array(path: Path, dtypes: tuple[DType, ...] = ()) -> NDArray[Any]:
    """Return the array in the .npy file `path`, memory-mapped, of one of `dtypes` if any are given; never unpickles.

    Raises ProblemError for anything else; the message names what was found.
    """
    with reading(path):
        _size(path)
        try:
            with np.errstate(over="raise"):
                data = np.load(path, mmap_mode="r", allow_pickle=False)
        except OSError:
            raise
        except Exception as error:  # NumPy evaluates headers as Python literals, which may raise anything
            why = str(error).partition("\n")[0]
            if "allow_pickle" in why:  # which NumPy advises to set
                why = "it holds Python objects" if why.startswith("Object arrays") else "it begins with other bytes"
            raise ProblemError(f"{path} is not a .npy file of numbers: {why}") from error
    if not isinstance(data, np.ndarray):
        raise ProblemError(f"{path} is an archive of arrays; save one matrix with numpy.save")
    if dtypes:
        _check_dtype(path, data, dtypes)
    return data


def _check_dtype(path: Path, data: NDArray[Any], dtypes: tuple[DType, ...]) -> None:
    if data.dtype not in [dtype.numpy for dtype in dtypes]:
        names = " or ".join(dtype.name for dtype in dtypes)
        found = f"{'' if data.dtype.isnative else 'big-endian '}{data.dtype.name}"
        raise ProblemError(f"{path} holds {found}; cast to {names}, e.g. {cast(dtypes[0])}")


def cast(dtype: DType) -> str:
    """Return what gives elements of a type, to show in messages."""
    return "webmm.quantize(x)" if dtype in BYTES else f"x.astype('{dtype.name}')"


def save_matrix(path: Path, matrix: NDArray[Any]) -> None:
    """Write `matrix` as .npy, atomically; raises ConfigError on failure."""
    write_atomically(path, lambda file: np.save(file, matrix, allow_pickle=False))


# Facts about drivers: JSON documents in the cache folder, each with a schema, that several processes update


def noted(path: Path, schema: str) -> dict[str, Any]:
    """Return the facts in a document of `schema`, by driver; empty if it is missing or broken."""
    try:
        document = json.loads(read_text(path))
        return dict(document["drivers"].items()) if document["schema"] == schema else {}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}  # everything is determined again


def note(path: Path, schema: str, driver: str, update: Callable[[Any], Any]) -> None:
    """Replace the facts about `driver` (None if there are none) by the result of `update`, under a lock.

    Raises ConfigError if the document cannot be written.
    """
    import filelock  # loads much that reading does not need

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(path.with_suffix(".lock"), timeout=LOCK_TIMEOUT):
            known = noted(path, schema)
            document = {"schema": schema, "drivers": known | {driver: update(known.get(driver))}}
            write_atomically(path, lambda out: out.write(json.dumps(document, indent=1).encode()))
    except OSError as error:  # which includes filelock.Timeout
        raise ConfigError(f"cannot write {path}: {error}; WEBMM_CACHE_DIR names another folder") from error
