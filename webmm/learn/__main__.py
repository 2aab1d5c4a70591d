"""`python -m webmm.learn` writes what directives stand for into the chapters and the guides, and the drawings.

With `--check`, it writes nothing, and its exit code is 1 if a file is not what would be written.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import webmm.learn
from webmm.errors import ConfigError
from webmm.learn.chapters import folder
from webmm.learn.directives import filled
from webmm.learn.pictures import MADE

for _module in iter_modules(webmm.learn.__path__):  # they register their directives
    if _module.name != "__main__":
        import_module(f"webmm.learn.{_module.name}")


def texts() -> list[Path]:
    """Return the files that may have directives: the chapters, and in a checkout the guides beside them."""
    guides = folder().parent.glob("*.md") if folder().name == "learn" else ()
    return sorted([*folder().rglob("*.md"), *guides])


def made() -> dict[Path, str]:
    """Return the files of the texts and drawings with their contents; raises ConfigError with file and directive."""
    files = {}
    for path in texts():
        try:
            text = filled(path.read_text(encoding="utf-8"))
        except ConfigError as error:
            raise ConfigError(f"{_shown(path)}: {error}") from error
        drawings = Path(os.path.relpath(folder() / "drawings", path.parent)).as_posix()
        files[path] = text.replace("](DRAWINGS/", f"]({drawings}/")
    return files | {folder() / "drawings" / name: svg for name, svg in MADE.items()}


def _shown(path: Path) -> str:
    return Path(os.path.relpath(path, folder())).as_posix()


def stale() -> dict[Path, str | None]:
    """Return the files that differ from what would be written, with their contents; None: nothing asks for it."""
    files = made()
    old = {path: None for path in (folder() / "drawings").glob("*.svg") if path not in files}
    return old | {path: text for path, text in files.items() if not path.is_file() or path.read_text("utf-8") != text}


def main(arguments: list[str]) -> int:
    """Write the files, or tell which are not up to date; return the exit code."""
    if arguments not in ([], ["--check"]):
        print(f"webmm.learn: takes --check or nothing, not {' '.join(arguments)}", file=sys.stderr)
        return 2
    try:
        changed = stale()
    except ConfigError as error:
        print(f"webmm.learn: {error}", file=sys.stderr)
        return 2
    for path, text in changed.items():
        print(_shown(path))
        if "--check" in arguments:
            continue
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return int("--check" in arguments and bool(changed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
