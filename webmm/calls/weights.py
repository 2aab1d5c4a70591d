"""Products with quantised weights: the call."""

from __future__ import annotations

from typing import Any

from numpy.typing import DTypeLike

from webmm import choose
from webmm.calls.operands import Operandish, Temporaries
from webmm.calls.parts import matrix_operand
from webmm.dtypes import dtype_of
from webmm.engine.array import Array
from webmm.engine.device import Device, default_device
from webmm.errors import ProblemError
from webmm.problems.weights import BlockWeights, WeightOnly


def qmatmul_weights(
    x: Operandish,
    weights: BlockWeights,
    *,
    out_dtype: DTypeLike | None = None,
    device: Device | None = None,
) -> Any:
    """Return ``x @ weights`` with quantised weights (k, n), summed in float32.

    `x` is (…, k), of one of `webmm.dtypes.MATRIX_DTYPES`. The weights become floats within the product: what is read
    of them is their 8 or 4 bits. Keep them on the device with `BlockWeights.to()`, or each call uploads them. The
    result is `out_dtype`, by default x's type; it is a NumPy array unless `x` is an `Array`.

    Every element is within the bound of `matmul()` of the product with `weights.dequantize()`. Raises ProblemError for
    operands that do not fit together or lie on different devices, and for other types; else as `matmul()`.
    """
    resident = isinstance(x, Array)
    device = device or (x.device if isinstance(x, Array) else weights.device or default_device())
    with device.span("qmatmul_weights", "call"), Temporaries(device) as temporary:
        a = temporary.array(x)
        k, n = weights.shape
        if not a.ndim or a.shape[-1] != k:
            raise ProblemError(f"x {a.shape} and weights ({k}, {n}) do not fit: x must end with {k}")
        out = a.dtype if out_dtype is None else dtype_of(out_dtype)
        shape = (*a.shape[:-1], n)
        c = device.empty(shape, out)
        rows = temporary.readable(_as_rows(temporary, a))
        where = matrix_operand(rows)
        if c.size and k:
            assert where, "made readable above"
            problem = WeightOnly(rows.shape[0], n, k, a.dtype, out, where, weights.bits, weights.block)
            parts = [temporary.array(part) for part in weights.parts]
            choose.run(problem, device, rows, *parts, c)
        if resident:
            return c
        host = c.numpy()
        c.free()
        return host


def _as_rows(temporary: Temporaries, x: Array) -> Array:
    """Return x as a matrix, of a copy where its leading axes do not follow each other."""
    if x.ndim == 2:
        return x
    dense = x if x.contiguous else temporary.array(x.numpy())
    return dense.reshape(x.size // x.shape[-1] if x.shape[-1] else 0, x.shape[-1])
