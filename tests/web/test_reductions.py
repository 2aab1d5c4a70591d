"""Reductions, and what is built on them, from the texts in Tint's dialect: right in Chromium, and in node on Dawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from webmm.dtypes import F32
from webmm.epilogues import gelu
from webmm.kernels.base import Kernel
from webmm.kernels.reduce.columns import Columns
from webmm.kernels.reduce.per_row import PerRow
from webmm.kernels.reduce.rows import Map, Rows
from webmm.kernels.reduce.serial import Serial
from webmm.kernels.reduce.tree import Alone, Subgroup, Tree
from webmm.kernels.reduce.two_pass import ColumnsTwoPass, TwoPass
from webmm.kernels.reduce.vectorized import Vectorized
from webmm.operations import OPERATIONS
from webmm.problem import Problem
from webmm.reduction import Elementwise, Normalisation, Reduction, Span
from webmm.render import params_bytes, render

DISPATCH_JS = Path(__file__).with_name("dispatch.js")
ROWS, LENGTH = 3, 300
STAGES: list[Kernel[Any]] = [
    Serial(),
    PerRow(8),
    Vectorized(8, 2),
    Tree(32, 1),
    Subgroup(32, 2),
    Alone(4, 2),  # SwiftShader's subgroups have four lanes
    TwoPass(32, 1, 2),
    TwoPass(32, 1, 2, "subgroup"),
    Columns(8, 4, 2),
    ColumnsTwoPass(8, 2, 1, 2),
]


def case(kernel: Kernel[Any], problem: Problem, x: np.ndarray) -> dict:
    written = problem.buffers()[1]
    size = -(-written.nbytes // 16) * 16
    steps = [
        {
            "wgsl": (shader := render(step, problem, "tint")).wgsl,
            "bindings": [binding.name for binding in shader.bindings],
            "params": params_bytes(step, problem).hex(),
            "counts": step.dispatch(problem),
        }
        for step in (*kernel.before, kernel)
    ]
    scratch = {left.name: "00" * left.nbytes for left in kernel.scratch(problem)}
    return {"steps": steps, "buffers": {"x": x.tobytes().hex(), "y": "ff" * size, **scratch}, "result": "y"}


def cases() -> list[tuple[str, dict, np.ndarray]]:
    """Return (label, case, expected) of every stage and operation, by rows and by columns."""
    x = np.random.default_rng(0).standard_normal((ROWS, LENGTH)).astype(np.float32)
    x[1, 7], x[2, 9] = np.nan, np.inf
    found = []
    for kernel in STAGES:
        for name, operation in OPERATIONS.items():
            out = operation.out_dtype(F32)
            for columns in (False, True):
                shape = (1, LENGTH, ROWS) if columns else (ROWS, LENGTH, 1)
                problem = Reduction(name, *shape, F32, out, Span.dense(*shape[1:]))
                stored = np.ascontiguousarray(x.T) if columns else x
                with np.errstate(all="ignore"):
                    expected = operation.reference(x.astype(float))
                found.append((f"{kernel} {problem}", case(kernel, problem, stored), expected))
    wide = np.nan_to_num(x, nan=1, posinf=2).astype(np.float32)
    e = np.exp(wide - wide.max(1, keepdims=True).astype(float))
    deviation = wide - wide.mean(1, keepdims=True, dtype=float)
    functions = {
        "softmax": e / e.sum(1, keepdims=True),
        "layer_norm": deviation / np.sqrt((deviation**2).mean(1, keepdims=True)),
        "rms_norm": wide / np.sqrt((wide.astype(float) ** 2).mean(1, keepdims=True)),
    }
    for name, expected in functions.items():
        for way in ("tree", "subgroup"):
            operation = "logsumexp" if name == "softmax" else "sum"
            problem = Normalisation(operation, ROWS, LENGTH, 1, F32, F32, Span(LENGTH, 1, 1), function=name)
            found.append((f"{name} {way}", case(Rows(32, 2, way), problem, wide), expected))
    problem = Elementwise("gelu", wide.size, F32)
    found.append(("gelu", case(Map(64), problem, wide), gelu(wide.astype(float))))
    return found


def judge(given: list[tuple[str, dict, np.ndarray]], outcome: dict) -> None:
    assert outcome["subgroups"]
    for (label, _, expected), result in zip(given, outcome["results"], strict=True):
        assert "error" not in result, f"{label}: {result['error']}"
        dtype = np.int32 if np.issubdtype(expected.dtype, np.integer) else np.float32
        got = np.frombuffer(bytes.fromhex(result["hex"]), dtype)[: expected.size].reshape(expected.shape)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4, err_msg=label)


def test_reductions_are_right_in_node_on_dawn(node_modules: Path, node, tmp_path: Path) -> None:
    given = cases()
    (tmp_path / "cases.json").write_text(json.dumps([each for _, each, _ in given]))
    dawn = node_modules / "webgpu" / "index.js"
    done = node(str(DISPATCH_JS.with_name("node_dispatch.mjs")), str(tmp_path / "cases.json"), str(dawn))
    assert done.returncode == 0, done.stderr[-2000:]
    judge(given, json.loads(done.stdout))


def test_reductions_are_right_in_chromium(page) -> None:
    given = cases()
    function = DISPATCH_JS.read_text().replace("export async", "async")
    script = f"async (cases) => {{ {function}\n return dispatch(navigator.gpu, cases); }}"
    judge(given, page.evaluate(script, [each for _, each, _ in given]))
