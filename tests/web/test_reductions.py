"""Reductions, normalisations and GELU in Tint's dialect: right in Chromium and in node on Dawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.web.dispatches import case, in_chromium, in_node, quarter, result
from webmm.dtypes import F32
from webmm.kernels.base import Kernel
from webmm.kernels.elementwise.map import Map
from webmm.kernels.normalise.row_tiles import RowTiles as NormalisedRowTiles
from webmm.kernels.normalise.rows import Rows
from webmm.kernels.normalise.strips import Strips
from webmm.kernels.reduce.columns import Columns
from webmm.kernels.reduce.per_row import PerRow
from webmm.kernels.reduce.row_tiles import RowTiles
from webmm.kernels.reduce.serial import Serial
from webmm.kernels.reduce.tree import Alone, Subgroup, Tree
from webmm.kernels.reduce.two_pass import ColumnsTwoPass, TwoPass
from webmm.kernels.reduce.vectorized import Vectorized
from webmm.problems.elementwise import Elementwise
from webmm.problems.normalise import Normalisation
from webmm.problems.reduce import OPERATIONS, Reduction, Span
from webmm.wgsl.activations import gelu

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


def cases() -> list[tuple[str, dict, np.ndarray]]:
    """Return (label, case, expected) for every stage and operation, over rows and columns."""
    x = np.random.default_rng(0).standard_normal((ROWS, LENGTH)).astype(np.float32)
    x[1, 7], x[2, 9] = np.nan, np.inf
    near_one = np.where(np.isfinite(x), np.sign(x) * (1 + np.abs(x) / 100), x)  # their products do not underflow
    found = []
    for kernel in STAGES:
        for name, operation in OPERATIONS.items():
            out = operation.out_dtype(F32)
            for columns in (False, True):
                shape = (1, LENGTH, ROWS) if columns else (ROWS, LENGTH, 1)
                problem = Reduction(name, *shape, F32, out, Span.dense(*shape[1:]))
                values = near_one if name == "prod" else x
                stored = np.ascontiguousarray(values.T) if columns else values
                with np.errstate(all="ignore"):
                    expected = operation.reference(values.astype(float))
                found.append((f"{kernel} {problem}", case(kernel, problem, x=stored), expected))
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
            for kernel in (
                Rows(32, 2, way),
                Rows(32, 4, way),
                Rows(32, 1, way, 2),
            ):  # of the second, one step covers a row
                found.append((f"{name} {kernel}", case(kernel, problem, x=wide), expected))
    problem = Normalisation("logsumexp", 1, LENGTH, ROWS, F32, F32, Span(1, ROWS, 1), function="softmax")
    stored = np.ascontiguousarray(wide.T)
    for splits in (1, 2):
        found.append(("softmax of columns", case(Strips(8, 4, 2, splits), problem, x=stored), functions["softmax"].T))
    short, length = np.ascontiguousarray(wide[:, :21]), 21
    for way in ("tree", "subgroup"):
        problem = Normalisation("sum", ROWS, length, 1, F32, F32, Span(length, 1, 1), function="rms_norm")
        expected = short / np.sqrt((short.astype(float) ** 2).mean(1, keepdims=True))
        for load in ("direct", "tile"):
            kernel = NormalisedRowTiles(64, 4, 2, way, load)
            found.append((f"rms_norm {kernel}", case(kernel, problem, x=short), expected))
        for name in ("argmax", "logsumexp"):
            out = OPERATIONS[name].out_dtype(F32)
            problem = Reduction(name, ROWS, length, 1, F32, out, Span.dense(length, 1))
            expected = OPERATIONS[name].reference(short.astype(float))
            found.append((f"{name} {way}", case(RowTiles(64, 4, 2, way), problem, x=short), expected))
    problem = Elementwise("gelu", wide.size, F32)
    found.append(("gelu", case(Map(64), problem, x=wide), gelu(wide.astype(float))))
    return found


def judge(given: list[tuple[str, dict, np.ndarray]], outcome: dict) -> None:
    assert "subgroups" in outcome["features"]
    for (label, _, expected), computed in zip(given, outcome["results"], strict=True):
        dtype = np.int32 if np.issubdtype(expected.dtype, np.integer) else np.float32
        got = result(computed, dtype, expected.shape, label)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4, err_msg=label)


def test_reductions_in_node(node_modules: Path, node, tmp_path: Path) -> None:
    given = quarter(cases(), 0)
    judge(given, in_node(node, node_modules, tmp_path, [each for _, each, _ in given]))


def test_reductions_in_chromium(page) -> None:
    given = quarter(cases(), 2)
    judge(given, in_chromium(page, [each for _, each, _ in given]))
