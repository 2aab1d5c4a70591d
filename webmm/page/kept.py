"""The pages that `webmm serve` built, kept in the cache folder by a hash of everything that they are built from."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import metadata
from pathlib import Path

from webmm import config, plugins
from webmm.errors import ConfigError
from webmm.files import LOCK_TIMEOUT
from webmm.learn import chapters
from webmm.page import bundle, leaderboard
from webmm.page.script import templates
from webmm.wgsl import naga
from webmm.wgsl.render import environment, shader_folder

MOST = 3  # pages; older ones are deleted, unless a process shows them
LENGTH = 20  # of a folder's name
TOOLS = ("jinja2", "markdown-it-py", "numpy", "tdewolff-minify")  # packages that write a part of the page
NO_LOCK = (OSError, NotImplementedError)  # a folder that cannot be written, a lock held for long, no locks at all


@contextmanager
def page(say: Callable[[str], object]) -> Iterator[Path]:
    """Yield the folder of the page; unless it is kept, tell `say` and build it first.

    Where the cache folder cannot be written, the page is deleted at the end.
    """
    pages = Path(config.setting("cache_dir"), "pages")
    kept = pages / _name()
    with _shown(kept):
        if (kept / bundle.MARKER).is_file():
            with suppress(OSError):
                os.utime(kept)
            yield kept
            return
        say("building the page, which takes some seconds …")
        with _built(pages, kept) as found:
            yield found


@contextmanager
def _built(pages: Path, kept: Path) -> Iterator[Path]:
    temporary = _temporary(pages)
    try:
        built = Path(temporary.name, "page")
        bundle.build(built)
        found = _keep(built, kept)
        if found == kept:
            temporary.cleanup()
        yield found
    finally:
        temporary.cleanup()


def _temporary(pages: Path) -> tempfile.TemporaryDirectory[str]:
    try:
        pages.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix=".", dir=pages)
    except OSError:
        return tempfile.TemporaryDirectory()


def _keep(built: Path, kept: Path) -> Path:
    """Move the page to `kept`, and delete the oldest others; return where it is: `built` if it cannot be moved."""
    try:
        built.rename(kept)
    except OSError:  # the folder cannot be written, or another process was faster
        return kept if (kept / bundle.MARKER).is_file() else built
    _delete_oldest(kept.parent)
    return kept


def _delete_oldest(pages: Path) -> None:
    with suppress(*NO_LOCK), _alone(pages):
        found = [path for path in pages.iterdir() if len(path.name) == LENGTH]
        for path in sorted(found, key=lambda path: -path.stat().st_mtime)[MOST:]:
            if not _is_shown(path):
                shutil.rmtree(path, ignore_errors=True)


# A page that is shown has a lock of each process that shows it, in a file beside it: NAME.RANDOM. The system releases
# the locks of a process that is killed; its files are deleted with the page.


def _alone(pages: Path) -> AbstractContextManager[object]:
    """Return the lock under which pages are deleted, and locks of pages taken."""
    import filelock  # takes a while to load

    return filelock.FileLock(pages.with_suffix(".lock"), timeout=LOCK_TIMEOUT)


@contextmanager
def _shown(kept: Path) -> Iterator[None]:
    """Keep other processes from deleting a page; where no lock can be written, they cannot delete one either."""
    import filelock

    lock = filelock.FileLock(kept.with_name(f"{kept.name}.{uuid.uuid4().hex}"))
    with suppress(*NO_LOCK):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with _alone(kept.parent):
            lock.acquire()
    try:
        yield
    finally:
        lock.release()
        with suppress(OSError):
            Path(lock.lock_file).unlink()


def _is_shown(page: Path) -> bool:
    """Return whether a process shows the page; delete the lock files of those that were killed."""
    import filelock

    for file in page.parent.glob(f"{page.name}.*"):
        try:
            with filelock.FileLock(file, timeout=0):
                pass
            file.unlink(missing_ok=True)  # which Windows has deleted
        except filelock.Timeout:
            return True
    return False


def _name() -> str:
    """Return a hash of all files that a page is built from, and of the tools that write it."""
    seen = hashlib.sha256(f"{sys.version_info} {[_version(name) for name in TOOLS]} {_naga()}".encode())
    for path in sorted(set(_sources())):
        seen.update(f"{path} {path.stat().st_size} ".encode())
        seen.update(path.read_bytes())
    return seen.hexdigest()[:LENGTH]


def _sources() -> Iterator[Path]:
    for folder in (
        Path(bundle.__file__).parents[1],
        shader_folder(),
        bundle.web_folder(),
        leaderboard.folder(),
        chapters.folder(),
    ):
        for root, folders, names in os.walk(folder):
            folders[:] = [name for name in folders if name not in ("node_modules", "__pycache__")]
            yield from (Path(root, name) for name in names)
    yield from (Path(name) for name in plugins.files())
    yield from templates.of_plugins(environment())


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _naga() -> str:
    try:
        return naga.version()
    except ConfigError:
        return ""
