"""JavaScript predicts the same times as Python: candidates for integer products and block weights on an unknown GPU."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from webmm.choose import candidates
from webmm.dtypes import F32, U8
from webmm.kernels.base import Capabilities
from webmm.page import npm
from webmm.problems.base import Problem
from webmm.problems.product import Operand
from webmm.problems.quantized import Quantized
from webmm.problems.weights import WeightOnly

LIMITS = defaultdict(lambda: 2**31)
SCRIPT = Path(__file__).with_name("node_choice.mjs")
SIZES = [(1, 4096, 4096), (7, 1000, 900), (24, 896, 8192), (200, 5120, 5120), (213, 435, 215_847), (213_657, 22, 241)]
SIZES += [(2048, 2048, 2048), (30_000, 20, 9), (1, 1, 1)]


@pytest.mark.parametrize(("vendor", "kind"), [("none", "other"), ("nvidia", "discrete")])
def test_candidates_are_the_same_as_in_python(vendor: str, kind: str, node: Callable[..., Any], tmp_path: Path) -> None:
    device: Any = SimpleNamespace(
        info=SimpleNamespace(name=f"{vendor} a GPU", kind=kind, driver=""),
        engine=SimpleNamespace(name="dawn"),
        capabilities=Capabilities("a GPU", LIMITS, frozenset()),
    )
    npm.build(tmp_path / "package")
    cases = [(*size, bits) for size in SIZES for bits in (0, 4, 8)]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    done = node(str(SCRIPT), str(tmp_path / "package"), str(tmp_path / "cases.json"), vendor)
    assert done.returncode == 0, done.stderr[-2000:]
    for (m, n, k, bits), found in zip(cases, json.loads(done.stdout), strict=True):
        problem: Problem = Quantized(m, n, k, U8, U8, U8, Operand(k), Operand(n))
        if bits:
            problem = WeightOnly(m, n, k, F32, F32, Operand(k), bits, 32)
        assert found == [str(kernel) for kernel in candidates(problem, device, "off")], (m, n, k, bits)
