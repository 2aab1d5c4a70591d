"""What self-tests found out about drivers, kept between processes."""

from __future__ import annotations

from webmm.choose.tuned import SELFTEST_FILE, folder, log
from webmm.errors import ConfigError
from webmm.files import note, noted
from webmm.text import is_plain

SELFTEST = "webmm.selftest/1"


def verdicts(driver: str) -> dict[str, str]:
    """Return what self-tests found on `driver`: what is wrong with each shader, "" where nothing is."""
    return _sound(noted(folder() / SELFTEST_FILE, SELFTEST).get(driver))


def keep_verdicts(driver: str, found: dict[str, str]) -> None:
    """Add to what is known of `driver`; where that cannot be written, it is found again next time."""
    try:
        note(folder() / SELFTEST_FILE, SELFTEST, driver, lambda known: _sound(known) | found)
    except ConfigError as error:
        log.debug("%s", error)


def _sound(known: object) -> dict[str, str]:
    entries = known.items() if isinstance(known, dict) else ()
    return {shader: verdict for shader, verdict in entries if isinstance(verdict, str) and is_plain(verdict)}
