"""Calls of webmm.js that were made before: what they ask of WebGPU, and that they are checked all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("node_plans.mjs")
CALLS = 8  # between two waits, of one submission
A_SUBMISSION = {"createCommandEncoder", "beginComputePass", "end", "finish", "submit", "queue"}


@pytest.fixture(scope="module")
def said(page_folder: Path, node_modules: Path, node: Callable[..., Any]) -> dict[str, Any]:
    done = node(str(SCRIPT), str(page_folder / "webmm.js"), str(node_modules / "webgpu" / "index.js"))
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout))


def test_a_repeated_call_asks_webgpu_for_its_dispatches_alone(said: dict[str, Any]) -> None:
    """Nothing is made, bound, looked up or waited for, and a pipeline is set once."""
    assert len(said["calls"]) == 10
    for name, call in said["calls"].items():
        asked = call["asked"]
        dispatches = asked.pop("dispatchWorkgroups")
        assert dispatches == asked.pop("setBindGroup"), name
        assert dispatches % CALLS == 0, name
        assert asked.pop("setPipeline") <= (1 if dispatches == CALLS else dispatches), name
        assert asked.keys() <= A_SUBMISSION, (name, asked)
        assert set(asked.values()) == {1}, (name, asked)


def test_a_repeated_call_computes_on_what_its_operands_hold_now(said: dict[str, Any]) -> None:
    for name, call in said["calls"].items():
        assert call["same"], name
        assert call["depends"] or name == "qmatmul", name  # which has the same operands each time


def test_a_repeated_call_is_checked(said: dict[str, Any]) -> None:
    assert said["errors"] == {
        "an unknown option": "ConfigError",
        "no options": "ConfigError",
        "a freed operand": "FreedArrayError",
    }


def test_a_full_pool_gives_back_what_was_not_asked_for_longest(page_folder: Path, node: Callable[..., Any]) -> None:
    done = node(str(SCRIPT.with_name("node_pool.mjs")), str(page_folder / "engine" / "pool.js"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [64, 128]
