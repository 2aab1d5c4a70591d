"""The public call for products with quantised weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from webmm import choose
from webmm.arguments.arrays import element_of
from webmm.arguments.products import check_operands, weighted_of
from webmm.arguments.quantized import weighted_shape
from webmm.calls.devices import Devices
from webmm.calls.elementwise import activation_on
from webmm.calls.executor import Labelled
from webmm.calls.operands import Operandish, opened, operands_of, readable, returned, rows_of, rows_over
from webmm.calls.pieces import in_pieces
from webmm.calls.planned import planned
from webmm.dtypes import dtype_of
from webmm.engine.device import Array, Device
from webmm.errors import ProblemError
from webmm.problems.base import check_floats
from webmm.problems.weights import BlockWeights
from webmm.wgsl.epilogues import Applied
from webmm.wgsl.own import Epilogue, fields_of


@planned
def qmatmul_weights(
    x: Operandish,
    weights: BlockWeights,
    *,
    activation: str | Epilogue | None = None,
    out_dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    devices: Devices | None = None,
) -> Any:
    """Return ``activation(x @ weights)``, (…, n), with weights of 4 or 8 bits that are dequantised within the product.

    Arguments:

    - `x`: an array of shape (…, k), of one of `webmm.dtypes.MATRIX_DTYPES`.
    - `weights`: a (k, n) matrix from `quantize_blocks()`. Keep it on the device with `BlockWeights.to()`, else every
      call uploads it.
    - `activation`: as in `matmul()`, applied to each element before it is stored.
    - `out_dtype`: the dtype of the result, by default the dtype of `x`.
    - `device`: by default the device of `x` or of the weights, or the most capable adapter.
    - `devices`: "all" or a list of Devices, among which a call on NumPy arrays, weights included, is divided.

    Returns a NumPy array, or an `Array` on the same device if `x`, or an array of the activation, is one. Sums are
    float32; every element is within the error bound of ``matmul(x, weights.dequantize())``.

    Raises ProblemError for shapes that do not match, operands on different devices, and other dtypes; otherwise as
    `matmul()`, also for the activation.

    Example: ``webmm.qmatmul_weights(x, webmm.quantize_blocks(w).to(device))``
    """
    if not isinstance(weights, BlockWeights):
        raise ProblemError(f"weights must be quantised, by webmm.quantize_blocks(w), not {type(weights).__name__}")
    if devices is None and device is None and not isinstance(x, Array):
        device = weights.device
    operands = operands_of(activation)
    with opened("qmatmul_weights", device, x, *weights.parts, *operands, devices=devices) as temporary:
        for one in temporary.devices:
            function = activation_on(one, activation)
        a, terms = temporary.data(x), Applied(**fields_of(function))
        shape = weighted_shape(a, weights.shape)
        dtype = element_of(a)
        out = dtype if out_dtype is None else dtype_of(out_dtype)
        check_floats("float matrix products", dtype, out)
        check_operands(operands, shape)
        more = [rows_over(temporary.data(y), shape) for y in operands]
        c = temporary.result(shape, out, a, *more)
        if 0 in (*a.shape, *shape):  # the sums or the result are empty
            nothing = terms.applied(np.zeros(shape), [np.asarray(y) for y in operands]).astype(out.numpy)
            return temporary.device.array(nothing, out) if isinstance(c, Array) else returned(nothing)

        def compute(rows: Array, words: Array, scales: Array, zeros: Array, *others: Array) -> None:
            *over, c = others
            given = rows, words, scales, zeros, c
            problem = weighted_of(weights, terms, [y.broadcast_to(c.shape) for y in over], *given)
            choose.run(problem, c.device, *given, *over)

        parts = (
            Labelled(temporary.data(part), "n" + letter, False)
            for part, letter in zip(weights.parts, "wbb", strict=True)
        )
        spread = (
            Labelled(y, "".join("1" if n == 1 else axis for n, axis in zip(y.shape, "mn", strict=True))) for y in more
        )
        labelled = [Labelled(readable(rows_of(a)), "mk"), *parts, *spread]
        into = Labelled(c.reshape(-1, shape[-1]), "mn", anywhere=False)
        in_pieces(temporary.devices, compute, labelled, into, "mn", flops=2 * a.size * shape[-1])
        return returned(c)
