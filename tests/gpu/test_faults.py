"""Fault injection: whatever the n-th use of an engine call does, an op ends as documented, and the next call works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from faulty import CALLS

FAULTY = Path(__file__).with_name("faulty.py")


def try_all(engine, call, environment, *options):
    """Try a call in a separate process, and return the number of faults."""
    command = [sys.executable, "-X", "faulthandler", str(FAULTY), engine, call, *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout.split()[0])


@pytest.mark.parametrize("call", list(CALLS)[::6])  # others under Dawn; the long run has all
def test_every_fault(call):
    assert try_all("wgpu", call, os.environ) >= 10


@pytest.mark.parametrize("call", list(CALLS)[2::4])
def test_every_fault_point_under_dawn(call, swiftshader):
    assert try_all("dawn", call, swiftshader) >= 4


def test_errors_keep_no_memory_that_c_borrows(swiftshader):
    # Their frames hold memoryviews in a cycle, and collecting those ended the process.
    assert try_all("dawn", "streamed", swiftshader, "--only", "write", "lost", "1") == 1
