"""The pages that `webmm serve` built, kept in the cache folder by a hash of everything that they are built from."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from webmm import plugins
from webmm.config import settings
from webmm.errors import ConfigError
from webmm.learn import chapters
from webmm.page import bundle, leaderboard, minify
from webmm.page.script import templates
from webmm.wgsl import naga
from webmm.wgsl.render import environment, shader_folder

MOST = 3  # pages; older ones are deleted
LENGTH = 20  # of a folder's name


@contextmanager
def page(say: Callable[[str], object]) -> Iterator[Path]:
    """Yield the folder of the page; unless it is kept, tell `say` and build it first.

    Where the cache folder cannot be written, the page is deleted at the end.
    """
    pages = Path(settings().cache_dir, "pages")
    kept = pages / _name()
    if (kept / bundle.MARKER).is_file():
        with suppress(OSError):
            os.utime(kept)
        yield kept
        return
    say("building the page, which takes some seconds …")
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
    others = [path for path in kept.parent.iterdir() if len(path.name) == LENGTH]
    for path in sorted(others, key=lambda path: -path.stat().st_mtime)[MOST:]:
        shutil.rmtree(path, ignore_errors=True)
    return kept


def _name() -> str:
    """Return a hash of all files that a page is built from, and of the tools that write it."""
    seen = hashlib.sha256(f"{sys.version_info} {minify.library() is not None} {_naga()}".encode())
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


def _naga() -> str:
    try:
        return naga.version()
    except ConfigError:
        return ""
