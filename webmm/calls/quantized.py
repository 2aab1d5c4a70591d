"""The public call for products of quantised matrices."""

from __future__ import annotations

import math
import string
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from webmm import choose
from webmm.arguments.arrays import broadcast_shape, element_of
from webmm.arguments.products import quantized_of
from webmm.arguments.quantized import check_zero_c, quantized_shape, result_dtype
from webmm.calls.devices import Devices
from webmm.calls.executor import Data, Labelled
from webmm.calls.operands import Operandish, Temporaries, opened, readable, returned, rows_of
from webmm.calls.pieces import in_pieces
from webmm.calls.planned import planned
from webmm.dtypes import BYTES, DType, dtype_of
from webmm.engine.device import Array, Device
from webmm.errors import ProblemError
from webmm.problems.product import Operand
from webmm.problems.quantized import describe
from webmm.problems.scheme import Scheme, checked_bias, checked_scale, checked_zero, reference

CONSTANT = 2**17  # scales and zero points of up to this many bytes are cached on the device between calls


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
    with opened("qmatmul", device, a_q, b_q, devices=devices) as temporary:
        a, b = temporary.data(a_q), temporary.data(b_q)
        shape = quantized_shape(a, b)
        *batch, m, n = shape
        out = out_dtype_of(out_dtype, scale_c, element_of(a))
        scale = None if scale_c is None else float(checked_scale("scale_c", scale_c, 1))
        zero, added = _checked_zero_c(zero_c, out), None if bias is None else checked_bias(bias, n)

        def scheme(*given: ArrayLike) -> Scheme:
            left = checked_scale("scale_a", given[0], m), checked_zero("zero_a", given[1], m, element_of(a))
            right = checked_scale("scale_b", given[2], n), checked_zero("zero_b", given[3], n, element_of(b))
            return Scheme(*left, *right, scale, zero, added)

        given = [np.asarray(x) for x in (scale_a, zero_a, scale_b, zero_b)]
        c = temporary.result(shape, out, a, b)
        if not any(x.ndim > 2 for x in given):
            _multiply(temporary, a, b, scheme(*given), c)
            return returned(c)
        host = np.zeros(c.shape, out.numpy)  # each matrix has its own scheme
        shapes = [x.shape[:-2] for x in (a, a, b, b)]
        for index in np.ndindex(*batch):
            chosen = (_of_matrix(x, shape, index) for x, shape in zip(given, shapes, strict=True))
            left, right = (_of_matrix(x, x.shape[:-2], index) for x in (a, b))
            _multiply(temporary, left, right, scheme(*chosen), host[index])
        return c.device.array(host) if isinstance(c, Array) else returned(host)


def _multiply(temporary: Temporaries, a: Data, b: Data, scheme: Scheme, c: Data) -> None:
    """Fill `c` with the products of the matrices of `a` and `b`, in pieces of one matrix of the batch each."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    dtypes, out = [element_of(x) for x in (a, b)], element_of(c)
    scheme.check(k, *dtypes)
    if not math.prod(c.shape):
        return
    if not k:
        nothing = reference(np.zeros((m, 0), np.int8), np.zeros((0, n), np.int8), scheme, out)
        if isinstance(c, Array):
            temporary.device.assign(c, np.broadcast_to(nothing, c.shape))
        else:
            c[...] = nothing
        return
    per_tensor = not scheme.zero_a.ndim and not scheme.scale_a.ndim  # the same for all rows of all matrices
    if b.ndim == 2 and per_tensor and (not isinstance(a, Array) or a.contiguous):
        a, c = rows_of(a), rows_of(c)  # a single tall product
        m = a.shape[0]
    batch = string.ascii_uppercase[: c.ndim - 2]
    template, terms = describe(m, n, k, (dtypes[0], Operand(k)), (dtypes[1], Operand(n)), scheme, out)
    given = [
        temporary.device.constant(term) if isinstance(c, Array) and term.nbytes <= CONSTANT else term for term in terms
    ]

    def compute(a: Array, b: Array, *others: Array) -> None:
        *terms, c = others
        choose.run(quantized_of(template, a, b, c, *terms), c.device, a, b, c, *terms)

    rows_and_columns = ["mt"] * template.by_row + ["nt"] * template.by_column
    in_pieces(
        temporary.devices,
        compute,
        [
            _labelled(readable(a), batch, "mk"),
            _labelled(readable(b), batch, "kn"),
            *(Labelled(each, axes, anywhere=False) for each, axes in zip(given, rows_and_columns, strict=True)),
        ],
        Labelled(c, batch + "mn", anywhere=False),
        "mn",
        each=batch,
        flops=2 * k * math.prod(c.shape),
    )


def _labelled(x: Data, batch: str, axes: str) -> Labelled:
    """Return matrices with the letters of their batch axes, without the axes of length 1, which broadcast."""
    letters = batch[len(batch) - (x.ndim - 2) :]
    kept = "".join(letter for letter, length in zip(letters, x.shape, strict=False) if length > 1)
    matrices = x[tuple(slice(None) if length > 1 else 0 for length in x.shape[:-2])] if x.ndim > 2 else x
    return Labelled(matrices, kept + axes)


def _of_matrix(x: Any, batch: tuple[int, ...], index: tuple[int, ...]) -> Any:
    """Return the part of `x` for matrix `index`; the axes of `x` before its last two broadcast to `batch`."""
    if x.ndim <= 2:
        return x
    if broadcast_shape(x.shape[:-2], batch) != batch or x.ndim - 2 > len(batch):
        raise ProblemError(f"a scale or zero point of shape {x.shape} does not fit the batch {batch} of its operand")
    batch = x.shape[:-2]
    places = index[len(index) - len(batch) :]
    return x[tuple(0 if length == 1 else i for length, i in zip(batch, places, strict=True))]


def out_dtype_of(given: DTypeLike | None, scale_c: float | None, default: DType) -> DType:
    """Return the dtype of the result; raises ProblemError if it contradicts `scale_c`."""
    return result_dtype(None if given is None else dtype_of(given), scale_c is not None, default)


def _checked_zero_c(zero: int | None, out: DType) -> int:
    check_zero_c(zero is not None, out)
    return int(checked_zero("zero_c", 0 if zero is None else zero, 1, out)) if out in BYTES else 0
