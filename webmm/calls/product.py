"""How a float matrix product is computed: of arrays on a device, and of NumPy arrays at once or streamed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from webmm import choose
from webmm.arguments.arrays import element_of
from webmm.arguments.products import bias_kind, check_stored_once, matrix_shape, result_shape, shape_with
from webmm.calls.executor import Data, Progress, shrinking
from webmm.calls.operands import Temporaries, operands_of
from webmm.calls.planned import planned
from webmm.calls.streamed import OVERLAP, StreamedProduct
from webmm.choose.dispatches import product_dispatches
from webmm.config import Precision, Tune
from webmm.dtypes import DType, dtype_of
from webmm.engine.aliasing import check_separate, overlap
from webmm.engine.device import Array, Device
from webmm.errors import MemoryLimitError, ProblemError
from webmm.problems.gemm import Gemm
from webmm.wgsl.epilogues import OF_WHOLE_SUMS, Terms
from webmm.wgsl.own import Epilogue, fields_of

Run = Callable[..., None]  # run(problem, device, *arrays) queues a kernel that computes the problem
Dispatch = tuple[Gemm, tuple[Array, ...]]  # a problem and its arrays


@dataclass(frozen=True)
class Arguments:
    """The arguments of `matmul()` other than the operands."""

    bias: Data | None
    residual: Data | None
    epilogue: Terms  # the terms other than bias and residual, without the layouts of a function's operands
    out_dtype: DType | None
    precision: Precision | None = None  # None for the device's setting
    tune: Tune | None = None  # None for the device's setting
    other: Run | None = None  # runs the problems instead of `webmm.choose.run`
    function: Epilogue | str = ""  # the activation, with its operands

    @property
    def operands(self) -> tuple[Data, ...]:
        """The operands of a user's own function."""
        return operands_of(self.function)

    def run(self, problem: Gemm, device: Device, *arrays: Array) -> None:
        """Queue a kernel that computes `problem`."""
        if self.other:
            self.other(problem, device, *arrays)
        else:
            choose.run(problem, device, *arrays, tune=self.tune)


def checked(
    device: Device | None,
    a: Data,
    b: Data,
    bias: Data | None,
    residual: Data | None,
    out: Any,
    out_dtype: DTypeLike | None,
    operands: Sequence[Data] = (),
) -> tuple[tuple[int, ...], DType]:
    """Return the shape and the dtype of a product, after checks of all its arrays; nothing has been written then.

    `operands` are those of the epilogue.
    An `out` on a device shares no buffer with an operand or the bias; the residual is read first, so that it may be
    `out` or any view of it. One in host memory may overlap operands: `on_host()` decides. Raises ProblemError.
    """
    resident = [x for x in (a, b, bias, residual, out, *operands) if isinstance(x, Array)]
    if any(x.device is not device for x in resident):
        raise ProblemError("the operands live on different devices; copy one: device.array(x.numpy())")
    shape = shape_with(a, b, bias, residual, operands)
    if out is None:
        return shape, element_of(a) if out_dtype is None else dtype_of(out_dtype)
    if not isinstance(out, Array if resident else np.ndarray):
        raise ProblemError("out must be an Array if an operand is an Array, else a NumPy array")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ProblemError("out is read-only; pass a writable array")
    found = element_of(out)
    dtype = found if out_dtype is None else dtype_of(out_dtype)
    if out.shape != shape or found != dtype:
        raise ProblemError(f"out is {found.name} of shape {out.shape}; the result is {dtype.name} of shape {shape}")
    check_stored_once("out", out)
    if isinstance(out, Array):
        check_separate("out", out, {"a": a, "b": b, "bias": bias, **named(operands)})
    return shape, dtype


def named(operands: Sequence[Data]) -> Mapping[str, Data]:
    """Return the operands of an epilogue by what messages call them."""
    return {f"array {i + 1} of the epilogue": x for i, x in enumerate(operands)}


