"""What is known to be fast: tuned records shipped with webmm, and the user's own.

Both are documents of `webmm.records/1`. The user's lies in the folder of the setting `cache_dir`; it is written
whole under a lock, so that several processes may tune at once. A file that cannot be read is set aside with a
warning.
"""

from __future__ import annotations

import functools
import logging
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock

from webmm.config import Tune, settings
from webmm.engine.device import Device
from webmm.engine.rates import RATES_FILE
from webmm.errors import ConfigError, ProblemError
from webmm.files import LOCK_TIMEOUT, read_text, write_atomically
from webmm.kernels import STAGES, configure
from webmm.kernels.base import Kernel
from webmm.problems.base import Problem
from webmm.records import Record, from_json, to_json
from webmm.version import __version__

log = logging.getLogger(__name__)
SELFTEST_FILE = "selftest.json"  # of webmm.choose.verdicts
REFIT_FILE = "refit.json"  # of webmm.choose.adapted
SHIPPED = Path(__file__).parents[1] / "tuned"
WORTH_SCRATCH = 1.02
Key = tuple[object, ...]
NEAR = 3.0  # a record serves problems whose sizes differ by at most a factor of 2³ in all
SAME = 0.02  # and practically the very same ones by at most 1.4 %


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
    return (family(r), r.adapter, r.driver, r.version, r.op, r.variant, r.dtype, r.layout, r.m, r.n, r.k, r.batch)


def fastest(records: Iterable[Record]) -> list[Record]:
    """Return the fastest successful kernel of each key; references such as NumPy and cuBLAS are no kernels.

    A search times its best kernels several times: those that it timed most often count, each by its last record. One
    that needs memory between its dispatches must be faster by WORTH_SCRATCH: 0.1 % is no reason for a gigabyte.
    """
    times: dict[Key, dict[str, list[Record]]] = {}
    for record in records:
        if record.status == "ok" and record.median_us and record.kernel in STAGES.get(record.op, ()):
            times.setdefault(key(record), {}).setdefault(f"{record.kernel} {record.config}", []).append(record)
    best = []
    for kernels in times.values():
        most = max(map(len, kernels.values()))
        best.append(min((timed[-1] for timed in kernels.values() if len(timed) == most), key=_cost))
    return best


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
    except (OSError, ProblemError) as error:
        aside = file.with_suffix(".bad")
        log.warning("the tuned records in %s cannot be read and are set aside as %s: %s", file, aside.name, error)
        try:
            os.replace(file, aside)
        except OSError as failure:
            log.warning("%s could not be moved: %s", file, failure)
        return []


@functools.lru_cache(maxsize=1)
def _read(file: Path, version: tuple[int, ...]) -> tuple[Record, ...]:
    """Return the records of `file`, read once while its `version` stays the same; a warning names each bad one."""
    del version
    return tuple(from_json(read_text(file), lambda complaint: log.warning("%s: %s", file, complaint)))


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
            known = load()
            others = [r for r in known if r.kernel not in STAGES.get(r.op, ())]  # of kernels that others register
            merged = {key(record): record for record in [*known, *best] if record not in others}
            write_atomically(file, lambda out: out.write(to_json([*merged.values(), *others]).encode()))
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


def clear() -> int:
    """Forget the user's tuned records, and what self-tests and probes found; return how many records there were."""
    count = len(load())
    for file in (path(), *(folder() / name for name in (SELFTEST_FILE, REFIT_FILE, RATES_FILE))):
        file.unlink(missing_ok=True)
    return count


# The record that serves a problem


def nearest(problem: Problem, device: Device, units: bool = False, near: float = NEAR) -> list[tuple[Kernel[Any], str]]:
    """Return the nearest tuned kernel, and whose record it is: of this very adapter, else of another by its vendor.

    None is farther than `near`.

    Where matrix units serve the problem (`units`), what others tuned without them gives way: 48 TFLOP/s at 4096³ of
    float16 on an H200, where matrix units read 300.
    """
    user, known = ([r for r in records if family(r) == device.engine.name] for records in (load(), shipped()))
    adapter = _words(device.info.name)
    own = [r for r in user if fresh(r, device)]
    groups = {
        "tuned here": own,
        "tuned here, with another version or driver": [r for r in user if _words(r.adapter) == adapter],
        "shipped for this adapter": [r for r in known if _words(r.adapter) == adapter],
        "known of its vendor": [r for r in [*user, *known] if _words(r.adapter)[:1] == adapter[:1]],
    }
    for words, group in groups.items():
        record = _nearest(problem, group, near)
        kernel = kernel_of(record) if record else None
        if record and kernel and (kernel.matrix_shape or not units or group is own):
            known_us = f"{record.median_us:,.1f} µs there" if record.median_us else "not timed"
            return [(kernel, f"{words} at {record.size} {record.layout}".rstrip() + f", {known_us}")]
    return []


