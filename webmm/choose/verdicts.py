"""What self-tests found out about drivers, kept between processes."""

from __future__ import annotations

import json

import filelock

from webmm.choose.tuned import LOCK_TIMEOUT, SELFTEST_FILE, folder, log
from webmm.errors import ConfigError
from webmm.files import read_text, write_atomically
from webmm.text import is_plain

SELFTEST = "webmm.selftest/1"


def verdicts(driver: str) -> dict[str, str]:
    """Return what self-tests found on `driver`: what is wrong with each shader, "" where nothing is."""
    return _verdicts().get(driver, {})


def _verdicts() -> dict[str, dict[str, str]]:
    try:
        found = json.loads(read_text(folder() / SELFTEST_FILE))
        drivers = found["drivers"] if found["schema"] == SELFTEST else {}
        return {
            name: {shader: verdict for shader, verdict in of.items() if isinstance(verdict, str) and is_plain(verdict)}
            for name, of in drivers.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}  # they are all found again


def keep_verdicts(driver: str, found: dict[str, str]) -> None:
    """Add to what is known of `driver`; where that cannot be written, it is found again next time."""
    file = folder() / SELFTEST_FILE
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