def on_device(device: Device, a: Data, b: Data, settings: Arguments, into: Array | None = None) -> Array:
    """Return the product on the device, in `into` if given, of operands that were checked."""
    with Temporaries(device) as temporary:
        left, right = temporary.array(a), temporary.array(b)
        shape = result_shape(left, right)
        out = left.element if settings.out_dtype is None else settings.out_dtype
        c = device.empty(matrix_shape(left, right), out) if into is None else _with_dropped_axes(into, left, right)
        bias, beta = temporary.bias(settings.bias, left.element), 0.0 if settings.residual is None else 1.0
        epilogue = replace(settings.epilogue, beta=beta, bias=bias_kind(bias))
        operands = [_with_dropped_axes(x, left, right) for x in temporary.spread(settings.operands, shape)]
        both = _at_least_2d(left, 0), _at_least_2d(right, 1)
        queued = dispatches(temporary, *both, c, bias, epilogue, settings, operands)
        if settings.residual is not None:
            _fill(c, settings.residual, queued, settings)
        for problem, arrays in queued:
            settings.run(problem, device, *arrays)
        return c.reshape(*shape) if into is None else into


def _uploaded(device: Device, a: NDArray[Any], b: NDArray[Any], settings: Arguments) -> Array:
    """Upload NumPy arrays and return their product on the device."""
    if settings.other or device.profile is not None:
        return on_device(device, a, b, settings)
    with Temporaries(device) as temporary:
        given = [] if settings.bias is None else [settings.bias]
        left, right, *found = temporary.arrays(a, b, *given, *settings.operands)
        s, added, function = settings, found[0] if given else None, settings.function
        if isinstance(function, Epilogue):
            function = function.over(found[len(given) :])
        more = s.residual, s.epilogue.alpha, function, s.out_dtype, s.precision, s.tune
        return _of_arrays(left, right, added, *more)


@planned
def _of_arrays(
    a: Array,
    b: Array,
    bias: Array | None,
    residual: Data | None,
    alpha: float,
    activation: Epilogue | str,
    out_dtype: DType | None,
    precision: Precision | None,
    tune: Tune | None,
) -> Array:
    """Return the product of uploaded operands, which were checked, as Settings say; a repeated call replays this."""
    terms = Terms(alpha=alpha, **fields_of(activation))
    return on_device(a.device, a, b, Arguments(bias, residual, terms, out_dtype, precision, tune, function=activation))


def _with_dropped_axes(out: Array, a: Array, b: Array) -> Array:
    """Return `out` with the axes that 1-D operands drop."""
    column = out if b.ndim > 1 else out[..., None]
    return column if a.ndim > 1 else column[..., None, :]


def on_host(
    device: Device,
    a: NDArray[Any],
    b: NDArray[Any],
    settings: Arguments,
    out: NDArray[Any] | None,
    progress: Progress | None,
) -> NDArray[Any]:
    """Multiply NumPy arrays, which were checked: small ones at once, large ones streamed in pieces.

    An `out` that overlaps an operand is written after all is read, and refused if the product is streamed. The pieces
    shrink if the device runs out of memory.
    """
    dtype, shape = dtype_of(a.dtype), result_shape(a, b)
    out_dtype = dtype if settings.out_dtype is None else settings.out_dtype
    sizes = [x.size * dtype.itemsize for x in (a, b)] + [math.prod(shape) * out_dtype.itemsize]
    memory = device.memory
    given = [x for x in (a, b, settings.bias, settings.residual, *settings.operands) if x is not None]
    aliased = out is not None and any(overlap(out, x) for x in given)
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
    shrinking(memory, lambda memory: _streamed(device, a, b, result, settings, memory, progress, fresh))
    return result


