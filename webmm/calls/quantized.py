"""Products of quantised matrices: the call."""

from __future__ import annotations

import math
import string
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from webmm import choose
from webmm.calls.operands import Operandish, Temporaries, opened, readable, returned, rows_of
from webmm.calls.parts import broadcast_shape, matrix_operand
from webmm.calls.pieces import Data, Labelled, in_pieces, starts_of
from webmm.calls.planned import planned
from webmm.dtypes import BYTES, F32, I32, DType, dtype_of
from webmm.engine.array import Array, element_of
from webmm.engine.device import Device
from webmm.errors import ProblemError
from webmm.problems.product import Operand
from webmm.problems.quantized import describe
from webmm.problems.scheme import Scheme, checked_bias, checked_scale, checked_zero, reference

CONSTANT = 2**17  # bytes of scales and zero points up to which they are kept on the device from call to call


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
    device: Device | None = None,
) -> Any:
    """Return the product of the matrices that 8-bit integers stand for, summed in 32-bit integers, exactly.

    `a_q` is (…, m, k), `b_q` (…, k, n), each uint8 or int8; batches broadcast; an element q stands for
    ``scale·(q - zero)``. `scale_a` and `zero_a` are numbers or have one for each row, `scale_b` and `zero_b` one for
    each column: the same for all matrices of a batch, or, as ONNX's QLinearMatMul has them, of shapes (…, m, 1) and
    (…, 1, n) with the batch of their operand. `bias` is (n,) of int32, in steps of scale_a·scale_b. What comes back is
    by `out_dtype`:

    - uint8 or int8, which needs `scale_c`: requantised by ``scale_a·scale_b/scale_c`` in fixed point, rounded once,
      halves up, moved by `zero_c` and saturated. With `scale_c` the default is the type of `a_q`.
    - int32: the sums.
    - float32: the sums times ``scale_a·scale_b``. Without `scale_c` this is the default.

    `webmm.problems.scheme.reference` is the meaning, bit for bit. NumPy operands give a NumPy array; where an operand
    is an `Array`, the result is one, on the same device, and transposed and sliced operands are read where they lie.

    Raises ProblemError for operands that do not fit together, other dtypes, scales that are not positive and finite,
    zero points that the dtype does not have, lengths that do not match, and a k at which 32 bits could overflow; else
    as `matmul()`.
    """
    with opened("qmatmul", device, a_q, b_q) as temporary:
        a, b = temporary.data(a_q), temporary.data(b_q)
        batch, m, n = _sizes(a, b)
        out = _out_dtype(out_dtype, scale_c, element_of(a))
        scale = None if scale_c is None else float(checked_scale("scale_c", scale_c, 1))
        zero, added = _checked_zero_c(zero_c, out), None if bias is None else checked_bias(bias, n)

        def scheme(*given: ArrayLike) -> Scheme:
            left = checked_scale("scale_a", given[0], m), checked_zero("zero_a", given[1], m, element_of(a))
            right = checked_scale("scale_b", given[2], n), checked_zero("zero_b", given[3], n, element_of(b))
            return Scheme(*left, *right, scale, zero, added)

        given = [np.asarray(x) for x in (scale_a, zero_a, scale_b, zero_b)]
        c = temporary.result((*batch, m, n), out, a, b)
        if not any(x.ndim > 2 for x in given):
            _multiply(temporary, a, b, scheme(*given), c)
            return returned(c)
        host = np.zeros(c.shape, out.numpy)  # a scheme for each matrix
        shapes = [x.shape[:-2] for x in (a, a, b, b)]
        for index in np.ndindex(*batch):
            chosen = (_of_matrix(x, shape, index) for x, shape in zip(given, shapes, strict=True))
            left, right = (_of_matrix(x, x.shape[:-2], index) for x in (a, b))
            _multiply(temporary, left, right, scheme(*chosen), host[index])
        return c.device.array(host) if isinstance(c, Array) else returned(host)


