"""`webmm/shaders`: kernels as data in JavaScript agree with those rendered by Python, for every stage of every op."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from webmm.dtypes import F32, I8, I32, U8
from webmm.errors import ConfigError
from webmm.kernels import STAGES
from webmm.kernels.base import Kernel
from webmm.page import npm
from webmm.problems.base import Problem
from webmm.problems.elementwise import Elementwise
from webmm.problems.gemm import gemm
from webmm.problems.normalise import Normalisation
from webmm.problems.product import Operand
from webmm.problems.quantized import Quantized
from webmm.problems.reduce import Span, reduction
from webmm.problems.weights import WeightOnly
from webmm.render import params_bytes, render

SCRIPT = Path(__file__).with_name("node_shaders.mjs")
SIZES = {"m": 100, "n": 52, "k": 36}


def problems() -> Iterator[tuple[dict[str, Any], Problem]]:
    """Yield problems as described in JavaScript and in Python."""
    yield {"op": "gemm", **SIZES}, gemm(**SIZES)
    yield {"op": "gemm", **SIZES, "transposeB": True, "batch": 3}, gemm(**SIZES, transpose_b=True, batch=3)
    yield {"op": "gemm", **SIZES, "dtype": "float16"}, gemm(**SIZES, dtype="float16")
    operands = Operand(SIZES["k"], SIZES["m"] * SIZES["k"]), Operand(SIZES["n"], SIZES["k"] * SIZES["n"])
    yield {"op": "quantized", **SIZES}, Quantized(*SIZES.values(), U8, U8, I32, *operands)
    scheme = {"zero_a": None, "zero_b": 7, "zero_c": 3, "scaled_columns": True, "bias": True}
    transposed = dataclasses.replace(operands[1], ld=SIZES["k"], transposed=True)
    scaled = Quantized(*SIZES.values(), U8, I8, I8, operands[0], transposed, **scheme)
    given = {"dtype": "uint8", "bDtype": "int8", "outDtype": "int8", "transposeB": True, "zeroA": None, "zeroB": 7}
    yield {"op": "quantized", **SIZES, **given, "zeroC": 3, "scaledColumns": True, "bias": True}, scaled
    weights = WeightOnly(*SIZES.values(), F32, F32, Operand(SIZES["k"]), 4, 32)
    yield {"op": "weights", **SIZES, "bits": 4, "block": 32}, weights
    yield {"op": "reduce", "operation": "max", "rows": 7, "columns": 300}, reduction(7, 300, "max")
    doubles = {"op": "reduce", "operation": "argmax", "rows": 7, "columns": 30, "dtype": "float64"}
    yield doubles, reduction(7, 30, "argmax", dtype="float64")
    softmax = Normalisation("logsumexp", 7, 300, 1, F32, F32, Span.dense(300, 1), function="softmax")
    yield {"op": "normalise", "function": "softmax", "rows": 7, "columns": 300}, softmax
    yield {"op": "elementwise", "activation": "gelu", "size": 1000}, Elementwise("gelu", 1000, F32)


def expected(kernel: Kernel[Any], problem: Problem) -> dict[str, Any]:
    try:
        rendered = [(each, render(each, problem, "tint")) for each in kernel.dispatches]
    except ConfigError:
        return {"error": "ConfigError"}
    rows = []
    for each, shader in rendered:
        row = {**shader.to_json(), "uniform": list(params_bytes(each, problem)), "workgroups": each.dispatch(problem)}
        del row["dialect"]
        rows.append(row)
    buffers = [
        {"name": e.name, "dtype": e.dtype.name, "elements": e.end, "written": e.written} for e in problem.buffers()
    ]
    scratch = [dataclasses.asdict(each) for each in kernel.scratch(problem)]
    return {"dispatches": rows, "buffers": buffers, "scratch": scratch}


def test_every_stage_agrees_with_python(node: Callable[..., Any], tmp_path: Path) -> None:
    npm.build(tmp_path / "package")
    made = [(cls(), given, problem) for given, problem in problems() for cls in STAGES[given["op"]].values()]
    (tmp_path / "cases.json").write_text(json.dumps([(kernel.name, given) for kernel, given, _ in made]))
    done = node(str(SCRIPT), str(tmp_path / "package" / "entries" / "shaders.js"), str(tmp_path / "cases.json"))
    assert done.returncode == 0, done.stderr[-2000:]
    output = json.loads(done.stdout)
    assert output["unknown"] == "ConfigError"
    assert output["stages"] == list(STAGES["reduce"])
    for (kernel, given, problem), outcome in zip(made, output["outcomes"], strict=True):
        assert outcome == json.loads(json.dumps(expected(kernel, problem))), (kernel.name, given)
    right = sum("dispatches" in outcome for outcome in output["outcomes"])
    assert right > 0.7 * len(made)
