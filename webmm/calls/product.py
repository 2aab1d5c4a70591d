"""How a float matrix product is computed: of arrays on a device, and of NumPy arrays at once or in tiles."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from webmm.calls.operands import Operandish, Temporaries, check_bias
from webmm.calls.parts import batch_axes, limits, matrix_operand, matrix_shape, parts, problems, result_shape
from webmm.calls.slots import LEAST_MEMORY
from webmm.calls.stream import OVERLAP, Progress, Stream, bias_kind
from webmm.choose.gemm import attainable
from webmm.config import Precision
from webmm.dtypes import DType, dtype_of
from webmm.engine.array import Array
from webmm.engine.device import Device
from webmm.epilogues import OF_WHOLE_SUMS, Terms
from webmm.errors import MemoryLimitError, ProblemError
from webmm.problems.gemm import Gemm

Run = Callable[..., None]  # run(problem, device, *arrays) queues a kernel that computes the problem


@dataclass(frozen=True)
class Settings:
    """The arguments of `matmul()` other than the operands."""

    bias: Operandish | None
    residual: Operandish | None
    epilogue: Terms  # the terms other than bias and residual
    out_dtype: DTypeLike | None
    run: Run
    precision: Precision | None = None  # None for the device's setting
    same: Callable[..., Array] | None = None  # same(a, b, bias=…): the planned call with these arguments, for Arrays


def on_device(device: Device, a: Operandish, b: Operandish, settings: Settings, into: Array | None = None) -> Array:
    """Return the product on the device, in `into` if given, of operands of which at least one is an Array."""
    with Temporaries(device) as temporary:
        left, right = temporary.arrays(a, b)
        shape = result_shape(left, right)
        out = dtype_of(settings.out_dtype) if settings.out_dtype is not None else left.element
        c = (
            device.empty(matrix_shape(left, right), out)
            if into is None
            else _checked_out(into, shape, out, left, right)
        )
        if settings.residual is not None:
            _fill(c, settings.residual, shape)
        bias, beta = temporary.bias(settings.bias, c, left.element), 0.0 if settings.residual is None else 1.0
        epilogue = replace(settings.epilogue, beta=beta, bias=bias_kind(bias))
        multiply_into(temporary, _at_least_2d(left, 0), _at_least_2d(right, 1), c, bias, epilogue, settings)
        return c.reshape(*shape) if into is None else into


def _uploaded(device: Device, a: NDArray[Any], b: NDArray[Any], settings: Settings) -> Array:
    """Upload NumPy arrays and return their product on the device."""
    if settings.same is None or device.profile is not None:
        return on_device(device, a, b, settings)
    with Temporaries(device) as temporary:
        left, right, *bias = temporary.arrays(a, b, *([] if settings.bias is None else [settings.bias]))
        return settings.same(left, right, bias=bias[0] if bias else None)


def _checked_out(out: Array, shape: tuple[int, ...], dtype: DType, a: Array, b: Array) -> Array:
    """Return `out` with the axes that 1-D operands drop; raises ProblemError if its shape or dtype is wrong."""
    if out.shape != shape or out.element != dtype:
        raise ProblemError(
            f"out is {out.element.name} of shape {out.shape}; the result is {dtype.name} of shape {shape}"
        )
    if any(length > 1 and not stride for length, stride in zip(out.shape, out.strides, strict=True)):
        raise ProblemError(
            "out repeats its elements, as a broadcast view does; pass an array that stores each element once"
        )
    column = out if b.ndim > 1 else out[..., None]
    return column if a.ndim > 1 else column[..., None, :]


def on_host(
    device: Device,
    a: NDArray[Any],
    b: NDArray[Any],
    settings: Settings,
    out: NDArray[Any] | None,
    progress: Progress | None,
) -> NDArray[Any]:
    """Multiply NumPy arrays: small ones at once, large ones in tiles, which shrink if the device runs out of memory."""
    dtype, _ = dtype_of(a.dtype), dtype_of(b.dtype)
    shape = result_shape(a, b)
    out_dtype = dtype_of(settings.out_dtype) if settings.out_dtype is not None else dtype
    if out is not None and (out.shape != shape or dtype_of(out.dtype) != out_dtype):
        raise ProblemError(f"out is {out.dtype} of shape {out.shape}; the result is {out_dtype.name} of shape {shape}")
    sizes = [x.size * dtype.itemsize for x in (a, b)] + [math.prod(shape) * out_dtype.itemsize]
    memory = device.memory
    given = [x for x in (a, b, settings.bias, settings.residual) if isinstance(x, np.ndarray)]
    aliased = out is not None and any(np.may_share_memory(out, x) for x in given)  # written only after all is read
    # On a CPU adapter, transfers would not overlap with compute: both use the same cores.
    at_once = memory if aliased or device.info.kind == "cpu" else min(memory, OVERLAP)
    if sum(sizes) <= at_once and max(sizes) <= device.capabilities.limit("max-buffer-size"):
        try:
            with device.submissions.held(), _uploaded(device, a, b, settings) as c:
                result = device.download(c, out)
            if progress:
                progress(1, 1)
            return result
        except MemoryLimitError:
            memory = sum(sizes) // 2
    fresh = out is None
    result = np.empty(shape, out_dtype.numpy) if out is None else out
    while True:
        try:
            _in_tiles(device, a, b, result, settings, memory, progress, fresh)
            return result
        except MemoryLimitError:
            if memory < LEAST_MEMORY:
                raise
            memory //= 2


def _in_tiles(
    device: Device,
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any],
    settings: Settings,
    memory: int,
    progress: Progress | None,
    fresh: bool,
) -> None:
    bias, residual = (None if x is None else np.asarray(x) for x in (settings.bias, settings.residual))
    if residual is not None and residual.shape != c.shape:
        raise ProblemError(f"residual has shape {residual.shape}; it must have the result's shape, {c.shape}")
    if any(np.may_share_memory(c, x) for x in (a, b, bias, residual) if x is not None):
        raise ProblemError("out overlaps an operand, which is read while the result is written; pass a separate array")
    into = c[..., None] if b.ndim == 1 else c
    into = into[..., None, :] if a.ndim == 1 else into
    left, right = (a if a.ndim > 1 else a[None, :]), (b if b.ndim > 1 else b[:, None])
    left, right = (x[(None,) * (into.ndim - x.ndim)] for x in (left, right))
    if bias is not None:
        check_bias(bias, into.shape[-2], into.shape[-1], dtype_of(a.dtype))
    if not into.size:
        return
    if not left.shape[-1]:
        added = 0.0 if bias is None else bias.astype(np.float64)
        start = 0.0 if residual is None else residual.reshape(into.shape)
        into[...] = settings.epilogue.reference(np.zeros(()), bias=added) + start
        return

    def multiply(x: Array, y: Array, z: Array, beta: float, added: Array | None, kind: str, last: bool) -> None:
        epilogue = replace(settings.epilogue, beta=beta, bias=kind, **({} if last else OF_WHOLE_SUMS))
        multiply_into(temporary, x, y, z, added, epilogue, settings)

    with Temporaries(device) as temporary:
        Stream(
            *(device, multiply, left, right, into),
            *(dtype_of(a.dtype), dtype_of(c.dtype)),
            bias=bias,
            residual=None if residual is None else residual.reshape(into.shape),
            needs_whole_sum=settings.epilogue.needs_whole_sum,
            progress=progress,
            fresh=fresh,
        ).run(memory)


def multiply(a: NDArray[Any], b: NDArray[Any], device: Device, run: Run) -> NDArray[Any]:
    """Return `matmul(a, b)` for NumPy arrays, with each dispatch queued by `run(problem, device, *arrays)`."""
    with device.span("matmul", "call"):
        return on_host(device, a, b, Settings(None, None, Terms(), None, run), None, None)


def _at_least_2d(x: Array, new_axis: int) -> Array:
    return x if x.ndim > 1 else x[(None, slice(None)) if new_axis == 0 else (slice(None), None)]


def _fill(c: Array, residual: Operandish, shape: tuple[int, ...]) -> None:
    """Copy `residual` into `c`, which is dense; raises ProblemError if it does not have `shape`."""
    if np.shape(residual) != shape if not isinstance(residual, Array) else residual.shape != shape:
        found = residual.shape if isinstance(residual, Array) else np.shape(residual)
        raise ProblemError(f"residual has shape {found}; it must have the result's shape, {shape}")
    c.device.assign(c, residual)


def multiply_into(
    temporary: Temporaries, a: Array, b: Array, c: Array, bias: Array | None, epilogue: Terms, settings: Settings
) -> None:
    """Queue c ← epilogue(a @ b), with `bias` if the epilogue has one, for arrays of at least two axes."""
    if not c.size:
        return
    if not a.shape[-1]:
        a, b = temporary.no_terms(a, b)
    batch = c.shape[:-2]
    a, b = (temporary.readable(x) for x in (a, b))
    a, b = a.broadcast_to((*batch, *a.shape[-2:])), b.broadcast_to((*batch, *b.shape[-2:]))
    target = matrix_operand(c)
    if target is None:
        raise ProblemError("neither the rows nor the columns of c have unit stride; pass a contiguous array")
    kind = epilogue.bias
    if target.transposed:  # Cᵀ = Bᵀ·Aᵀ is row-major
        a, b, c = b.mT, a.mT, c.mT
        kind = {"": "", "column": "row", "row": "column"}[kind]
    operands = [matrix_operand(x) for x in (a, b, c)]
    assert all(operands), "made readable above"
    left, right, out = (operand for operand in operands if operand)
    template = Gemm(
        *(c.shape[-2], c.shape[-1], a.shape[-1], 1),
        *(a.element, c.element),
        *(left, right, out),
        bias_offset=bias.offset if bias is not None else 0,
        precision=settings.precision or temporary.device.settings.precision,
        **{**vars(epilogue), "bias": kind},
    )
    device, most = temporary.device, limits(temporary.device, a.element)
    for problem in problems(template, batch_axes(a, b, c)):
        for part in parts(attainable(problem, device), most):
            size, sums = part.problem.m * part.problem.n, problem.dtype.sums
            into = temporary.sum(size, sums) if part.to_sum else c
            added = temporary.sum(size, sums) if part.from_sum else bias
            more = [added] if part.problem.bias and added is not None else []
            settings.run(attainable(part.problem, device), device, a, b, into, *more)