def _multiply(temporary: Temporaries, a: Data, b: Data, scheme: Scheme, c: Data) -> None:
    """Fill `c` with the products of the matrices of `a` and `b`, in pieces, each matrix of the batch by itself."""
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
    alike = not scheme.zero_a.ndim and not scheme.scale_a.ndim  # all rows are, of all matrices
    if b.ndim == 2 and alike and (not isinstance(a, Array) or a.contiguous):
        a, c = rows_of(a), rows_of(c)  # one tall product
        m = a.shape[0]
    batch = string.ascii_uppercase[: c.ndim - 2]
    template, terms = describe(m, n, k, (dtypes[0], Operand(k)), (dtypes[1], Operand(n)), scheme, out)
    given = [
        temporary.device.constant(term) if isinstance(c, Array) and term.nbytes <= CONSTANT else term for term in terms
    ]

    def compute(a: Array, b: Array, *others: Array) -> None:
        *terms, c = others
        a, b, c = (x[(0,) * (x.ndim - 2)] if x.ndim > 2 else x for x in (a, b, c))
        where_a, where_b = matrix_operand(a), matrix_operand(b)
        assert where_a, "made readable above"
        assert where_b
        (m, n), starts = c.shape, starts_of(c, *terms)
        problem = replace(template, m=m, n=n, a=where_a, b=where_b, starts=starts)
        choose.run(problem, c.device, a, b, c, *terms)

    rows_and_columns = ["mt"] * template.by_row + ["nt"] * template.by_column
    in_pieces(
        temporary.device,
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
    """Return matrices with the batch's letters, but for the axes along which one serves all."""
    letters = batch[len(batch) - (x.ndim - 2) :]
    kept = "".join(letter for letter, length in zip(letters, x.shape, strict=False) if length > 1)
    matrices = x[tuple(slice(None) if length > 1 else 0 for length in x.shape[:-2])] if x.ndim > 2 else x
    return Labelled(matrices, kept + axes)


def _of_matrix(x: Any, batch: tuple[int, ...], index: tuple[int, ...]) -> Any:
    """Return what of `x`, whose axes before its last two broadcast to `batch`, belongs to matrix `index`."""
    if x.ndim <= 2:
        return x
    if broadcast_shape(x.shape[:-2], batch) != batch or x.ndim - 2 > len(batch):
        raise ProblemError(f"a scale or zero point of shape {x.shape} does not fit the batch {batch} of its operand")
    batch = x.shape[:-2]
    places = index[len(index) - len(batch) :]
    return x[tuple(0 if length == 1 else i for length, i in zip(batch, places, strict=True))]


def _sizes(a: Data, b: Data) -> tuple[tuple[int, ...], int, int]:
    """Return the batch and the rows and columns of the products; raises ProblemError where there are none."""
    if min(a.ndim, b.ndim) < 2:
        raise ProblemError(
            f"quantised products take matrices, not arrays of shapes {a.shape} and {b.shape}; reshape them"
        )
    if a.shape[-1] != b.shape[-2]:
        raise ProblemError(
            f"a {a.shape} and b {b.shape} do not fit: the inner sizes {a.shape[-1]} and {b.shape[-2]} differ"
        )
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2])
    if batch is None:
        raise ProblemError(f"the batches of a {a.shape} and b {b.shape} do not broadcast")
    for name, x in (("a", a), ("b", b)):
        if element_of(x) not in BYTES:
            raise ProblemError(
                f"{name} is {element_of(x).name}; quantised operands must be uint8 or int8: webmm.quantize(x)"
            )
    return batch, a.shape[-2], b.shape[-1]


def _out_dtype(given: DTypeLike | None, scale_c: float | None, default: DType) -> DType:
    """Return the type of the result; raises ProblemError where it does not go with `scale_c`."""
    if given is None:
        return F32 if scale_c is None else default
    out = dtype_of(given)
    if out not in (*BYTES, I32, F32):
        raise ProblemError(f"out_dtype {out.name} is not supported; choose int8, uint8, int32 or float32")
    if (out in BYTES) != (scale_c is not None):
        need = "needs scale_c, the scale of the result" if out in BYTES else "is not requantised; omit scale_c"
        raise ProblemError(f"out_dtype {out.name} {need}")
    return out


def _checked_zero_c(zero: int | None, out: DType) -> int:
    if out in BYTES:
        return int(checked_zero("zero_c", 0 if zero is None else zero, 1, out))
    if zero is not None:
        raise ProblemError(f"out_dtype {out.name} is not requantised; omit zero_c")
    return 0
