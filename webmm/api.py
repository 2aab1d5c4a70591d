"""The one call that most users need."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from webmm.array import Array
from webmm.choose import choose
from webmm.device import Device, default_device
from webmm.dtypes import dtype_of
from webmm.errors import ProblemError
from webmm.problem import gemm


def matmul(a: Array | ArrayLike, b: Array | ArrayLike, *, device: Device | None = None) -> Array | NDArray[Any]:
    """Return the product of the matrices `a` (m, k) and `b` (k, n), both float32 or both float16.

    Accumulates in float32. NumPy arrays give a NumPy array; where either operand lives on a device, the product does,
    too. `device` defaults to the operands' device, or to the most capable adapter.

    Raises ProblemError where the operands do not fit together, UnsupportedError where the device cannot hold them, and
    NoAdapterError where there is no device.
    """
    resident = [x for x in (a, b) if isinstance(x, Array)]
    device = device or (resident[0].device if resident else default_device())
    left, right = (x if isinstance(x, Array) else np.asarray(x) for x in (a, b))
    _check(left, right)
    problem = gemm(left.shape[0], right.shape[1], left.shape[1], dtype=dtype_of(left.dtype))
    kernel = choose(problem, device)
    on_device = [x if isinstance(x, Array) else device.array(x) for x in (left, right)]
    c = device.empty((problem.m, problem.n), problem.out_dtype)
    device.run(kernel, problem, *on_device, c)
    return c if resident else c.numpy()


def _check(a: Array | NDArray[Any], b: Array | NDArray[Any]) -> None:
    for name, x in (("a", a), ("b", b)):
        if len(x.shape) != 2:
            raise ProblemError(f"{name} has shape {x.shape}; a matrix is 2-D")
    if a.shape[1] != b.shape[0]:
        raise ProblemError(
            f"a {a.shape} and b {b.shape} do not fit: the inner sizes {a.shape[1]} and {b.shape[0]} differ"
        )
    if dtype_of(a.dtype) != dtype_of(b.dtype):
        raise ProblemError(f"a is {dtype_of(a.dtype).name}, b is {dtype_of(b.dtype).name}; cast one of them")
