"""The web page's folder: the page's files, the translated kernels, and products to check them with.

`bundle/core.js` and `bundle/templates/` are this package's kernels, choice and templates in JavaScript
(`webmm.page.core`), so that the page renders exactly the shaders that `webmm shader` prints. `bundle/index.json` has
measurements and settings of Python (`webmm.page.index`), and `bundle/ladders.js` problems of other ops with the
fingerprints of their results (`webmm.page.ladders`); the page loads it on demand, like the templates.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.choose import tables
from webmm.errors import ConfigError
from webmm.files import read_text
from webmm.page import core, index, ladders, leaderboard, lessons, minify, translated
from webmm.page.script.program import Program

# Loaded on demand: files of the bundle that the service worker does not fetch in advance either …
ON_DEMAND = ("bundle/models/", "bundle/templates/", "bundle/translated/", "bundle/cases/", "bundle/learn/")
PANELS = (  # of the page, and parts of them
    *("multiply", "matrices", "form", "options", "large", "explain", "known", "code", "views"),
    *("own", "tune", "compare", "help", "report", "chapter"),
)
LAZY = (  # … and modules.
    *(*ON_DEMAND, "bundle/ladders.js", *(f"bundle/{name}" for name in core.LATE)),
    *(f"panels/{name}.{kind}" for name in PANELS for kind in ("js", "html")),
    *("exhibits.js", "pasted.js", "prepared.js", "files.js", "leaderboard.html"),
    *("calls/attention.js", "calls/elements.js", "calls/kv_cache.js", "epilogue.js", "expressions.js", "reduction.js"),
)
# Modules that the page needs at the start: they and all their imports are preloaded in parallel.
STARTED = ("main.js", "panels/ladder.js", "bundle/core.js", "bundle/templates/gemm/tile_2d.js")
PRELOAD = "<link rel=modulepreload href=main.js>\n"  # as in index.html, where the other links are inserted
IMPORT = re.compile(r'(?:^|;)(?:(?:import|export)\b[^;"()]*?from|import) ?"(\.[^"]+)"', re.MULTILINE)
SHELL = 'const SHELL = ["./"];'  # as in sw.js, where the other files are inserted
MARKER = "bundle/index.json"  # a folder with this file was written by `build()`, and may be overwritten

CASES = ((1, 1, 1), (5, 7, 3), (17, 19, 23), (64, 64, 64), (33, 68, 40), (128, 256, 64), (257, 129, 65), (1, 2, 65_537))


def web_folder() -> Path:
    """Return the folder of the page's source files: inside the installed package, or next to it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "web"
    return installed if installed.is_dir() else package.parent / "web"


@dataclass(frozen=True)
class Summary:
    """Summary of what `build()` wrote."""

    folder: Path
    templates: int
    files: int
    nbytes: int
    first_load: int  # bytes that a visitor loads before the first click


def build(out: Path, *, force: bool = False) -> Summary:
    """Write the page and its bundle to the folder `out`, ready for any static host.

    With `force`, `out` may have other files: those of the page's names are replaced, the others stay. Raises
    ConfigError, and leaves `out` unchanged, if `out` is a file, cannot be written to, has files that are not a bundle
    and `force` is not set, or has something else in place of the page's files: a link, a folder, another `bundle`.
    """
    with written(out, force) as page:
        shutil.copytree(web_folder(), page, dirs_exist_ok=True, ignore=_not_published)
        contributed = leaderboard.read(sorted(leaderboard.folder().glob("*.json")))
        (page / "leaderboard.html").write_text(leaderboard.render(contributed), encoding="utf-8")
        program = write_kernels(page / "bundle")
        (page / "bundle" / "ladders.js").write_text(ladders.module(program), encoding="utf-8")
        (page / "style.css").write_text(
            (page / "style.css").read_text("utf-8") + lessons.write(page / "bundle"), "utf-8"
        )
        made = {"translated": translated.write(page / "bundle"), "cases": _cases(page / "bundle" / "cases")}
        write_index(page / MARKER, {**index.index(), **made})
        minify.minify_folder(page)
        _preload(page / "index.html")
        _list_files(page / "sw.js")
    return _summary(out)


@contextmanager
def written(out: Path, force: bool) -> Iterator[Path]:
    """Yield an empty folder, whose files are moved to `out` at the end; raises as `build()` does."""
    _check(out, force)
    made = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".page-", dir=out) as temporary:  # in `out`, so on the same disk
            yield Path(temporary)
            _check_names(Path(temporary), out)
            shutil.rmtree(out / "bundle", ignore_errors=True)
            _move(Path(temporary), out)
    except OSError as error:
        why = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror or error
        raise ConfigError(f"cannot write the page to {out}: {why}") from error
    finally:
        if made and not (out / MARKER).exists():
            shutil.rmtree(out, ignore_errors=True)


