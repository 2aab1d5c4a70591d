"""The command as a user runs it: in a separate process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def webmm(tmp_path: Path) -> Cli:
    """Run `webmm ARGS` in a temporary folder; no run may show a traceback."""

    def run(*args: object, **env: str) -> subprocess.CompletedProcess[str]:
        import os

        done = subprocess.run(
            [sys.executable, "-m", "webmm.cli", *map(str, args)],
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
