"""What is known to be fast: tuned records shipped with webmm, and the user's own.

Both are documents of `webmm.records/1`. The user's lies in the folder of the setting `cache_dir`; it is written
whole under a lock, so that several processes may tune at once. A file that cannot be read is set aside with a
warning.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from webmm.config import settings
from webmm.errors import ConfigError, ProblemError
from webmm.files import write_atomically
from webmm.records import Record, from_json, to_json

log = logging.getLogger(__name__)

SHIPPED = Path(__file__).parent / "tuned"
SELFTEST = "webmm.selftest/1"
LOCK_TIMEOUT = 30  # seconds
WORTH_SCRATCH = 1.02

Key = tuple[object, ...]


def folder() -> Path:
    """Return the cache folder, which need not exist."""
    return settings().cache_dir


def path() -> Path:
    """Return the file that holds the user's tuned records."""
    return folder() / "tuned.json"


def key(record: Record) -> Key:
    """Return what a tuned record is known by: a later one of the same key replaces it.

    Sizes are exact, since 1023 and 1024 want different tiles; one record serves its whole bucket (webmm.choose).
    """
    r = record
    return (r.adapter, r.driver, r.version, r.op, r.dtype, r.layout, r.m, r.n, r.k, r.batch)


def fastest(records: Iterable[Record]) -> list[Record]:
    """Return the fastest successful kernel of each key; references such as NumPy and cuBLAS are no kernels.

    One that needs memory between its dispatches must be faster by WORTH_SCRATCH: 0.1 % is no reason for a gigabyte.
    """
    from webmm.kernels import STAGES

    best: dict[Key, Record] = {}
    for record in records:
        if record.status != "ok" or not record.median_us or record.kernel not in STAGES.get(record.op, ()):
            continue
        known = best.get(key(record))
        if known is None or _cost(record) < _cost(known):
            best[key(record)] = record
    return list(best.values())


def _cost(record: Record) -> float:
    """Return the time in µs, and more where the kernel divides its work among dispatches."""
    divided = record.config.get("splits", 1) != 1
    return (record.median_us or math.inf) * (WORTH_SCRATCH if divided else 1.0)


def load() -> list[Record]:
    """Return the user's tuned records; none where there is no file, or where it had to be set aside."""
    file = path()
    try:
        status = file.stat()
        return list(_read(file, (status.st_mtime_ns, status.st_ino, status.st_size)))
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError, ProblemError) as error:
        aside = file.with_suffix(".bad")
        log.warning("the tuned records in %s cannot be read and are set aside as %s: %s", file, aside.name, error)
        try:
            os.replace(file, aside)
        except OSError as failure:
            log.warning("%s could not be moved: %s", file, failure)
        return []


@functools.lru_cache(maxsize=1)
def _read(file: Path, version: tuple[int, ...]) -> tuple[Record, ...]:
    """Return the records of `file`, read once while its `version` stays the same."""
    del version
    return tuple(from_json(file.read_text()))


@functools.cache
def shipped() -> tuple[Record, ...]:
    """Return the tuned records that come with webmm."""
    return tuple(record for file in sorted(SHIPPED.glob("*.json")) for record in from_json(file.read_text()))


def add(records: Iterable[Record]) -> int:
    """Merge the fastest of `records` into the user's, and return how many there were.

    Raises ConfigError where the folder cannot be written to.
    """
    best = fastest(records)
    file = path()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(file.with_suffix(".lock"), timeout=LOCK_TIMEOUT):
            merged = {key(record): record for record in [*load(), *best]}
            write_atomically(file, lambda out: out.write(to_json(merged.values()).encode()))
    except (OSError, filelock.Timeout) as error:
        raise ConfigError(f"cannot write {file}: {error}; WEBMM_CACHE_DIR names another folder") from error
    return len(best)


@contextmanager
def searching(seconds: float) -> Iterator[None]:
    """Hold the right to search for the best kernel: one search at a time, since two would time each other's work.

    Raises filelock.Timeout where another goes on for longer than `seconds`, ConfigError without a folder to write to.
    """
    file = folder() / "search.lock"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(file, timeout=seconds)
        lock.acquire()
    except filelock.Timeout:
        raise
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error}; WEBMM_CACHE_DIR names another folder") from error
    try:
        yield
    finally:
        lock.release()


def verdicts(driver: str) -> dict[str, str]:
    """Return what self-tests found on `driver`: what is wrong with each shader, "" where nothing is."""
    return _verdicts().get(driver, {})


def _verdicts() -> dict[str, dict[str, str]]:
    try:
        found = json.loads((folder() / "selftest.json").read_text())
        drivers = found["drivers"] if found["schema"] == SELFTEST else {}
        return {name: {str(shader): str(verdict) for shader, verdict in of.items()} for name, of in drivers.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # they are all found again


def keep_verdicts(driver: str, found: dict[str, str]) -> None:
    """Add to what is known of `driver`; where that cannot be written, it is found again next time."""
    file = folder() / "selftest.json"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(file.with_suffix(".lock"), timeout=LOCK_TIMEOUT):
            every = _verdicts()
            text = json.dumps(
                {"schema": SELFTEST, "drivers": every | {driver: every.get(driver, {}) | found}}, indent=1
            )
            write_atomically(file, lambda out: out.write(text.encode()))
    except (OSError, ConfigError) as error:
        log.debug("%s: %s", file, error)


def clear() -> int:
    """Forget the user's tuned records and what self-tests found; return how many records there were."""
    count = len(load())
    for file in (path(), folder() / "selftest.json"):
        file.unlink(missing_ok=True)
    return count
