"""Reading and writing files: whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from webmm.errors import ConfigError, ProblemError


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Call `write` with a temporary file beside `path` and rename it when all is written.

    Raises ConfigError where the folder cannot be written to or the disk is full; nothing is left behind then.
    """
    temporary = ""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = file.name
            write(file)  # type: ignore[arg-type]
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)


def read_text(path: Path) -> str:
    """Return the text of `path`; raises ProblemError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def load_matrix(path: Path) -> NDArray[Any]:
    """Return the 2-D float array in the .npy file `path`, memory-mapped; never unpickles.

    Raises ProblemError for anything else, saying what it found.
    """
    try:
        data = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise ProblemError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise ProblemError(f"{path} is not a .npy file of numbers: {error}") from error
    if not isinstance(data, np.ndarray):
        raise ProblemError(f"{path} is an archive of arrays; save one matrix with numpy.save")
    if data.ndim != 2:
        raise ProblemError(f"{path} holds a {data.ndim}-D array; a product takes matrices, 2-D")
    if data.size == 0:
        raise ProblemError(f"{path} holds an empty matrix of shape {data.shape}")
    return data


def save_matrix(path: Path, matrix: NDArray[Any]) -> None:
    """Write `matrix` as .npy, whole or not at all; raises ConfigError where that fails."""
    write_atomically(path, lambda file: np.save(file, matrix, allow_pickle=False))
