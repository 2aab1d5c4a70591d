"""`webmm/shaders`: kernels as data in JavaScript agree with those rendered by Python, for every stage of every op."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.unit.test_export import evaluated, holds
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
from webmm.wgsl import export

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


def expected(kernel: Kernel[Any], problem: Problem, general: bool) -> dict[str, Any]:
    try:
        data = export.stage(kernel, problem, "tint", general=general)
    except ConfigError:
        return {"error": "ConfigError"}
    return {name: data[name] for name in ("op", "dispatches", "buffers", "scratch", "valid_for")}


def test_every_stage_agrees_with_python(node: Callable[..., Any], tmp_path: Path) -> None:
    npm.build(tmp_path / "package")
    made = [(cls(), given, problem) for given, problem in problems() for cls in STAGES[given["op"]].values()]
    (tmp_path / "cases.json").write_text(
        json.dumps([(kernel.name, given, {"general": i % 2 == 1}) for i, (kernel, given, _) in enumerate(made)])
    )
    done = node(str(SCRIPT), str(tmp_path / "package" / "entries" / "shaders.js"), str(tmp_path / "cases.json"))
    assert done.returncode == 0, done.stderr[-2000:]
    output = json.loads(done.stdout)
    assert output["unknown"] == "ConfigError"
    assert output["stages"] == list(STAGES["reduce"])
    for i, ((kernel, given, problem), outcome) in enumerate(zip(made, output["outcomes"], strict=True)):
        assert outcome == json.loads(json.dumps(expected(kernel, problem, i % 2 == 1))), (kernel.name, given)
    right = sum("dispatches" in outcome for outcome in output["outcomes"])
    assert right > 0.7 * len(made)


TILES = {"bm": 32, "bn": 32, "bk": 8, "tm": 4, "tn": 4, "unroll": 1}
CONFIGS = {
    **{name: {} for name in ("naive", "workgroup_1d", "workgroup_2d", "tile_1d", "tile_2d", "shared", "vectorized")},
    **dict.fromkeys(("blocked", "pipelined", "persistent"), TILES),
    "split_k": {**TILES, "slices": 1, "splits": 2},
    "gemv": {"lanes": 8, "groups": 4},
}


def case(name: str, stage: dict[str, Any], m: int, n: int, k: int, pad: int) -> dict[str, Any] | None:
    """Return a stage with the numbers that follow from its rules; None for sizes outside its valid_for."""
    strides = {"lda": k + pad, "ldb": n + pad, "ldc": n + pad, "a_offset": pad, "b_offset": pad, "c_offset": pad}
    values = {"m": m, "n": n, "k": k, **strides, "bias_offset": 0, "alpha": 1, "beta": 0, "batch": 1}
    values |= {f"{x}_batch_stride": 0 for x in "abc"}
    if not holds(stage["valid_for"], {**values, "m*n": m * n}):
        return None
    grids = []
    for each in stage["dispatches"]:
        known = {**values}
        for part in ("count", "y", "x", "z"):
            known[part] = evaluated(each["grid"][part], known)
        grids.append([known["x"], known["y"], known["z"]])
    return {
        "name": f"{name} at {(m, n, k)}, padded by {pad}",
        "dispatches": stage["dispatches"],
        "values": values,
        "workgroups": grids,
        "elements": {each["name"]: evaluated(each["rule"], values) for each in stage["buffers"]},
        "scratch": {each["name"]: evaluated(each["rule"], values) for each in stage["scratch"]},
    }


def test_stages_run_in_a_program_of_ones_own(page, node: Callable[..., Any], tmp_path: Path) -> None:
    """General texts at every size, and texts for 64³ at the sizes in their valid_for, right in plain WebGPU."""
    npm.build(tmp_path / "package")
    rows = [
        (name, {"op": "gemm", "m": 64, "n": 64, "k": 64}, {"config": config, "general": general})
        for name, config in CONFIGS.items()
        for general in (False, True)
    ]
    (tmp_path / "cases.json").write_text(json.dumps(rows))
    done = node(str(SCRIPT), str(tmp_path / "package" / "entries" / "shaders.js"), str(tmp_path / "cases.json"))
    assert done.returncode == 0, done.stderr[-2000:]
    sizes = ((100, 52, 36, 0), (33, 17, 65, 3), (9, 1, 70, 0), (64, 64, 64, 0), (128, 64, 192, 0))
    made = [
        (case(f"{name}, general: {options['general']}", stage, *size), options["general"])
        for (name, _, options), stage in zip(rows, json.loads(done.stdout)["outcomes"], strict=True)
        for size in sizes
    ]
    assert all(each for each, general in made if general), "a general text is for every size"
    cases = [each for each, _ in made if each]
    assert len(cases) > len(CONFIGS) * (len(sizes) + 1)
    function = Path(__file__).with_name("home.js").read_text().replace("export async", "async")
    wrong = page.evaluate(
        f"""async (cases) => {{ {function}
          return checkAtHome(await (await navigator.gpu.requestAdapter()).requestDevice(), cases); }}""",
        cases,
    )
    assert wrong == []
