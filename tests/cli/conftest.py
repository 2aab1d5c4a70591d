"""The command: in this process, unless the process itself is asked about."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from webmm import config, log, plugins
from webmm.cli import main
from webmm.engine.device import Device
from webmm.measure import roofline

Cli = Callable[..., subprocess.CompletedProcess[str]]
Clis = Callable[..., list[subprocess.CompletedProcess[str]]]


_measured: dict[str, roofline.Roofline] = {}
_measure = roofline.measure


def measured_once(device: Device) -> roofline.Roofline:
    """Return the best rates of a device, which each process of a user's measures, and which take a second."""
    key = str(device.info)
    _measured[key] = _measured.get(key) or _measure(device)
    return _measured[key]


@pytest.fixture
def process(tmp_path: Path) -> Cli:
    """Run `webmm ARGS` as a user does, in a separate process in a temporary folder; no run may show a traceback."""

    def run(*args: object, **env: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "webmm", *map(str, args)],
            cwd=tmp_path,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


IN_TURN = """
import json, sys
from click.testing import CliRunner
from webmm.cli import main
done = [CliRunner().invoke(main, words, prog_name="webmm") for words in json.load(sys.stdin)]
print(json.dumps([[each.exit_code, each.stdout, each.stderr] for each in done]))
"""


@pytest.fixture
def processes(tmp_path: Path) -> Clis:
    """Run several commands in one other process, for instance one with other drivers."""

    def run(*commands: list[object], **env: str) -> list[subprocess.CompletedProcess[str]]:
        given = json.dumps([[*map(str, words)] for words in commands])
        done = subprocess.run(
            [sys.executable, "-c", IN_TURN],
            cwd=tmp_path,
            env={**os.environ, **env},
            input=given,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert (done.returncode, "Traceback" in done.stdout + done.stderr) == (0, False), done.stderr
        *printed, told = done.stdout.splitlines()
        assert not printed, "the drivers print nothing"
        assert done.stderr == "", "the drivers print nothing"
        return [
            subprocess.CompletedProcess(words, *each) for words, each in zip(commands, json.loads(told), strict=True)
        ]

    return run


@pytest.fixture
def webmm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process: Cli) -> Cli:
    """Run `webmm ARGS` like `process`, but in this process, which has imported webmm and loaded the drivers.

    Variables other than webmm's own are read when a process starts, by drivers and Python: these start one.
    """
    monkeypatch.setattr(roofline, "measure", measured_once)

    def run(*args: object, **env: str) -> subprocess.CompletedProcess[str]:
        if not all(name.startswith("WEBMM_") for name in env):
            return process(*args, **env)
        words = [*map(str, args)]
        before = plugins.registered()
        with monkeypatch.context() as patch, logged_alone():
            patch.chdir(tmp_path)
            patch.setattr(sys, "argv", ["webmm", *words])
            config._files.cache_clear()
            done = CliRunner().invoke(main, words, env=env, prog_name="webmm")
        config._files.cache_clear()
        for what in reversed(plugins.registered()):
            if what not in before and what in plugins.registered():  # unregistering an op removes its stages, too
                plugins.unregister(what)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)

    return run


@contextlib.contextmanager
def logged_alone() -> Iterator[None]:
    """Let the command log as in a program without handlers, and forget its own: pytest's would take its messages."""
    root = logging.getLogger("webmm")
    loggers = [root, *(root.getChild(topic) for topic in log.TOPICS)]
    levels, handlers = [each.level for each in loggers], [*root.handlers]
    root.propagate = False
    try:
        yield
    finally:
        root.propagate = True
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        root.handlers[:] = handlers
