"""Sums in float64, computed as products with ones, which are accurate to the last bits on every device."""

from __future__ import annotations

import numpy as np

from webmm.calls.gemm import gemm
from webmm.calls.operands import Temporaries
from webmm.engine.device import Array


def add_up(call: Temporaries, x: Array, y: Array, *, mean: bool) -> None:
    """Set y[i, j] to the sum of x[i, k, j] over k, or, if `mean`, that sum times the double nearest to 1 / length."""
    del call  # its device may be another one than that of the arrays
    outer, length, inner = x.shape
    alpha = 1 / length if mean else 1.0
    with Temporaries(x.device) as temporary:
        ones = temporary.array(np.ones((1, length)))
        if inner == 1:
            gemm(x[:, :, 0], ones.mT, y, alpha=alpha, precision="highest")
        else:
            gemm(ones, x, y.reshape(outer, 1, inner), alpha=alpha, precision="highest")
