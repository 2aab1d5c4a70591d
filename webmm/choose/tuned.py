"""Tuned records: those shipped with webmm, and the user's.

Both are documents of `webmm.records/1`. The user's file is in the directory of the setting `cache_dir`; it is replaced
as a whole under a lock, so that several processes can tune at the same time. A file that cannot be read is renamed with
a warning.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from webmm import config
from webmm.config import Tune
from webmm.dtypes import DType
from webmm.engine import generation
from webmm.engine.device import Device
from webmm.engine.rates import RATES_FILE
from webmm.errors import ConfigError, ProblemError
from webmm.files import LOCK_TIMEOUT, read_text, write_atomically
from webmm.kernels import STAGES, configure
from webmm.kernels.base import Kernel
from webmm.measure.records import Record, from_json, to_json
from webmm.problems.base import Problem
from webmm.version import __version__

log = logging.getLogger(__name__)
SELFTEST_FILE = "selftest.json"  # see webmm.choose.verdicts
REFIT_FILE = "refit.json"  # see webmm.choose.adapted
SHIPPED = Path(__file__).parents[1] / "tuned"
WORTH_SCRATCH = 1.02
ShapeKey = tuple[object, ...]
NEAR = 3.0  # the largest distance() of a record that is used: sizes that differ by a factor of 2³ in total
LARGE = 512**3  # m·n·k from which the rate of a product counts as that of the device
SAME = 0.02  # the largest distance() at which sizes count as equal: 1.4 %


def folder() -> Path:
    """Return the cache directory, which need not exist."""
    return Path(config.setting("cache_dir"))


def path() -> Path:
    """Return the path of the user's tuned records."""
    return folder() / "tuned.json"


def key(record: Record) -> ShapeKey:
    """Return the key of a tuned record; a later record with the same key replaces it.

    The key has exact sizes, since 1023 and 1024 need different tiles, but a record is used for all shapes nearby.
    """
    r = record
    return (family(r), r.adapter, r.driver, r.version, r.op, r.variant, r.dtype, r.layout, r.m, r.n, r.k, r.batch)


def fastest(records: Iterable[Record]) -> list[Record]:
    """Return the fastest successful kernel for each key, without references such as NumPy and cuBLAS.

    A search times its best kernels several times, so only the kernels with the most records are compared, by their last
    records. A kernel with scratch buffers must be faster by WORTH_SCRATCH, since 0.1 % does not justify a gigabyte.
    """
    times: dict[ShapeKey, dict[str, list[Record]]] = {}
    for record in records:
        if record.status == "ok" and record.median_us and record.kernel in STAGES.get(record.op, ()):
            times.setdefault(key(record), {}).setdefault(f"{record.kernel} {record.config}", []).append(record)
    best = []
    for kernels in times.values():
        most = max(map(len, kernels.values()))
        best.append(min((timed[-1] for timed in kernels.values() if len(timed) == most), key=_cost))
    return best


def _cost(record: Record) -> float:
    """Return the time in µs, increased by WORTH_SCRATCH for a kernel that splits k and so needs scratch buffers."""
    divided = record.config.get("splits", 1) != 1
    return (record.median_us or math.inf) * (WORTH_SCRATCH if divided else 1.0)


def load() -> list[Record]:
    """Return the user's tuned records; [] if there is no file, or if it could not be read and was renamed."""
    file = path()
    try:
        status = file.stat()
        return list(_read(file, (status.st_mtime_ns, status.st_ino, status.st_size, generation.current)))
    except FileNotFoundError:
        return []
    except (OSError, ProblemError) as error:
        aside = file.with_suffix(".bad")
        log.warning("the tuned records in %s cannot be read; the file is renamed to %s: %s", file, aside.name, error)
        try:
            os.replace(file, aside)
        except OSError as failure:
            log.warning("%s could not be renamed: %s", file, failure)
        return []


@functools.lru_cache(maxsize=1)
def _read(file: Path, version: tuple[int, ...]) -> tuple[Record, ...]:
    """Return the records of `file`, cached for its `version`; a warning is logged for each invalid one."""
    del version
    return tuple(from_json(read_text(file), lambda complaint: log.warning("%s: %s", file, complaint), refusal))


