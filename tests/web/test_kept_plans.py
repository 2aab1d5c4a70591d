"""Plans of webmm.js: repeated calls use WebGPU only to dispatch, read current operands, and are still checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("node_plans.mjs")
CALLS = 8  # calls in one submission, between two waits
SUBMISSION = {"createCommandEncoder", "beginComputePass", "end", "finish", "submit", "queue"}


@pytest.fixture(scope="module")
def outcome(page_folder: Path, node_modules: Path, node: Callable[..., Any]) -> dict[str, Any]:
    done = node(str(SCRIPT), str(page_folder / "webmm.js"), str(node_modules / "webgpu" / "index.js"))
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout))


def test_a_repeated_call_only_dispatches(outcome: dict[str, Any]) -> None:
    """It creates no object, looks up and awaits nothing, and sets a pipeline once."""
    assert len(outcome["calls"]) == 10
    for name, call in outcome["calls"].items():
        asked = call["asked"]
        dispatches = asked.pop("dispatchWorkgroups")
        assert dispatches == asked.pop("setBindGroup"), name
        assert dispatches % CALLS == 0, name
        assert asked.pop("setPipeline") <= (1 if dispatches == CALLS else dispatches), name
        assert asked.keys() <= SUBMISSION, (name, asked)
        assert set(asked.values()) == {1}, (name, asked)


def test_a_repeated_call_reads_its_current_operands(outcome: dict[str, Any]) -> None:
    for name, call in outcome["calls"].items():
        assert call["same"], name
        assert call["depends"] or name == "qmatmul", name  # qmatmul always has the same operands


def test_a_repeated_call_is_checked(outcome: dict[str, Any]) -> None:
    assert outcome["errors"] == {
        "an unknown option": "ConfigError",
        "no options": "ConfigError",
        "a freed operand": "FreedArrayError",
        "an activation with an option in its name": "ProblemError",
        "a result that an operand shares": "ProblemError",
    }


def test_numbers_are_part_of_a_plan_by_their_bits(outcome: dict[str, Any]) -> None:
    assert all(outcome["zeros"])


def test_more_launches_than_are_cached(outcome: dict[str, Any]) -> None:
    """They are evicted while a replay prepares them, which then must not begin again."""
    assert outcome["launches"]


def test_a_full_pool_evicts_the_least_recently_used_size(page_folder: Path, node: Callable[..., Any]) -> None:
    done = node(str(SCRIPT.with_name("node_pool.mjs")), str(page_folder / "engine" / "pool.js"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [64, 128]
