"""Verdicts of self-tests by driver, stored between processes."""

from __future__ import annotations

import functools
import hashlib
import json
from typing import TYPE_CHECKING, Any

from webmm import hooks
from webmm.choose.tuned import SELFTEST_FILE, folder, log
from webmm.errors import ConfigError, ShaderError
from webmm.files import note, noted
from webmm.kernels.base import Kernel
from webmm.kernels.subgroups import assured
from webmm.problems.base import Problem
from webmm.text import is_plain
from webmm.version import __version__

if TYPE_CHECKING:
    from webmm.engine.device import Device

SELFTEST = "webmm.selftest/1"
UNTESTED = "may run with subgroups of another size, and could not be tested"


def failing(kernel: Kernel[Any], problem: Problem, device: Device) -> str | None:
    """Return why `kernel` must not compute `problem` on this driver, or None if its shader is right.

    A shader without a verdict is tested, see `webmm.measure.selftest`; one that cannot be tested now passes, unless the
    driver may choose subgroups for it that do not suit (`webmm.kernels.subgroups`): such a shader is tested whatever
    the settings. Raises DeviceLostError.
    """
    certain = assured(kernel, device.capabilities)
    if certain and not device.settings.selftest:
        return None
    if device.verdicts is None:
        device.verdicts = verdicts(verdicts_key(device))
    try:
        shader = text_of(kernel, problem, device)
    except (ShaderError, ConfigError) as error:  # in a plugin's template, or its text is too long
        return str(error)
    if shader not in device.verdicts:
        hooks.above.test(kernel, problem, device, shader)
    return device.verdicts.get(shader, "" if certain else UNTESTED) or None


def verdicts_key(device: Device) -> str:
    """Return the key of this device's verdicts: adapter, driver, engine, version of webmm, limits and features.

    The sizes of subgroups are among them: environment variables of Mesa's drivers change these.
    """
    info, offered = device.info, device.capabilities
    opened_with = json.dumps([sorted(offered.limits.items()), sorted(offered.features), offered.subgroup_sizes])
    fingerprint = hashlib.sha256(opened_with.encode()).hexdigest()[:8]
    engine = device.engine.version()
    return f"{info.name}, {info.backend}, {info.driver}, {engine}, webmm {__version__}, limits {fingerprint}"


def text_of(kernel: Kernel[Any], problem: Problem, device: Device) -> str:
    """Return a fingerprint of the shaders that `kernel` runs for `problem`."""
    return _fingerprint(*(device.shader(step, problem).wgsl for step in kernel.dispatches))


@functools.lru_cache(maxsize=1024)
def _fingerprint(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


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
