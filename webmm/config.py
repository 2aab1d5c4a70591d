"""Settings, which come from these places, first match wins: `set()`, environment, project file, user file, defaults.

The project file is the nearest one in the working directory or its parents: `webmm.toml`, or, in a directory without
one, a `pyproject.toml` with a `[tool.webmm]` table. Anyone may have written it, so settings that name a program or a
path (`own` in the table below) are ignored there, with a warning. The user file is `webmm.toml` in the platform's
configuration directory. The environment variable of the setting `cache_dir` is WEBMM_CACHE_DIR; an empty variable
counts as unset. A path in the user file is relative to the directory of that file.

`template()` returns a file with every setting and its description.

Files are read once per process and working directory, when the first setting is needed; the environment is read every
time. A Device takes its settings when it is opened.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import platformdirs

from webmm import log, reading
from webmm.errors import ConfigError
from webmm.reading import SUMMARY as SUMMARY
from webmm.text import printable

FILE = "webmm.toml"
PREFIX = "WEBMM_"
BY_SET = "webmm.config.set()"
Tune = Literal["off", "cached", "quick", "auto"]
Precision = Literal["highest", "high"]


def tune_mode(raw: object) -> Tune:
    """Return `raw` as a tuning mode; raises ConfigError unless it is off, cached, quick or auto."""
    if raw not in get_args(Tune):
        raise ConfigError(f"tune must be off, cached, quick or auto, not {raw!r}")
    return cast(Tune, raw)


def precision_mode(raw: object) -> Precision:
    """Return `raw` as a precision of float32 products; raises ConfigError unless it is highest or high."""
    if raw not in get_args(Precision):
        raise ConfigError(f"precision must be {' or '.join(get_args(Precision))}, not {raw!r}")
    return cast(Precision, raw)


def _field(read: Callable[[object], Any], default: Any, doc: str, *, own: bool = False) -> Any:
    """Declare a setting; one of the user's `own` names a program or a path, and is ignored in project files."""
    metadata = {"read": read, "doc": doc, "own": own}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


_SHOWN = f"topics to log: {', '.join(log.TOPICS)}; a level ({', '.join(log.LEVELS)}) for all, or for one: tune=info"


@dataclass(frozen=True)
class Settings:
    """All settings, each with its type, default and description."""

    adapter: str = _field(
        reading.text, "", "index, kind (discrete, integrated, cpu) or part of the name; empty: the most capable adapter"
    )
    engine: str = _field(
        reading.text, "wgpu", "wgpu; dawn (package wgpudawn), which supports matrix units; auto: dawn if it offers them"
    )
    cache_dir: Path = _field(
        reading.folder,
        lambda: Path(platformdirs.user_cache_dir("webmm")),
        "directory of tuned records and self-test verdicts",
        own=True,
    )
    tune: Tune = _field(
        tune_mode, "cached", "off: portable defaults; cached: tuned records; quick, auto: tune shapes without a record"
    )
    tune_budget: float = _field(reading.seconds, 20.0, "seconds that tune=auto may spend on one bucket of shapes")
    precision: Precision = _field(
        precision_mode, "highest", "precision of float32 products: highest, or high, which allows matrix units"
    )
    probe: bool = _field(
        reading.switch, True, "whether a GPU of unknown speed is probed when the process has left it idle, or at exit"
    )
    selftest: bool = _field(
        reading.switch, True, "whether a shader must pass a self-test before its first use on a driver"
    )
    host_functions: bool = _field(
        reading.switch, True, "whether NumPy functions that webmm does not implement run in host memory; off: an error"
    )
    log: str = _field(reading.topics, "", _SHOWN)
    log_file: Path | None = _field(
        reading.file, None, "file for log messages; empty: the program's log handlers, or stderr", own=True
    )
    profile: Path | str = _field(
        reading.profile,
        "",
        f"written at exit: {SUMMARY}, a table of all kernels; or a trace, to the file NAME.json",
        own=True,
    )
    naga: str = _field(
        reading.text, "", "naga-cli for `webmm check`; empty: .tools/bin of webmm's checkout, then PATH", own=True
    )


@dataclass(frozen=True)
class Source:
    """A source of raw values: its name for messages, the directory that its paths are relative to, and the values.

    `ignored` are the settings that it may not set.
    """

    name: str
    folder: Path
    values: Mapping[str, object]
    ignored: tuple[str, ...] = ()


_chosen: dict[str, object] = {}  # the values given to set()


def set(**values: object) -> None:
    """Override settings for this process.

    Values given here take precedence over the environment and the files; None removes the override of a setting. A
    Device that is already open keeps its settings.

    Raises ConfigError for an unknown name or an invalid value; no setting is changed then.

    Example: ``webmm.config.set(tune="off", log="choice")``
    """
    fields = {field.name: field for field in dataclasses.fields(Settings)}
    source = _known(Source(BY_SET, Path(), values))
    for name in values:
        if values[name] is not None:
            _read(fields[name], source)
    _chosen.update(values)
    for name in [name for name, value in _chosen.items() if value is None]:
        del _chosen[name]
    if values.get("log") or values.get("log_file"):
        log.show(settings().log, settings().log_file)


