"""The public call for products with quantised weights.

The steps are in the translated subset (docs/page.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import DTypeLike

from webmm.arguments.arrays import Shape, element_of
from webmm.arguments.products import check_operands, weighted_of
from webmm.arguments.quantized import weighted_shape
from webmm.arguments.views import broadcast
from webmm.calls.devices import Devices
from webmm.calls.elementwise import activation_on
from webmm.calls.executor import Data, labelled
from webmm.calls.operands import Operandish, Temporaries, opened, operands_of, returned
from webmm.calls.pieces import in_pieces
from webmm.calls.planned import planned
from webmm.calls.sides import laid_out, no_terms, spread
from webmm.calls.views import readable, rows_of
from webmm.dtypes import F32, DType, dtype_of
from webmm.engine.device import Array, Device
from webmm.errors import ProblemError
from webmm.problems.base import check_floats
from webmm.problems.weights import BlockWeights, quantize_blocks
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
    with opened("qmatmul_weights", device, x, *weights.parts, *operands, devices=devices) as call:
        for one in call.devices:
            function = activation_on(one, activation)
        terms, over = Applied(**fields_of(function)), [call.data(y) for y in operands]
        out = None if out_dtype is None else dtype_of(out_dtype)
        return returned(weighted_product(call, call.data(x), weights, terms, over, out))


# The steps, in both languages


def weighted_product(
    call: Temporaries, x: Data, weights: BlockWeights, terms: Applied, operands: Sequence[Data], out_dtype: DType | None
) -> Data:
    """Return the activation in `terms`, which has these operands, of the product of `x` and the weights."""
    shape = weighted_shape(x, weights.shape)
    out = out_dtype or element_of(x)
    check_floats("float matrix products", element_of(x), out)
    check_operands(operands, shape)
    result = call.result(shape, out, x, *operands)
    if not result.size:
        return result
    if not x.shape[-1]:
        x, none = no_terms(x, call.result((0, shape[-1]), F32))
        weights = quantize_blocks(none, weights.bits, weights.block)

    def compute(rows: Array, words: Array, scales: Array, zeros: Array, *others: Array) -> None:
        *over, c = others
        given = rows, words, scales, zeros, c
        problem = weighted_of(weights, terms, [laid_out(y, broadcast(y, c.shape)) for y in over], *given)
        call.run(problem, *given, *over)

    rows = labelled(readable(call, rows_of(call, x)), "mk")
    parts = [labelled(call.data(y), axes, False) for y, axes in zip(weights.parts, ("nw", "nb", "nb"), strict=True)]
    spreads = [labelled(_rows_over(call, y, shape), "mn") for y in operands]
    c = labelled(rows_of(call, result), "mn", anywhere=False)
    in_pieces(call, compute, [rows, *parts, *spreads], c, "mn", flops=2 * x.size * shape[-1])
    return result


def _rows_over(call: Temporaries, x: Data, shape: Shape) -> Data:
    """Return an operand that broadcasts to `shape` as one that broadcasts to its rows, which `rows_of()` makes."""
    if x.ndim == 2 and len(shape) == 2:
        return x
    rows = shape[:-1] if any(length != 1 for length in x.shape[:-1]) else (1,) * max(x.ndim - 1, 1)
    return rows_of(call, spread(call, x, (*rows, x.shape[-1] if x.ndim else 1)))
