"""Sums in float64, computed as products with ones, which are accurate to the last bits on every device."""

from __future__ import annotations

from typing import Any

from webmm.arguments.arrays import Layout
from webmm.calls.gemm import gemm
from webmm.calls.operands import Temporaries
from webmm.calls.sides import filled, laid_out, reshaped
from webmm.dtypes import F64
from webmm.engine.device import Array


def add_up(call: Temporaries, x: Array, y: Array, *, mean: bool) -> None:
    """Set y[i, j] to the sum of x[i, k, j] over k, or, if `mean`, that sum times the double nearest to 1 / length."""
    del call  # its device may be another one than that of the arrays
    with Temporaries(x.device) as temporary:
        alpha, a, b, c = as_product(temporary, x, y, mean)
        gemm(a, b, c, alpha=alpha, precision="highest")


# The steps, in both languages


def as_product(call: Temporaries, x: Array, y: Array, mean: bool) -> tuple[float, Any, Any, Any]:
    """Return alpha, a, b and c such that c = alpha·a @ b adds up x[i, k, j] in y[i, j]: one of a and b is of ones."""
    outer, length, inner = x.shape
    alpha, ones = 1 / length if mean else 1.0, call.array(filled((1, length), F64, 1.0))
    if inner == 1:
        return alpha, laid_out(x, Layout(x.shape[:2], x.strides[:2], x.offset)), ones.mT, y
    return alpha, ones, x, reshaped(y, (outer, 1, inner))
