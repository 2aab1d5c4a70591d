"""Ops of one matrix, by name: what they give for a matrix in host memory, such as a piece of a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.calls.compute import compute
from webmm.calls.elementwise import map as map_elements
from webmm.calls.normalise import layer_norm, rms_norm, softmax
from webmm.calls.reduce import reduce
from webmm.cases import OPS, op_of
from webmm.cases.base import Op
from webmm.cases.streaming import StreamingOp
from webmm.dtypes import dtype_of
from webmm.engine.device import Device
from webmm.errors import ConfigError
from webmm.problems.divisible import Divisible
from webmm.problems.reduce import OPERATIONS

OWN = ("reduce", "normalise", "elementwise")  # of webmm itself; all others are from plugins
NORMS: dict[str, Callable[..., Any]] = {"layer_norm": layer_norm, "rms_norm": rms_norm}


def op_for_files(name: str) -> Op[Any]:
    """Return the op of one array called NAME, NAME:VARIANT or VARIANT (softmax); raises ConfigError for others."""
    rows = [row for row in OPS.values() if isinstance(row, StreamingOp)]
    owner = next((row.name for row in rows if name not in OPS and name in row.variants), "")
    op = op_of(f"{owner}:{name}" if owner else name)
    if not isinstance(op, StreamingOp):
        raise ConfigError(f"op {op.name} is not for a file; choose from {', '.join(row.name for row in rows)}")
    return op


def result_shape(op: Op[Any], shape: tuple[int, int], axis: int, dtype: Any) -> tuple[tuple[int, int], str]:
    """Return the shape and the dtype of the result for a matrix; a reduction keeps its axis, with length 1."""
    if op.name == "reduce":
        m, n = shape
        return ((m, 1) if axis else (1, n)), OPERATIONS[op.variant].out_dtype(dtype_of(dtype)).name
    if op.name in OWN:
        return shape, str(dtype)
    problem = _problem(op, shape, axis, dtype)
    (written,) = (extent for extent in problem.buffers() if extent.written)
    kept = shape if written.end == shape[0] * shape[1] else (shape[0], 1) if axis else (1, shape[1])
    return kept, written.dtype.name


def result_of(name: str, x: NDArray[Any], axis: int, device: Device) -> NDArray[Any]:
    """Return the result of the op for a matrix, as a matrix."""
    op, shape = op_of(name), (x.shape[0], x.shape[1])
    if op.name == "reduce":
        return np.asarray(reduce(x, op.variant, axis, keepdims=True, device=device))
    if op.name == "elementwise":
        return np.asarray(map_elements(x, op.variant, device=device))
    if op.name == "normalise":
        if op.variant == "softmax":
            return np.asarray(softmax(x, axis, device=device))
        norm = NORMS[op.variant]
        return np.asarray(norm(x, device=device) if axis else norm(np.ascontiguousarray(x.T), device=device).T)
    problem = _problem(op, shape, axis, x.dtype)
    lengths = tuple(getattr(problem, each) for each in problem.axes[0])
    got = compute(problem, np.ascontiguousarray(x).reshape(lengths), device=device)
    return np.asarray(got).reshape(result_shape(op, shape, axis, x.dtype)[0])


def _problem(op: Op[Any], shape: tuple[int, int], axis: int, dtype: Any) -> Divisible:
    """Return the problem of a plugin's op; raises ConfigError unless it says how it is cut."""
    m, n = shape
    problem = op.problem((m, n, 1) if axis else (1, m, n), dtype_of(dtype).name)
    if not isinstance(problem, Divisible):
        raise ConfigError(f"op {op.name} does not say how it is cut: derive its problem from Divisible")
    return problem