def template() -> str:
    """Return a `webmm.toml` with the description and default of every setting, each commented out."""
    lines = [
        f"# Settings of webmm; see docs/tuning.md. The variable of `tune` is {variable('tune')}, and so on.",
        "",
    ]
    default = Settings()
    fields = sorted(dataclasses.fields(Settings), key=lambda field: bool(field.metadata["own"]))
    for field in fields:
        value = getattr(default, field.name)
        text = "" if value is None else str(value) if isinstance(value, Path) else value
        lines += [f"# {field.metadata['doc']}"]
        lines += [f"# (ignored in a project's file; takes effect in {user_file()})"] * field.metadata["own"]
        lines += [f"# {field.name} = {json.dumps(text, ensure_ascii=False)}", ""]
    return "\n".join(lines)


def settings() -> Settings:
    """Return the effective settings; raises ConfigError for an invalid value or unknown name, naming its source."""
    return Settings(**{name: value for name, (value, _) in effective().items()})


def setting(name: str) -> Any:
    """Return one effective setting without reading the others; raises ConfigError if that is invalid."""
    field = next(field for field in dataclasses.fields(Settings) if field.name == name)
    return _effective(field, _sources((name,)))[0]


def effective() -> dict[str, tuple[Any, str]]:
    """Return (value, name of its source) for each setting, "" for a default; raises as `settings()` does."""
    found = _sources()
    return {field.name: _effective(field, found) for field in dataclasses.fields(Settings)}


def _effective(field: dataclasses.Field[Any], sources: list[Source]) -> tuple[Any, str]:
    source = next((source for source in sources if field.name in source.values), None)
    if source is not None:
        return _read(field, source), _name(field.name, source)
    return (field.default if field.default_factory is dataclasses.MISSING else field.default_factory()), ""


def ignored() -> dict[str, str]:
    """Return the name of the project file for each setting that it may not set but does."""
    return {name: source.name for source in _sources() for name in source.ignored}


def _read(field: dataclasses.Field[Any], source: Source) -> Any:
    raw = source.values[field.name]
    try:
        value = field.metadata["read"](raw)
    except ConfigError as error:
        raise ConfigError(f"{_name(field.name, source)}: {error}") from error
    except ValueError as error:
        raise ConfigError(f"{_name(field.name, source)}: {field.name} {error}, not {raw!r}") from error
    return source.folder / value if isinstance(value, Path) else value


def variable(name: str) -> str:
    """Return the name of a setting's environment variable."""
    return PREFIX + name.upper()


def _name(name: str, source: Source) -> str:
    return source.name or variable(name)


def _sources(names: tuple[str, ...] = ()) -> list[Source]:
    """Return the sources of these settings, or of all, in order of precedence."""
    names = names or tuple(field.name for field in dataclasses.fields(Settings))
    environment = {name: text for name in names if (text := os.environ.get(variable(name)))}
    try:
        here = Path.cwd()
    except OSError:  # the working directory was deleted
        return [_by_set(Path()), Source("", Path(), environment), *_files(None)]
    return [_by_set(here), Source("", here, environment), *_files(here)]


def _by_set(here: Path) -> Source:
    return Source(BY_SET, here, _chosen)


def unknown_variables() -> list[str]:
    """Return the environment variables with the prefix of settings that name no setting."""
    known = {variable(field.name) for field in dataclasses.fields(Settings)}
    return sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)


def user_file() -> Path:
    """Return the path of the user file, which need not exist."""
    return Path(platformdirs.user_config_dir("webmm")) / FILE


@functools.cache
def _files(start: Path | None) -> tuple[Source, ...]:
    """Return the contents of the project file and the user file; raises ConfigError if one cannot be used."""
    own = user_file().parent.resolve()  # its file is no project's, even if webmm is started there
    folders = [folder for folder in (start, *start.parents) if folder.resolve() != own] if start else []
    project = (source for folder in folders for source in (_toml(folder / FILE), _pyproject(folder)) if source)
    found, user = next(project, None), _toml(user_file())
    return tuple(_known(source) for source in (_without_own(found) if found else None, user) if source)


def _without_own(source: Source) -> Source:
    """Return a project file without the settings that only the user may make; a warning names those."""
    own = [
        field.name for field in dataclasses.fields(Settings) if field.metadata["own"] and field.name in source.values
    ]
    if not own:
        return source
    text = f"{source.name}: {', '.join(own)} ignored, since a project's file may name no program and no path; set "
    text += f"{'it' if len(own) == 1 else 'them'} in {user_file()}, by {', '.join(map(variable, own))}, or by {BY_SET}"
    log.root.warning("%s", printable(text))
    values = {name: value for name, value in source.values.items() if name not in own}
    return dataclasses.replace(source, values=values, ignored=tuple(own))


def _known(source: Source) -> Source:
    names = [field.name for field in dataclasses.fields(Settings)]
    for name in source.values:
        if name not in names:
            raise ConfigError(f"{source.name}: unknown setting {name!r}; choose from {', '.join(names)}")
    return source


def _toml(path: Path) -> Source | None:
    if not os.path.isfile(path):
        return None
    return Source(str(path), path.parent, _parse(path, _text_of(path)))


def _pyproject(folder: Path) -> Source | None:
    path = folder / "pyproject.toml"
    if not os.path.isfile(path) or "webmm" not in (text := _text_of(path)):
        return None  # a file that does not mention webmm is not parsed, so that its errors do not matter
    table = _parse(path, text).get("tool", {})
    table = table.get("webmm") if isinstance(table, dict) else None
    if table is None:
        return None
    name = f"{path} [tool.webmm]"
    if not isinstance(table, dict):
        raise ConfigError(f"{name} is not a table")
    return Source(name, folder, table)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _parse(path: Path, text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        parsed: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    return parsed
