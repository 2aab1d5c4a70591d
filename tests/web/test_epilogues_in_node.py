"""Epilogues of webmm.js: the WGSL that Python compiles, NumPy's results, and the same errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webmm import Epilogue, quantize_blocks
from webmm.errors import ProblemError

SCRIPT = Path(__file__).with_name("node_epilogues.mjs")
TEXTS: list[tuple[str, dict[str, Any]]] = [
    ("where(x > 0, x, slope * x)", {"slope": 0.1}),
    ("silu(x) * y + k", {"y": [1.0], "k": 2}),
    ("-x / (2 * 3) - 1e30 * .5 + 1_000 + 1e-5", {}),
    ("(x < 1) & ~(x != x) | (x >= -2.5)", {}),
    ("float32((x < 1) & ~(x != x) | (x >= -2.5)) * 2", {}),
    ("maximum(x, 0.00002) / (x - x) + sqrt(2)", {}),
    ("where(isnan(x), 0, gelu(tanh(x)) + sqrt(abs(x)) - sigmoid(x))", {}),
    ("float32(int32(x) + 3) - +x", {}),
    ("minimum(x, 1) * (x == 2)", {}),
    ("x + slope", {}),
    ("x", {"slope": 1.0}),
    ("x and x", {}),
    ("x ** 2", {}),
    ("1 < x < 2", {}),
    ("sin(x)", {}),
    ("x + (", {}),
    ("x > 0", {}),
    ("1 / 0 + x", {}),
    ("x + a + b + c + d + e", dict.fromkeys("abcde", 1.0)),
]


@pytest.fixture(scope="module")
def outcome(page_folder: Path, node_modules: Path, node: Callable[..., Any]) -> dict[str, Any]:
    package = str(node_modules / "webgpu" / "index.js")
    done = node(str(SCRIPT), str(page_folder / "webmm.js"), package, json.dumps(TEXTS))
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout))


def whole(shape: tuple[int, ...], by: int) -> np.ndarray:
    return ((np.arange(np.prod(shape)) * by) % 11 - 5).astype(np.float32).reshape(shape)


def test_results_are_numpys(outcome: dict[str, Any]) -> None:
    a, b, y = whole((6, 5), 7), whole((5, 8), 3), whole((6, 8), 5)
    p, w = a @ b, a @ quantize_blocks(b).dequantize()
    expected = {f"leaky {slope}": np.where(p > 0, p, slope * p) for slope in (0.5, 0.25)}
    parts = {"matrix": y, "column": y.ravel()[:8], "row": y.ravel()[:6, None]}
    expected |= {f"{name} {where}": p * part + 1 for name, part in parts.items() for where in ("host", "device")}
    expected |= {"weights": w / (1 + np.exp(-w)) * y, "vector": a.ravel()[:5] @ b - y.ravel()[:8]}
    assert outcome["results"].keys() == expected.keys()
    for name, found in outcome["results"].items():
        got = np.array(found["data"]).reshape(found["shape"])
        np.testing.assert_allclose(got, expected[name], rtol=1e-4, atol=1e-3, err_msg=name)
    assert outcome["pipelines"] == 1, "two slopes share a shader"


@pytest.mark.parametrize("number", range(len(TEXTS)), ids=[text for text, _ in TEXTS])
def test_texts_compile_as_in_python_or_have_its_error(outcome: dict[str, Any], number: int) -> None:
    text, values = TEXTS[number]
    found = outcome["outcomes"][number]
    try:
        expected = {"text": Epilogue(text, **values).text}
    except ProblemError as error:
        if "is not an expression" in str(error) or "is not allowed" in str(error):  # Python's parser has other words
            assert "ProblemError: " in found["error"]
            assert repr(text) in found["error"]
            return
        expected = {"error": f"ProblemError: {error}"}
    assert found == expected