def write_kernels(bundle: Path) -> Program:
    """Write the translated kernels, templates and cost models to the folder `bundle`; return the translation."""
    bundle.mkdir(exist_ok=True)
    program = core.program()
    for name, text in core.modules(program).items():
        (bundle / name).write_text(text, encoding="utf-8")
    shutil.copytree(tables.SHIPPED, bundle / "models")
    core.write_templates(bundle / "templates")
    return program


def write_index(path: Path, document: dict[str, Any]) -> None:
    """Write the index, a JSON document."""
    path.write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")


def imported(folder: Path, *names: str) -> list[str]:
    """Return these modules of `folder` and all their static imports, direct and indirect."""
    folder = folder.resolve()
    found, waiting = set(), [folder / name for name in names]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += [(path.parent / name).resolve() for name in IMPORT.findall(path.read_text(encoding="utf-8"))]
    return sorted(path.relative_to(folder).as_posix() for path in found)


def _preload(page: Path) -> None:
    """Add preload links for all modules that the page needs at the start."""
    text = page.read_text(encoding="utf-8")
    modules = imported(page.parent, *STARTED)
    links = "".join(PRELOAD.replace("main.js", name) for name in modules)
    page.write_text(text.replace(PRELOAD, links), encoding="utf-8")


def _list_files(worker: Path) -> None:
    """List the files that the service worker caches: all of its folder, except itself and those loaded on demand."""
    files = (path.relative_to(worker.parent).as_posix() for path in worker.parent.rglob("*") if path.is_file())
    kept = sorted(name for name in files if name not in ("index.html", worker.name) and not name.startswith(ON_DEMAND))
    text = worker.read_text(encoding="utf-8")
    listed = SHELL.replace('"./"', ", ".join(f'"{name}"' for name in ["./", *kept]))
    worker.write_text(text.replace(SHELL, listed), encoding="utf-8")


def _move(page: Path, out: Path) -> None:
    """Move every file of `page` to `out`, replacing files of the same names."""
    for path in sorted(page.rglob("*")):
        there = out / path.relative_to(page)
        if path.is_dir():
            there.mkdir(exist_ok=True)
        else:
            path.replace(there)


def _check(out: Path, force: bool) -> None:
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; give a folder for the page")
    if out.is_dir() and any(out.iterdir()) and not (force or _is_bundle(out)):
        raise ConfigError(f"{out} has other files; give an empty folder, or add the page's files to them with --force")
    if os.path.lexists(out / "bundle") and not _is_bundle(out):
        raise _in_the_way(out / "bundle")


def _is_bundle(out: Path) -> bool:
    """Return whether the folder `out` has a bundle that `written()` made."""
    try:
        schema = json.loads(read_text(out / MARKER))["schema"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return str(schema).startswith("webmm.bundle/") and not (out / "bundle").is_symlink()


def _check_names(page: Path, out: Path) -> None:
    """Raise ConfigError if something in `out` cannot be replaced by a file or folder of `page`."""
    for path in page.rglob("*"):
        there = out / path.relative_to(page)
        replaceable = there.is_dir() if path.is_dir() else there.is_file()
        if os.path.lexists(there) and (there.is_symlink() or not replaceable):
            raise _in_the_way(there)


def _in_the_way(path: Path) -> ConfigError:
    return ConfigError(f"{path} is not from an earlier bundle, and is in the way; move it away")


def _not_published(folder: str, names: list[str]) -> list[str]:
    """Return the files of `web/` that only its development or the npm package needs."""
    del folder
    tools = {
        "node_modules",
        "package.json",
        "package-lock.json",
        "tsconfig.json",
        "globals.d.ts",
        ".npmrc",
        ".prettierignore",
        ".prettierrc.json",
        "README.md",
        "shaders.js",
        "tsconfig.npm.json",  # for other programs
    }
    return [name for name in names if name in tools]


def _summary(out: Path) -> Summary:
    sizes = {path.relative_to(out).as_posix(): path.stat().st_size for path in out.rglob("*") if path.is_file()}
    first = sum(size for name, size in sizes.items() if not name.startswith(LAZY) and name != "sw.js")
    templates = sum(name.startswith("bundle/templates/") for name in sizes)
    return Summary(out, templates, len(sizes), sum(sizes.values()), first)


# Products to check the shaders with


def _cases(folder: Path) -> list[dict[str, Any]]:
    """Write A and B (float16, so that they are exact in any dtype) and NumPy's A·B (float64) for each case."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(2024)
    rows = []
    for m, n, k in CASES:
        a = (rng.random((m, k)) - 0.5).astype(np.float16)
        b = (rng.random((k, n)) - 0.5).astype(np.float16)
        files: dict[str, NDArray[Any]] = {"a": a, "b": b, "c": a.astype(np.float64) @ b.astype(np.float64)}
        for name, array in files.items():
            content = io.BytesIO()
            np.save(content, array, allow_pickle=False)
            (folder / f"{m}x{n}x{k}.{name}.npy").write_bytes(content.getvalue())
        rows.append({"m": m, "n": n, "k": k})
    return rows
