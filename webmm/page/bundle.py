"""The web page's folder: the page itself, what Python knows of kernels, and products to check them with.

`bundle/core.js` and `bundle/templates/` are this package's own kernels, choice and templates in JavaScript
(`webmm.page.core`), so that a page renders the very texts that `webmm shader` prints. `bundle/index.json` has what was
measured or decided elsewhere (`webmm.page.index`), and `bundle/ladders.js` problems of other ops with the fingerprints
of their results (`webmm.page.ladders`), which a page fetches when they are asked for, like templates.
"""

from __future__ import annotations

import io
import json
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

from webmm.choose import model
from webmm.errors import ConfigError
from webmm.page import core, index, ladders, leaderboard, translated
from webmm.page.script.compact import compact
from webmm.page.script.program import Program

# Fetched when they are asked for.
LAZY = (
    *("bundle/ladders.js", "bundle/models/", "bundle/templates/", "bundle/translated/", "bundle/cases/"),
    *(f"panels/{name}.js" for name in ("multiply", "options", "explain", "ops", "picture", "code", "traffic")),
    *("panels/tune.js", "panels/compare.js", "panels/help.js", "made.js", "leaderboard.html"),
)
# What the page starts with: with all that it imports, it is asked for at once, not module after module.
STARTED = ("main.js", "panels/ladder.js", "bundle/core.js", "bundle/templates/gemm/tile_2d.js")
STARTS = '<link rel="modulepreload" href="main.js">\n'  # the place in index.html
IMPORT = re.compile(r'(?:^|;)(?:(?:import|export)\b[^;"()]*?from|import) ?"(\.[^"]+)"', re.MULTILINE)
MARKER = "bundle/index.json"  # a folder that holds it is one of ours, and may be replaced

CASES = ((1, 1, 1), (5, 7, 3), (17, 19, 23), (64, 64, 64), (33, 68, 40), (128, 256, 64), (257, 129, 65), (3, 5, 65_537))


def web_folder() -> Path:
    """Return the folder of the page's own files: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "web"
    return installed if installed.is_dir() else package.parent / "web"


@dataclass(frozen=True)
class Summary:
    """What `build` wrote."""

    folder: Path
    templates: int
    files: int
    nbytes: int
    first_load: int  # bytes that a visitor fetches before the first click


def build(out: Path, *, force: bool = False) -> Summary:
    """Write the page and its bundle to the folder `out`, ready for any static host.

    Raises ConfigError where `out` is a file, or holds something that is no bundle and `force` is not given, or cannot
    be written to; `out` is then as it was before.
    """
    with written(out, force) as page:
        shutil.copytree(web_folder(), page, dirs_exist_ok=True, ignore=_not_published, copy_function=_copy)
        contributed = leaderboard.read(sorted(leaderboard.folder().glob("*.json")))
        (page / "leaderboard.html").write_text(leaderboard.render(contributed), encoding="utf-8")
        program = write_kernels(page / "bundle")
        (page / "bundle" / "ladders.js").write_text(ladders.module(program), encoding="utf-8")
        made = {"translated": translated.write(page / "bundle"), "cases": _cases(page / "bundle" / "cases")}
        write_index(page / MARKER, {**index.index(), **made})
        _preload(page / "index.html")
    return _summary(out)


@contextmanager
def written(out: Path, force: bool) -> Iterator[Path]:
    """Yield an empty folder, whose files then become those of `out`; raises as `build()` does."""
    _check(out, force)
    made = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".page-", dir=out) as beside:  # within `out`, so on its disk
            yield Path(beside)
            shutil.rmtree(out / "bundle", ignore_errors=True)
            _move(Path(beside), out)
    except OSError as error:
        why = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror or error
        raise ConfigError(f"cannot write the page to {out}: {why}") from error
    finally:
        if made and not (out / MARKER).exists():
            shutil.rmtree(out, ignore_errors=True)


def write_kernels(bundle: Path) -> Program:
    """Write what Python knows of kernels to the folder `bundle`; return the translation."""
    bundle.mkdir(exist_ok=True)
    program = core.program()
    (bundle / "core.js").write_text(program.text(), encoding="utf-8")
    shutil.copytree(model.SHIPPED, bundle / "models")
    core.write_templates(bundle / "templates")
    return program


def write_index(path: Path, document: dict[str, Any]) -> None:
    """Write what was measured or decided elsewhere."""
    path.write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")


def imported(folder: Path, *names: str) -> list[str]:
    """Return these modules of `folder` and all that they import, without what they load when it is asked for."""
    folder = folder.resolve()
    found, waiting = set(), [folder / name for name in names]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += [(path.parent / name).resolve() for name in IMPORT.findall(path.read_text(encoding="utf-8"))]
    return sorted(path.relative_to(folder).as_posix() for path in found)


def _preload(page: Path) -> None:
    """Have the page ask for all the modules that it starts with at once."""
    text = page.read_text(encoding="utf-8")
    modules = imported(page.parent, *STARTED)
    links = "".join(STARTS.replace("main.js", name) for name in modules)
    page.write_text(text.replace(STARTS, links), encoding="utf-8")


def _copy(source: str, target: str) -> None:
    """Copy a file of the page, a script compact; but the service worker's, which nothing waits for."""
    if source.endswith(".js") and not source.endswith("sw.js"):
        Path(target).write_text(compact(Path(source).read_text(encoding="utf-8")), encoding="utf-8")
    else:
        shutil.copy2(source, target)


def _move(page: Path, out: Path) -> None:
    """Move every file of `page` to `out`, over those of the same names."""
    for path in sorted(page.rglob("*")):
        there = out / path.relative_to(page)
        if path.is_dir():
            there.mkdir(exist_ok=True)
        else:
            path.replace(there)


def _check(out: Path, force: bool) -> None:
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; name a folder for the page")
    if out.is_dir() and any(out.iterdir()) and not (force or (out / MARKER).is_file()):
        raise ConfigError(f"{out} holds other files; name an empty folder, or use --force to write among them")


def _not_published(folder: str, names: list[str]) -> list[str]:
    """Return what lies beside the page but serves its development, or the npm package, only."""
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
        "tsconfig.npm.json",
    }
    return [name for name in names if name in tools]


def _summary(out: Path) -> Summary:
    sizes = {path.relative_to(out).as_posix(): path.stat().st_size for path in out.rglob("*") if path.is_file()}
    first = sum(size for name, size in sizes.items() if not name.startswith(LAZY) and name != "sw.js")
    templates = sum(name.startswith("bundle/templates/") for name in sizes)
    return Summary(out, templates, len(sizes), sum(sizes.values()), first)


# Products to check the shaders with


def _cases(folder: Path) -> list[dict[str, Any]]:
    """Write A, B (float16, so that any dtype holds them exactly) and NumPy's A·B (float64) of each case."""
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