@functools.cache
def shipped() -> tuple[Record, ...]:
    """Return the tuned records that come with webmm."""
    return tuple(
        record for file in sorted(SHIPPED.glob("*.json")) for record in from_json(file.read_text(), refusal=refusal)
    )


def add(records: Iterable[Record]) -> int:
    """Merge the fastest of `records` into the user's file, and return their number.

    Those that `load()` would leave out are left out here, with a warning. Raises ConfigError if the directory is not
    writable.
    """
    import filelock  # loads much that reading records does not need

    found = [(record, refusal(record)) for record in records]
    for reason in dict.fromkeys(reason for _, reason in found if reason):
        log.warning("a record is left out: it %s", reason)
    best = fastest(record for record, reason in found if not reason)
    file = path()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(file.with_suffix(".lock"), timeout=LOCK_TIMEOUT):
            known = load()
            others = [r for r in known if r.kernel not in STAGES.get(r.op, ())]  # kernels not registered here
            merged = {key(record): record for record in [*known, *best] if record not in others}
            write_atomically(file, lambda out: out.write(to_json([*merged.values(), *others]).encode()))
        generation.advance()
    except OSError as error:  # which includes filelock.Timeout
        raise ConfigError(f"cannot write {file}: {error}; WEBMM_CACHE_DIR names another folder") from error
    return len(best)


@contextmanager
def searching(seconds: float) -> Iterator[None]:
    """Hold the lock for a search: concurrent searches would disturb each other's timings.

    Raises filelock.Timeout if another search does not end within `seconds`, ConfigError if the directory is not
    writable.
    """
    import filelock

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
    """Delete the user's tuned records, self-test verdicts, probed rates and corrections; return how many records."""
    count = len(load())
    for file in (path(), *(folder() / name for name in (SELFTEST_FILE, REFIT_FILE, RATES_FILE))):
        file.unlink(missing_ok=True)
    generation.advance()
    return count


def rate(device: Device, dtype: DType) -> float:
    """Return the highest rate of large float products of `dtype` in tuned records of the adapter, operations/s, or 0.

    Small products say nothing about the rate: 20³ takes as long as a dispatch does.
    """
    known = (generation.current, dtype.name)
    if known not in device.rates:
        adapter = _words(device.info.name)
        alike = (r for r in (*load(), *shipped()) if (r.op, r.dtype) == ("gemm", dtype.name))
        large = (r for r in alike if r.m * r.n * r.k * r.batch >= LARGE)
        best = max((r.gflops or 0.0 for r in large if _words(r.adapter) == adapter), default=0.0)
        device.rates[known] = 1e9 * best
    return device.rates[known]


# The record for a problem


def nearest(problem: Problem, device: Device, units: bool = False, near: float = NEAR) -> list[tuple[Kernel[Any], str]]:
    """Return the nearest tuned kernel within the distance `near`, if any, with a description of its record.

    Records of this adapter come first, then those of other adapters by its vendor. If matrix units can compute the
    problem (`units`), records without matrix units count only if they were tuned on this adapter: for float16 at 4096³,
    an H200 reaches 48 TFLOP/s without matrix units, 300 with them.
    """
    engine, wanted = device.engine.name, kind(problem)
    user, known = (
        [r for r in records if kind(r) == wanted and family(r) == engine]  # most ops have no records
        for records in (load(), shipped())
    )
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
    """Return the nearest record whose kernel exists in this version, or None if none is near."""
    alike = (record for record in records if kind(record) == kind(problem))
    near = [(distance(problem, record), record) for record in alike]
    for distant, record in sorted(near, key=lambda pair: (pair[0], pair[1].median_us or math.inf)):
        if distant <= most and kernel_of(record):
            return record
    return None


def fresh(record: Record, device: Device) -> bool:
    """Return whether the record was measured by this version of webmm, on this adapter with its current driver."""
    measured = (family(record), record.adapter, record.driver, record.version)
    return measured == (device.engine.name, device.info.name, device.info.driver, __version__)


