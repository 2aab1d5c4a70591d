"""Products of quantised matrices: the calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from webmm import log
from webmm.api import Operandish, Temporaries
from webmm.array import Array
from webmm.device import Device, default_device
from webmm.dtypes import F32, I32, U8, DType, dtype_of
from webmm.errors import ProblemError, UnsupportedError
from webmm.kernels.base import Capabilities, Kernel
from webmm.kernels.quantized.base import QuantizedKernel
from webmm.kernels.quantized.matrix_unit import MatrixUnit
from webmm.kernels.quantized.packed import Packed
from webmm.kernels.quantized.unpacked import Unpacked
from webmm.plan import matrix_operand
from webmm.problem import BYTES, Operand, Problem, Quantized
from webmm.quantization import (
    Scheme,
    checked_bias,
    checked_scale,
    checked_zero,
    reference,
)

Q = TypeVar("Q", bound=Problem)
Parts = NDArray[np.int32] | None

ENOUGH_TILES = 128  # that fill a large GPU; see webmm.choose
GPU = (
    Packed(),
    Packed(bn=64, tn=4),
    Packed(bm=32, bn=64, tn=4),
    Packed(bm=32, bn=32, tn=4),
)
# Likewise on matrix units, after the stage's own tiles. TOP/s on an H200 under Dawn, each against the next: 106 to 143
# at 1024³ (64 tiles, 256), where `packed` reads 69; 33 to 36 at 512³ (64 tiles, 128), `packed` 31.
MATRIX_TILES: tuple[dict[str, Any], ...] = (
    {"bm": 64, "bn": 64, "sm": 32, "sn": 32},
    {"bm": 32, "bn": 64, "sm": 32, "sn": 32},
)
# Where storage runs along k and nothing is summed on the way, more subgroups pay: 481 to 505 at 4096³; else not, 448 to
# 411.
MORE_SUBGROUPS = {"sn": 32}
# On a CPU four bytes at a time pay even with workgroup memory: 8 GOP/s against 2 at 256³ (lavapipe, two cores). Small
# tiles compile in half a second.
CPU = Packed(bm=32, bn=32, bk=8, tn=4, unroll=1)


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

    `webmm.quantization.reference` is the meaning, bit for bit. NumPy operands give a NumPy array; where an operand is
    an `Array`, the result is one, on the same device, and transposed and sliced operands are read where they lie.

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
            device.run(
                choose(problem, device, candidates(problem, device)), problem, a, b, c, *map(temporary.array, terms)
            )
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


def describe(
    m: int, n: int, k: int, a: tuple[DType, Operand], b: tuple[DType, Operand], scheme: Scheme, out: DType
) -> tuple[Quantized, list[NDArray[np.int32]]]:
    """Return the problem of an (m, n, k) product under `scheme`, and what its `row_terms` and `column_terms` hold."""
    row, column = _multipliers(scheme, out)
    alike = row is None and column is not None and column.ndim == 1
    problem = Quantized(
        *(m, n, k, a[0], b[0], out, a[1], b[1]),
        zero_a=None if scheme.zero_a.ndim else int(scheme.zero_a),
        zero_b=None if scheme.zero_b.ndim else int(scheme.zero_b),
        zero_c=scheme.zero_c,
        multiplier=(int(column[0]), int(column[1])) if column is not None and alike else (0, 0),
        scaled_rows=row is not None,
        scaled_columns=column is not None and not alike,
        bias=scheme.bias is not None,
    )
    rows = [_terms(m, scheme.zero_a, row, None)] if problem.by_row else []
    columns = [_terms(n, scheme.zero_b, None if alike else column, scheme.bias)] if problem.by_column else []
    return problem, rows + columns


def _multipliers(scheme: Scheme, out: DType) -> tuple[Parts, Parts]:
    """Return the parts of the multiplier by row and by column as two int32 each; a single one stands for columns."""
    if out == I32:
        return None, None
    if out in BYTES:
        row, column = (None if part is None else part.pairs() for part in scheme.multipliers())
        return row, column
    if scheme.by_row and scheme.by_column:
        return _bits(scheme.scale_a), _bits(scheme.scale_b)
    whole = _bits(scheme.scale_a * scheme.scale_b)
    return (whole, None) if scheme.by_row else (None, whole)


def _bits(x: NDArray[np.float32]) -> NDArray[np.int32]:
    bits = np.asarray(x, np.float32).view(np.int32)
    return np.stack([bits, np.zeros_like(bits)], -1)


def _terms(
    length: int, zero: NDArray[np.int32], multiplier: Parts, bias: NDArray[np.int32] | None
) -> NDArray[np.int32]:
    terms = np.zeros((length, 4), np.int32)
    terms[:, 0] = zero
    if multiplier is not None:
        terms[:, 1:3] = multiplier
    if bias is not None:
        terms[:, 3] = bias
    return terms


def choose(problem: Q, device: Device, candidates: Iterable[Kernel[Q]]) -> Kernel[Q]:
    """Return the first candidate that can run; raises UnsupportedError with the reasons if none can."""
    reasons = []
    for kernel in candidates:
        reason = kernel.check(problem, device.capabilities)
        if reason is None:
            log.choice.info("%s %s %s: %s", problem.op, problem, problem.dtype.name, kernel)
            return kernel
        reasons.append(f"{kernel.name} {reason}")
    raise UnsupportedError(f"no kernel can compute {problem} on {device.capabilities.name}: {'; '.join(reasons)}")


def candidates(problem: Quantized, device: Device) -> list[QuantizedKernel]:
    """Return the kernels that are worth running for `problem` on `device`, best first."""
    if device.info.kind == "cpu":
        return [CPU, Unpacked()]
    return [*made_for_matrix_units(problem, device.capabilities), *made_for_gpus(problem), Unpacked()]


def made_for_gpus(problem: Quantized) -> list[Packed]:
    """Return the kernels of packed dot products that fill a GPU with this product, the largest tiles first."""
    return [kernel for kernel in GPU if kernel.grid.tiles(problem) >= ENOUGH_TILES or kernel == GPU[-1]]


def made_for_matrix_units(problem: Quantized, device: Capabilities) -> list[QuantizedKernel]:
    """Return the kernels for matrix units, best first; none where the device has none, or where others may win."""
    kinds = ("u8", "i8") if (problem.a_dtype, problem.b_dtype) == (U8, U8) else ("i8",)
    plain = problem.layout == "nt" and problem.zero_a == problem.zero_b == 0
    tiles = (MORE_SUBGROUPS if plain else {}, *MATRIX_TILES)
    made = (dataclasses.replace(kernel, **each) for kernel in MatrixUnit.each(device, kinds) for each in tiles)
    return [k for k in made if k.grid.tiles(problem) >= ENOUGH_TILES and not (k.invalid() or k.unsuited(problem))]
