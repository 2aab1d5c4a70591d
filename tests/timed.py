"""A command in a process group of its own, with a limit: its exit code, seconds and processor seconds."""

import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RUNNING: set[int] = set()  # process groups


@dataclass(frozen=True)
class Done:
    """How a command ended; `code` is None if it was killed at its limit."""

    code: int | None
    seconds: float
    cpu_seconds: float


def run(command: list[str], output: Path, limit: float, **settings: Any) -> Done:
    """Run `command` for at most `limit` seconds and add what it prints to `output`; `settings` are those of Popen."""
    start, late = time.monotonic(), threading.Event()
    with output.open("ab") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True, **settings
        )
        RUNNING.add(process.pid)
        timer = threading.Timer(limit, lambda: (late.set(), kill(process.pid)))
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)  # with its children that it waited for
        process.returncode = os.waitstatus_to_exitcode(status)
        timer.cancel()
        kill(process.pid)  # what it left behind
        RUNNING.discard(process.pid)
    cpu_seconds = usage.ru_utime + usage.ru_stime
    return Done(None if late.is_set() else process.returncode, time.monotonic() - start, cpu_seconds)


def kill(group: int) -> None:
    """Kill the processes of a group, if there are any left."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def kill_all() -> None:
    """Kill every command that runs."""
    for group in [*RUNNING]:
        kill(group)
