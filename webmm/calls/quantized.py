"""Products of quantised matrices: the call."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, DTypeLike

from webmm import choose
from webmm.calls.operands import Operandish, Temporaries
from webmm.calls.parts import matrix_operand
from webmm.dtypes import BYTES, F32, I32, DType, dtype_of
from webmm.engine.array import Array
from webmm.engine.device import Device, default_device
from webmm.errors import ProblemError
from webmm.problems.quantized import describe
from webmm.problems.scheme import Scheme, checked_bias, checked_scale, checked_zero, reference


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

    `a_q` is (m, k), `b_q` (k, n), each uint8 or int8; an element q stands for ``scale·(q - zero)``. `scale_a` and
    `zero_a` are numbers or have one for each row, `scale_b` and `zero_b` one for each column. `bias` is (n,) of int32,
    in steps of scale_a·scale_b. What comes back is by `out_dtype`:

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
    resident = [x for x in (a_q, b_q) if isinstance(x, Array)]
    device = device or (resident[0].device if resident else default_device())
    with device.span("qmatmul", "call"), Temporaries(device) as temporary:
        a, b = temporary.array(a_q), temporary.array(b_q)
        m, n, k = _sizes(a, b)
        scheme = Scheme(
            checked_scale("scale_a", scale_a, m),
            checked_zero("zero_a", zero_a, m, a.dtype),
            checked_scale("scale_b", scale_b, n),
            checked_zero("zero_b", zero_b, n, b.dtype),
            None if scale_c is None else float(checked_scale("scale_c", scale_c, 1)),
            _checked_zero_c(zero_c, out := _out_dtype(out_dtype, scale_c, a.dtype)),
            None if bias is None else checked_bias(bias, n),
        )
        scheme.check(k, a.dtype, b.dtype)
        c = device.empty((m, n), out)
        if c.size and k:
            a, b = temporary.readable(a), temporary.readable(b)
            left, right = matrix_operand(a), matrix_operand(b)
            assert left, "made readable above"
            assert right
            problem, terms = describe(m, n, k, (a.dtype, left), (b.dtype, right), scheme, out)
            choose.run(problem, device, a, b, c, *map(temporary.array, terms))
        elif c.size:
            device.assign(c, reference(a.numpy(), b.numpy(), scheme, out))
        if resident:
            return c
        host = c.numpy()
        c.free()
        return host


def _sizes(a: Array, b: Array) -> tuple[int, int, int]:
    if a.ndim != 2 or b.ndim != 2:
        raise ProblemError(f"quantised products take matrices, not shapes {a.shape} and {b.shape}; reshape them")
    if a.shape[1] != b.shape[0]:
        raise ProblemError(
            f"a {a.shape} and b {b.shape} do not fit: the inner sizes {a.shape[1]} and {b.shape[0]} differ"
        )
    for name, x in (("a", a), ("b", b)):
        if x.dtype not in BYTES:
            raise ProblemError(f"{name} is {x.dtype.name}; quantised operands are uint8 or int8: webmm.quantize(x)")
    return a.shape[0], b.shape[1], a.shape[1]


def _out_dtype(given: DTypeLike | None, scale_c: float | None, default: DType) -> DType:
    """Return the type of the result; raises ProblemError where it does not go with `scale_c`."""
    if given is None:
        return F32 if scale_c is None else default
    out = dtype_of(given)
    if out not in (*BYTES, I32, F32):
        raise ProblemError(f"out_dtype {out.name} is none of int8, uint8, int32 and float32")
    if (out in BYTES) != (scale_c is not None):
        need = (
            "needs scale_c, what a step of it stands for" if out in BYTES else "takes no scale_c: it is not requantised"
        )
        raise ProblemError(f"out_dtype {out.name} {need}")
    return out


def _checked_zero_c(zero: int | None, out: DType) -> int:
    if out in BYTES:
        return int(checked_zero("zero_c", 0 if zero is None else zero, 1, out))
    if zero is not None:
        raise ProblemError(f"out_dtype {out.name} takes no zero_c: it is not requantised")
    return 0
