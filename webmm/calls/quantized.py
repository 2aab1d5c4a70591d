"""The public call for products of quantised matrices.

The steps are in the translated subset (docs/page.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from webmm.arguments.arrays import Shape, broadcast_shape, element_of, is_dense
from webmm.arguments.products import quantized_of
from webmm.arguments.quantized import check_zero_c, quantized_shape, result_dtype
from webmm.calls.devices import Devices
from webmm.calls.executor import Data, labelled
from webmm.calls.operands import Operandish, Temporaries, opened, returned
from webmm.calls.pieces import in_pieces
from webmm.calls.planned import planned
from webmm.calls.sides import at_index, beside, is_resident, kept, no_terms
from webmm.calls.views import readable, rows_of
from webmm.cut.streams import BATCH
from webmm.dtypes import DType, dtype_of
from webmm.engine.device import Array, Device
from webmm.errors import ProblemError
from webmm.problems.product import Operand
from webmm.problems.quantized import describe
from webmm.problems.scheme import Numbers, Scheme, checked_bias, checked_scale, checked_zero, numbers_of, single


@planned
def qmatmul(
    a_q: Operandish,
    b_q: Operandish,
    scale_a: ArrayLike,
    zero_a: ArrayLike,
    scale_b: ArrayLike,
    zero_b: ArrayLike,
    scale_c: float | None = None,
    zero_c: int | None = None,
    *,
    bias: ArrayLike | None = None,
    out_dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    devices: Devices | None = None,
) -> Any:
    """Return the matrix product of 8-bit quantised operands, with exact sums in 32-bit integers.

    Arguments:

    - `a_q`, (…, m, k), and `b_q`, (…, k, n): uint8 or int8 each; an element q represents ``scale·(q - zero)``. Batches
      broadcast. Transposed and sliced `Array`s are read in place.
    - `scale_a`, `zero_a`: numbers, or one value per row of `a_q`.
    - `scale_b`, `zero_b`: numbers, or one value per column of `b_q`. The vectors apply to all matrices of a batch;
      arrays of shapes (…, m, 1) and (…, 1, n) give each matrix its own values, as in ONNX's QLinearMatMul.
    - `scale_c`, `zero_c`: the quantisation of the result, for 8-bit results only.
    - `bias`: int32 of shape (n,), in units of scale_a·scale_b.
    - `out_dtype`: the dtype of the result, by default the dtype of `a_q` with `scale_c`, else float32:

      - uint8 or int8, which need `scale_c`: requantised by ``scale_a·scale_b/scale_c`` in fixed point, rounded once
        (halves up), offset by `zero_c` and saturated.
      - int32: the sums.
      - float32: the sums times ``scale_a·scale_b``.

    - `device`: by default the device of the operands, or the most capable adapter.
    - `devices`: "all" or a list of Devices, among which a call on NumPy arrays is divided.

    Returns a NumPy array, or an `Array` on the same device if an operand is one; every bit is as in
    `webmm.problems.scheme.reference()`.

    Raises ProblemError for shapes that do not match, other dtypes, scales that are not positive and finite, zero points
    outside the dtype's range, and a k so large that 32-bit sums could overflow; otherwise as `matmul()`.
    """
    with opened("qmatmul", device, a_q, b_q, devices=devices) as call:
        added = None if bias is None else np.asarray(bias)
        out = None if out_dtype is None else dtype_of(out_dtype)
        scales = scale_a, zero_a, scale_b, zero_b, scale_c, zero_c
        return returned(quantized_product(call, call.data(a_q), call.data(b_q), scales, added, out))


def out_dtype_of(given: DTypeLike | None, scale_c: float | None, default: DType) -> DType:
    """Return the dtype of the result; raises ProblemError if it contradicts `scale_c`."""
    return result_dtype(None if given is None else dtype_of(given), scale_c is not None, default)


# The steps, in both languages


def quantized_product(
    call: Temporaries, a: Data, b: Data, scales: Sequence[Any], bias: Numbers | None, out_dtype: DType | None
) -> Data:
    """Return the product of `a` and `b`; `scales` are scale and zero point of `a`, of `b` and of the result."""
    *of_operands, scale_c, zero_c = scales
    shape = quantized_shape(a, b)
    *batch, m, n = shape
    types = [element_of(x) for x in (a, b)]
    out = result_dtype(out_dtype, scale_c is not None, types[0])
    check_zero_c(zero_c is not None, out)
    scale = None if scale_c is None else single(checked_scale("scale_c", scale_c, 1))
    zero = 0 if zero_c is None else single(checked_zero("zero_c", zero_c, 1, out))
    added = None if bias is None else checked_bias(bias, n)

    def scheme(scale_a: Numbers, zero_a: Numbers, scale_b: Numbers, zero_b: Numbers) -> Scheme:
        left = checked_scale("scale_a", scale_a, m), checked_zero("zero_a", zero_a, m, types[0])
        right = checked_scale("scale_b", scale_b, n), checked_zero("zero_b", zero_b, n, types[1])
        checked = Scheme(*left, *right, scale, zero, added)
        checked.check(a.shape[-1], types[0], types[1])
        return checked

    given = [numbers_of(x) for x in of_operands]
    if not any(x.ndim > 2 for x in given):
        whole = scheme(*given)
        c = call.result(shape, out, a, b)
        _multiply(call, a, b, whole, c)
        return c
    host = call.result(shape, out)  # each matrix has its own scheme
    shapes = [x.shape[:-2] for x in (a, a, b, b)]
    for index in itertools.product(*(range(length) for length in batch)):
        own = [_of_matrix(call, x, shape, index) for x, shape in zip(given, shapes, strict=True)]
        left, right = [_of_matrix(call, x, x.shape[:-2], index) for x in (a, b)]
        _multiply(call, left, right, scheme(*own), at_index(call, host, index))
    return beside(call, host, a, b)


def _of_matrix(call: Temporaries, x: Any, batch: Shape, index: tuple[int, ...]) -> Any:
    """Return the part of `x` for matrix `index`; the axes of `x` before its last two broadcast to `batch`."""
    own = x.shape[:-2]
    if x.ndim <= 2:
        return x
    if broadcast_shape(own, batch) != batch or len(own) > len(batch):
        raise ProblemError(f"a scale or zero point of shape {x.shape} does not fit the batch {batch} of its operand")
    places = index[len(index) - len(own) :]
    return at_index(call, x, tuple(0 if length == 1 else i for length, i in zip(own, places, strict=True)))


def _multiply(call: Temporaries, a: Data, b: Data, scheme: Scheme, c: Data) -> None:
    """Fill `c` with the products of the matrices of `a` and `b`, in pieces of one matrix of the batch each."""
    if not c.size:
        return
    if not a.shape[-1]:
        a, b = no_terms(a, b)
        scheme = replace(scheme, zero_a=numbers_of(0))
    per_tensor = not scheme.zero_a.ndim and not scheme.scale_a.ndim  # the same for all rows of all matrices
    if b.ndim == 2 and per_tensor and (not is_resident(a) or is_dense(a)):
        a, c = rows_of(call, a), rows_of(call, c)  # a single tall product
    (m, k), n, types = a.shape[-2:], b.shape[-1], [element_of(x) for x in (a, b)]
    template, terms = describe(m, n, k, (types[0], Operand(k)), (types[1], Operand(n)), scheme, element_of(c))

    def compute(a: Array, b: Array, *others: Array) -> None:
        *terms, c = others
        call.run(quantized_of(template, a, b, c, *terms), a, b, c, *terms)

    each_row_and_column = ("mt", "nt") if template.by_row else ("nt",)
    operands = [
        labelled(readable(call, a), BATCH + "mk"),
        labelled(readable(call, b), BATCH + "kn"),
        *(labelled(kept(call, x, c), axes, False) for x, axes in zip(terms, each_row_and_column, strict=False)),
    ]
    result = labelled(c, BATCH + "mn", anywhere=False)
    in_pieces(call, compute, operands, result, "mn", each=BATCH, flops=2 * k * c.size)