def covered(problem: Problem, device: Device, tune: Tune = "auto") -> bool:
    """Return whether this adapter has a tuned record for the dtype, layout and bucket of `problem`.

    With `tune` "quick", the record must have exactly the same size instead.
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
    """Return the bucket of a shape, which is tuned once: the rounded binary logarithms of m, n and k, and `_odd()`.

    A batch counts as additional rows.
    """
    m, n, k = (round(math.log2(size)) for size in sizes_of(of))
    return m, n, k, _odd(of)


def kind(of: Problem | Record) -> tuple[str, str, str]:
    """Return the op, its variant and the dtype, which a record and a problem must share."""
    return of.op, of.variant, of.dtype if isinstance(of, Record) else of.dtype.name


def sizes_of(of: Problem | Record) -> tuple[int, int, int]:
    """Return m, n and k; a batch counts as additional rows."""
    m, n, k, batch = (of.m, of.n, of.k, of.batch) if isinstance(of, Record) else of.sizes
    return m * batch, n, k


def _odd(of: Problem | Record) -> bool:
    """Return whether the stored rows of an operand have more than 4 elements and cannot be read as vec4."""
    m, n, k, _ = (of.m, of.n, of.k, of.batch) if isinstance(of, Record) else of.sizes
    if of.layout:
        rows: tuple[int, ...] = (m if of.layout[0] == "t" else k, k if of.layout[1] == "t" else n)
    else:
        rows = (n if k == 1 else k,)  # the contiguous axis of x[m, n, k]
    return any(length > 4 and length % 4 for length in rows)


def family(record: Record) -> str:
    """Return the engine of a record, wgpu or dawn; they compile shaders differently and need different tiles."""
    return engine_of_record(record.engine)


def engine_of_record(words: str) -> str:
    """Return the engine, wgpu or dawn, for the engine field of a record; node and Chromium-based browsers use Dawn."""
    return "dawn" if any(name in words.lower() for name in ("dawn", "chrome", "edge", "opera")) else "wgpu"


def _words(adapter: str) -> list[str]:
    """Return the words of an adapter's name: the engines spell it "NVIDIA H200" and "nvidia-h200"."""
    return adapter.lower().replace("-", " ").split()


def distance(problem: Problem, record: Record) -> float:
    """Return the distance between the sizes of `record` and `problem`: the sum of their absolute log2 ratios.

    A batch counts as additional rows. A different layout, or a difference in `_odd()`, adds 1.
    """
    pairs = zip(sizes_of(problem), sizes_of(record), strict=True)
    differs = (record.layout != problem.layout) + (_odd(record) != _odd(problem))
    return sum(abs(math.log2(mine / its)) for mine, its in pairs) + differs


def refusal(record: Record) -> str | None:
    """Return why a record is not used although this version has its kernel and tunables, or None."""
    kernel = _configured(record)
    reason = untried(kernel) if kernel else None
    return f"is of {record.kernel} with a value that is never tried: {reason}" if reason else None


def kernel_of(record: Record) -> Kernel[Any] | None:
    """Return the kernel of a record, or None if this version has no such kernel or tunables."""
    kernel = _configured(record)
    return None if kernel is None or kernel.invalid() else kernel


def _configured(record: Record) -> Kernel[Any] | None:
    try:
        kernel: Kernel[Any] = configure(record.kernel, {name: str(v) for name, v in record.config.items()}, record.op)
    except ConfigError:
        return None
    return kernel


def untried(kernel: Kernel[Any]) -> str | None:
    """Return which tunable has a value that neither a search nor the choice takes, or None.

    Records of such kernels are refused: whatever is in a file may be chosen, and nobody has tried these.
    """
    for field in dataclasses.fields(kernel):
        value, candidates, most = getattr(kernel, field.name), field.metadata["candidates"], field.metadata["most"]
        if value not in candidates and not (isinstance(value, int) and 1 <= value <= most):
            beyond = f", or at most {most:,}" if most else ""
            return f"{field.name} must be one of {', '.join(map(str, candidates))}{beyond}, not {value}"
    return None
