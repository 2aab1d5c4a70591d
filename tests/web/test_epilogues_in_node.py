"""Epilogues of webmm.js: the WGSL that Python compiles, NumPy's results, and the same errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webmm import Epilogue, Reduction, quantize_blocks
from webmm.errors import ProblemError
from webmm.kernels.reduce.vectorized import Vectorized
from webmm.problems.declared import declared
from webmm.problems.reduce import operation_of, reduction
from webmm.wgsl import expressions, grammar
from webmm.wgsl.compiler import Node
from webmm.wgsl.render import render

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

MOMENTS = {
    "map": {"mean": "x", "m2": "0", "n": "1"},
    "combine": {
        "mean": "a.mean + (b.mean - a.mean) * (b.n / maximum(a.n + b.n, 1))",
        "m2": "a.m2 + b.m2 + (b.mean - a.mean) * (b.mean - a.mean) * (a.n * (b.n / maximum(a.n + b.n, 1)))",
        "n": "a.n + b.n",
    },
    "identity": {"mean": 0, "m2": 0, "n": 0},
    "finish": "sqrt(m2 / (n - 1))",
}
PLACE = {
    "map": {"top": "x", "at": "i"},
    "combine": {
        "top": "maximum(a.top, b.top)",
        "at": "where(a.top > b.top, a.at, where(b.top > a.top, b.at, minimum(a.at, b.at)))",
    },
    "identity": {"top": -3e38, "at": 2**31 - 1},
    "finish": "at",
}
REDUCTIONS: list[tuple[Any, Callable[..., Any]]] = [
    ("var", np.var),
    ("std", np.std),
    ("norm", lambda x, axis: np.sqrt((x * x).sum(axis))),
    ("all", np.all),
    ("any", np.any),
    ("count_nonzero", np.count_nonzero),
    (
        {"map": "x * x", "combine": "a + b", "identity": 0, "finish": "sqrt(v / n)"},
        lambda x, axis: np.sqrt((x * x).mean(axis)),
    ),
    (MOMENTS, lambda x, axis: x.std(axis, ddof=1)),
    (PLACE, np.argmax),
]
WRONG: list[Any] = [
    "median",
    {"map": "x", "combine": "a - b", "identity": 0},
    {"map": "x", "combine": "a + b", "identity": 1},
    {"map": "x", "combine": "a + c", "identity": 0},
    {"map": "x > 0", "combine": "a", "identity": 0},
    {"map": {"m": "x"}, "combine": "a + b", "identity": 0},
    {"map": {"m": "x"}, "combine": {"m": "a.m + b.m"}, "identity": {"m": 0}},
    {"map": "float32(x)", "combine": "int32(a + b)", "identity": 0},
    {"map": "exp(x)", "combine": "a * b", "identity": "one"},
]


@pytest.fixture(scope="module")
def outcome(page_folder: Path, node_modules: Path, node: Callable[..., Any]) -> dict[str, Any]:
    package = str(node_modules / "webgpu" / "index.js")
    declarations = json.dumps([given for given, _ in REDUCTIONS] + WRONG)
    done = node(str(SCRIPT), str(page_folder / "webmm.js"), package, json.dumps(TEXTS), declarations)
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
    gates = {"row": (8,), "column": (2, 3, 1), "matrix": (2, 3, 8), "one": (1, 1)}
    expected |= {
        f"weights {name}": w.reshape(2, 3, 8) * y.ravel()[: np.prod(shape)].reshape(shape)
        for name, shape in gates.items()
    }
    expected["weights of nothing"] = np.full((2, 8), 2)
    expected["then"] = np.maximum(p * 2, 0) + 1
    expected |= {"wgsl": p / (1 + np.abs(p)), "wgsl then": expected["then"] / (1 + np.abs(expected["then"]))}
    rows = whole((3, 301), 5)
    for given, function in REDUCTIONS:
        words = json.dumps(given, separators=(",", ":"))
        expected |= {
            f"{words} {where}": function(rows.astype(float), axis=axis) for where, axis in (("host", 1), ("device", 0))
        }
    expected |= {"empty": np.ones(2), "parts std": rows.std(), "parts count_nonzero": np.count_nonzero(rows)}
    expected |= {"parts mean": rows.mean(), "parts prod": rows.prod(), "parts max": rows.max()}
    expected |= {"parts argmin": rows.argmin(), "parts logsumexp": np.log(np.exp(rows.astype(float)).sum())}
    expected |= {"dot 2 true": (rows * rows).sum(1), "dot there": (rows * rows).sum(0)}
    expected |= dict.fromkeys(("dot 1 true", "dot 1 false"), (rows * rows[0]).sum(1))
    with np.errstate(over="ignore"):
        expected["whole"] = (rows.astype(np.int32) * np.int32(1000003) * np.int32(1000003)).sum(1, dtype=np.int32)
    assert outcome["results"].keys() == expected.keys()
    for name, found in outcome["results"].items():
        got = np.array(found["data"]).reshape(found["shape"])
        np.testing.assert_allclose(got, expected[name], rtol=1e-4, atol=1e-3, err_msg=name)
    assert outcome["pipelines"] == 1, "two slopes share a shader"


def test_reductions_have_the_shaders_and_the_errors_of_python(outcome: dict[str, Any]) -> None:
    shaders = outcome["shaders"]
    for (given, _), found in zip(REDUCTIONS, shaders, strict=False):
        name = given if isinstance(given, str) else declared(Reduction(**given)).name
        text = render(Vectorized(8, 2), reduction(3, 301, name), "tint").wgsl
        assert found["text"] == text.replace(name, "NAME")
    for given, found in zip(WRONG, shaders[len(REDUCTIONS) :], strict=True):
        with pytest.raises(ProblemError) as error:
            operation_of(given) if isinstance(given, str) else Reduction(**given)
        words = str(error.value).replace("dictionaries", "objects").replace("'one'", '"one"')
        assert found == {"error": f"ProblemError: {words}"}


def test_the_parser_of_javascript_agrees_with_pythons() -> None:
    def plain(node: Node) -> Any:
        literal = node.literal and (node.literal.value, node.literal.form)
        return node.form, node.word, literal, tuple(plain(x) for x in node.terms)

    texts = [text for text, _ in TEXTS] + [text for each in (MOMENTS, PLACE) for text in each["combine"].values()]
    texts += [
        "a | b & c ^ d",
        "-x ** -y",
        "not x",
        "x.",
        "f(x, y,)",
        "1e",
        "1_0.5e+3",
        ".5",
        "x y",
        "",
        "x[0]",
        "- - ~x",
        "a<b==c",
    ]
    for text in texts:
        try:
            expected = plain(expressions.tree_of(text))
        except ProblemError:
            with pytest.raises(ProblemError, match="is not an expression"):
                grammar.tree_of(text)
            continue
        if expected[0] != "other":
            assert plain(grammar.tree_of(text)) == expected, text


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