def _streamed(
    device: Device,
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any],
    settings: Arguments,
    memory: int,
    progress: Progress | None,
    fresh: bool,
) -> None:
    bias, residual = (None if x is None else np.asarray(x) for x in (settings.bias, settings.residual))
    operands = [np.asarray(x) for x in settings.operands]
    check_separate("out", c, {"a": a, "b": b, "bias": bias, "residual": residual, **named(operands)})

    def with_axes(x: NDArray[Any]) -> NDArray[Any]:
        at: Any = (*(None,) * (c.ndim - x.ndim), ...)  # with "...", an array without axes stays a view
        x = x[at]
        x = x[..., None] if b.ndim == 1 else x
        return x[..., None, :] if a.ndim == 1 else x

    into, operands = with_axes(c), [with_axes(x) for x in operands]
    left, right = (a if a.ndim > 1 else a[None, :]), (b if b.ndim > 1 else b[:, None])
    left, right = (x[(None,) * (into.ndim - x.ndim)] for x in (left, right))
    if not into.size:
        return
    if not left.shape[-1]:
        added = 0.0 if bias is None else bias.astype(np.float64)
        start = 0.0 if residual is None else residual.reshape(into.shape)
        into[...] = settings.epilogue.reference(np.zeros(into.shape), bias=added, operands=operands) + start
        return

    def multiply(
        x: Array, y: Array, z: Array, beta: float, added: Array | None, kind: str, last: bool, parts: list[NDArray[Any]]
    ) -> None:
        epilogue = replace(settings.epilogue, beta=beta, bias=kind, **({} if last else OF_WHOLE_SUMS))
        with Temporaries(device) as moved:  # the parts of this piece only: together they may exceed the memory
            spread = moved.spread(parts, z.shape) if last else []
            for problem, arrays in dispatches(temporary, x, y, z, added, epilogue, settings, spread):
                settings.run(problem, device, *arrays)

    with Temporaries(device) as temporary:
        StreamedProduct(
            *(device, multiply, left, right, into),
            *(dtype_of(a.dtype), dtype_of(c.dtype)),
            bias=bias,
            residual=None if residual is None else residual.reshape(into.shape),
            operands=operands,
            needs_whole_sum=settings.epilogue.needs_whole_sum,
            progress=progress,
            fresh=fresh,
        ).run(memory)


def multiply(a: NDArray[Any], b: NDArray[Any], device: Device, run: Run) -> NDArray[Any]:
    """Return `matmul(a, b)` for NumPy arrays, with each dispatch queued by `run(problem, device, *arrays)`."""
    with device.span("matmul", "call"):
        return on_host(device, a, b, Arguments(None, None, Terms(), None, other=run), None, None)


def _at_least_2d(x: Array, new_axis: int) -> Array:
    return x if x.ndim > 1 else x[(None, slice(None)) if new_axis == 0 else (slice(None), None)]


def _fill(c: Array, residual: Data, queued: list[Dispatch], settings: Arguments) -> None:
    """Copy `residual` into `c`, unless both are the same view, once all that is `queued` is known to have kernels."""
    for problem, _ in queued:
        choose.choose(problem, c.device, settings.tune)
    if isinstance(residual, Array) and overlap(c, residual):
        layouts = [[(n, s) for n, s in zip(x.shape, x.strides, strict=True) if n != 1] for x in (c, residual)]
        if layouts[0] == layouts[1] and c.offset == residual.offset:
            return
    if not c.contiguous or c.offset or c.size != c.capacity:
        raise ProblemError(
            "out is part of an array; a residual other than out is copied there first, which needs a whole, contiguous "
            "array: pass one, or residual=out"
        )
    c.device.assign(c, residual)


def dispatches(
    temporary: Temporaries,
    a: Array,
    b: Array,
    c: Array,
    bias: Array | None,
    epilogue: Terms,
    settings: Arguments,
    operands: Sequence[Array] = (),
) -> list[Dispatch]:
    """Return the dispatches of c ← epilogue(a @ b), with `bias` if the epilogue has one.

    The arrays have at least two axes; `operands` are those of the epilogue, of the shape of `c`.
    Nothing is written before the first of them runs.
    """
    if not c.size:
        return []
    if not a.shape[-1]:
        a, b = temporary.no_terms(a, b)
    batch = c.shape[:-2]
    a, b = (temporary.readable(x) for x in (a, b))
    a, b = a.broadcast_to((*batch, *a.shape[-2:])), b.broadcast_to((*batch, *b.shape[-2:]))
    precision = settings.precision or temporary.device.settings.precision
    return [
        (each.problem, tuple(temporary.sum(each.size, each.sums) if x is None else x for x in each.arrays))
        for each in product_dispatches((a, b, c), bias, epilogue, precision, operands, temporary.device)
    ]
