"""Verdicts of self-tests by driver, stored between processes."""

from __future__ import annotations

from webmm.choose.tuned import SELFTEST_FILE, folder, log
from webmm.errors import ConfigError
from webmm.files import note, noted
from webmm.text import is_plain

SELFTEST = "webmm.selftest/1"


def verdicts(driver: str) -> dict[str, str]:
    """Return the verdicts of self-tests on `driver`: the error of each tested shader, or "" if it passed."""
    return _valid(noted(folder() / SELFTEST_FILE, SELFTEST).get(driver))


def keep_verdicts(driver: str, found: dict[str, str]) -> None:
    """Store verdicts for `driver`; if they cannot be written, the self-tests run again in the next process."""
    try:
        note(folder() / SELFTEST_FILE, SELFTEST, driver, lambda known: _valid(known) | found)
    except ConfigError as error:
        log.debug("%s", error)


def _valid(known: object) -> dict[str, str]:
    entries = known.items() if isinstance(known, dict) else ()
    return {shader: verdict for shader, verdict in entries if isinstance(verdict, str) and is_plain(verdict)}
