"""The public call for products with quantised weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from webmm import choose
from webmm.arguments.arrays import element_of
from webmm.arguments.products import weighted_of
from webmm.arguments.quantized import weighted_shape
from webmm.calls.devices import Devices
from webmm.calls.executor import Labelled
from webmm.calls.operands import Operandish, opened, readable, returned, rows_of
from webmm.calls.pieces import in_pieces
from webmm.calls.planned import planned
from webmm.dtypes import dtype_of
from webmm.engine.device import Array, Device
from webmm.problems.base import check_floats
from webmm.problems.weights import BlockWeights


@planned
def qmatmul_weights(
    x: Operandish,
    weights: BlockWeights,
    *,
    out_dtype: DTypeLike | None = None,
    device: Device | None = None,
    devices: Devices | None = None,
) -> Any:
    """Return ``x @ weights``, (…, n), with weights of 4 or 8 bits, which are dequantised within the product.

    Arguments:

    - `x`: an array of shape (…, k), of one of `webmm.dtypes.MATRIX_DTYPES`.
    - `weights`: a (k, n) matrix from `quantize_blocks()`. Keep it on the device with `BlockWeights.to()`, else every
      call uploads it.
    - `out_dtype`: the dtype of the result, by default the dtype of `x`.
    - `device`: by default the device of `x` or of the weights, or the most capable adapter.
    - `devices`: "all" or a list of Devices, among which a call on NumPy arrays, weights included, is divided.

    Returns a NumPy array, or an `Array` on the same device if `x` is one. Sums are float32; every element is within the
    error bound of ``matmul(x, weights.dequantize())``.

    Raises ProblemError for shapes that do not match, operands on different devices, and other dtypes; otherwise as
    `matmul()`.

    Example: ``webmm.qmatmul_weights(x, webmm.quantize_blocks(w).to(device))``
    """
    if devices is None and device is None and not isinstance(x, Array):
        device = weights.device
    with opened("qmatmul_weights", device, x, *weights.parts, devices=devices) as temporary:
        a = temporary.data(x)
        shape = weighted_shape(a, weights.shape)
        dtype = element_of(a)
        out = dtype if out_dtype is None else dtype_of(out_dtype)
        check_floats("float matrix products", dtype, out)
        c = temporary.result(shape, out, a)
        if 0 in (*a.shape, *shape):  # the sums or the result are empty
            return temporary.device.zeros(c.shape, out) if isinstance(c, Array) else returned(np.zeros_like(c))

        def compute(rows: Array, words: Array, scales: Array, zeros: Array, c: Array) -> None:
            problem = weighted_of(weights, rows, words, scales, zeros, c)
            choose.run(problem, c.device, rows, words, scales, zeros, c)

        parts = (
            Labelled(temporary.data(part), "n" + letter, False)
            for part, letter in zip(weights.parts, "wbb", strict=True)
        )
        operands = [Labelled(readable(rows_of(a)), "mk"), *parts]
        into = Labelled(c.reshape(-1, shape[-1]), "mn", anywhere=False)
        in_pieces(temporary.devices, compute, operands, into, "mn", flops=2 * a.size * shape[-1])
        return returned(c)
