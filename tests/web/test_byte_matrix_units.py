"""8-bit products on matrix units, in Tint's dialect: right in node on Dawn if the GPU has them, otherwise refused."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.web.dispatches import in_chromium, in_node, result
from tests.web.test_integers import F32, I8, I32, U8, product
from webmm.kernels.base import Capabilities, MatrixShape
from webmm.kernels.quantized.base import QuantizedKernel
from webmm.kernels.quantized.matrix_unit import MatrixUnit
from webmm.wgsl.render import MATRIX_UNITS

FEATURE = MATRIX_UNITS["tint"]
SHAPES = ((256, 256, 192), (260, 132, 68), (131, 259, 67))  # rows aligned to 16 bytes, to words, and not aligned


def variants(kernel: QuantizedKernel) -> Iterator[tuple[Any, ...]]:
    """Yield layouts in every alignment, then every result dtype with scales per row and column."""
    other = U8 if kernel.config["operands"] == "u8" else I8
    for shape, ta, tb in itertools.product(SHAPES, (False, True), (False, True)):
        yield U8, other, U8, shape, ta, tb, False
    for out in (I8, U8, I32, F32):
        yield other, U8, out, SHAPES[2], False, False, True


def judge(run: Any) -> None:
    found = run([product(MatrixUnit(), *next(variants(MatrixUnit())))[1]])
    if FEATURE not in found["features"]:
        assert "is not allowed in the current environment" in found["results"][0]["error"]
        return
    shapes = frozenset(MatrixShape(*shape) for shape in found["fragments"])
    device = Capabilities("Dawn", {}, frozenset(), subgroup_size=found["lanes"], matrix_shapes=shapes)
    kernels = [k for k in MatrixUnit.each(device, ("i8", "u8")) if not k.invalid()]
    kernels += [dataclasses.replace(k, sn=32) for k in kernels[:1]]  # half of the subgroups load A, half B
    products = [product(kernel, *each) for kernel in kernels for each in variants(kernel)]
    results = run([each for _, each, _ in products])["results"]
    for (label, _, expected), got in zip(products, results, strict=True):
        there = result(got, expected.dtype, expected.shape, label)
        if expected.dtype == np.float32:
            np.testing.assert_allclose(there, expected, rtol=2.0**-23, err_msg=label)
        else:
            np.testing.assert_array_equal(there, expected, err_msg=label)


def test_byte_matrix_units_in_node(node_modules: Path, node, tmp_path: Path) -> None:
    judge(lambda cases: in_node(node, node_modules, tmp_path, cases))


def test_byte_matrix_units_in_chromium(page) -> None:
    judge(lambda cases: in_chromium(page, cases))