def _nearest(problem: Problem, records: Iterable[Record], most: float = NEAR) -> Record | None:
    """Return the nearest record that names a kernel of this version, None where none is near."""
    alike = (record for record in records if kind(record) == kind(problem))
    near = [(distance(problem, record), record) for record in alike]
    for apart, record in sorted(near, key=lambda pair: (pair[0], pair[1].median_us or math.inf)):
        if apart <= most and kernel_of(record):
            return record
    return None


def fresh(record: Record, device: Device) -> bool:
    """Tell whether this version of webmm measured it on this adapter with its present driver."""
    measured = (family(record), record.adapter, record.driver, record.version)
    return measured == (device.engine.name, device.info.name, device.info.driver, __version__)


def covered(problem: Problem, device: Device, tune: Tune = "auto") -> bool:
    """Tell whether this adapter has a tuned record of `problem`, of its type and layout.

    That is one of its bucket, or, where only `tune` "quick" is to find it, one of its very size.
    """
    same = sizes_of if tune == "quick" else bucket
    adapter = _words(device.info.name)
    here = (r for r in shipped() if _words(r.adapter) == adapter and family(r) == device.engine.name)
    return any(
        (*kind(record), record.layout) == (*kind(problem), problem.layout)
        and same(record) == same(problem)
        and kernel_of(record)
        for record in [*(record for record in load() if fresh(record, device)), *here]
    )


def bucket(of: Problem | Record) -> tuple[int, int, int, bool]:
    """Return m, n and k as powers of two, rounded, and whether vec4 serve: shapes of one bucket are tuned once.

    A batch counts as more rows.
    """
    m, n, k = (round(math.log2(size)) for size in sizes_of(of))
    return m, n, k, _odd(of)


def kind(of: Problem | Record) -> tuple[str, str, str]:
    """Return the op, its variant and the dtype: what a record must share with a problem that it serves."""
    return of.op, of.variant, of.dtype if isinstance(of, Record) else of.dtype.name


def sizes_of(of: Problem | Record) -> tuple[int, int, int]:
    """Return m, n and k; a batch counts as more rows."""
    m, n, k, batch = (of.m, of.n, of.k, of.batch) if isinstance(of, Record) else of.sizes
    return m * batch, n, k


def _odd(of: Problem | Record) -> bool:
    """Tell whether stored rows of an operand, of more than a few elements, cannot be read by vec4."""
    m, n, k, _ = (of.m, of.n, of.k, of.batch) if isinstance(of, Record) else of.sizes
    if of.layout:
        rows: tuple[int, ...] = (m if of.layout[0] == "t" else k, k if of.layout[1] == "t" else n)
    else:
        rows = (n if k == 1 else k,)  # of x[m, n, k]
    return any(length > 4 and length % 4 for length in rows)


def family(record: Record) -> str:
    """Return the engine that ran it, wgpu or dawn: they make other code of a shader, for which other tiles are best."""
    return engine_of(record.engine)


def engine_of(words: str) -> str:
    """Return which engine a program has that calls itself so: Dawn is that of Python, of node and of Chromium."""
    return "dawn" if any(name in words.lower() for name in ("dawn", "chrome", "edge", "opera")) else "wgpu"


def _words(adapter: str) -> list[str]:
    """Return an adapter's name in words: one engine says "NVIDIA H200", the other "nvidia-h200"."""
    return adapter.lower().replace("-", " ").split()


def distance(problem: Problem, record: Record) -> float:
    """Return by how many doublings the sizes of `record` and `problem` differ.

    A batch counts as more rows; another layout, or single elements in place of vec4, as one doubling.
    """
    pairs = zip(sizes_of(problem), sizes_of(record), strict=True)
    differs = (record.layout != problem.layout) + (_odd(record) != _odd(problem))
    return sum(abs(math.log2(mine / its)) for mine, its in pairs) + differs


def kernel_of(record: Record) -> Kernel[Any] | None:
    """Return the kernel of a record, None where this version has no such kernel or tunables."""
    try:
        kernel: Kernel[Any] = configure(record.kernel, {name: str(v) for name, v in record.config.items()}, record.op)
    except ConfigError:
        return None
    return None if kernel.invalid() else kernel
