"""Subgroups of 4, 8 and 16 lanes, which lavapipe has at three widths of vectors; wrong numbers of lanes are caught."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lanes import stages

OPS = {"gemm", "weights", "reduce", "normalise", "attention"}
# In a process of its own: the width is read once.
SCRIPT = Path(__file__).with_name("lanes.py")


# Of eight lanes, most CPUs have them, and all other tests use them.
EVERY_OPERATION = [pytest.param(lanes, (), marks=pytest.mark.long) for lanes in (4, 8, 16)]


# Four are those of Chromium's driver, on which the tests of Dawn and of the page run.
@pytest.mark.parametrize(("lanes", "options"), [(16, ("--few",)), *EVERY_OPERATION])
def test_every_stage_in_subgroups_of(lanes, options):
    environment = {**os.environ, "LP_NATIVE_VECTOR_WIDTH": str(32 * lanes)}
    command = [sys.executable, str(SCRIPT), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["lanes"] == lanes
    assert found["failed"] == []
    kernels = found["kernels"]
    assert {name.split()[0] for name, *_ in kernels} == OPS
    assert set(found["right"]) == {name for name, n, exact in kernels if n == lanes or (n < lanes and not exact)}
    assert set(found["refused"]) == {name for name, n, _ in kernels if n == 2 * lanes}


def test_every_op_with_subgroups_has_stages():
    assert {cls.op for cls in stages()} == OPS
