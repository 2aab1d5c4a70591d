"""How a float matrix product is computed: of arrays on a device, and of NumPy arrays at once or streamed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from webmm import choose
from webmm.arguments.arrays import element_of
from webmm.arguments.products import bias_kind, check_stored_once, result_shape, shape_with
from webmm.calls.executor import Data, Progress, shrinking
from webmm.calls.operands import Run, Temporaries, operands_of
from webmm.calls.planned import planned
from webmm.calls.sides import dense, described, forward, no_terms, spread
from webmm.calls.streamed import OVERLAP, StreamedProduct
from webmm.calls.views import as_matrices, readable
from webmm.choose.dispatches import product_dispatches
from webmm.config import Precision, Tune
from webmm.dtypes import DType, dtype_of
from webmm.engine.aliasing import check_separate, overlap
from webmm.engine.device import Array, Device
from webmm.errors import MemoryLimitError, ProblemError
from webmm.problems.gemm import Gemm
from webmm.wgsl.epilogues import OF_WHOLE_SUMS, Terms
from webmm.wgsl.own import Epilogue, fields_of

Dispatch = tuple[Gemm, list[Array]]  # a problem and its arrays


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

    def precision_on(self, device: Device) -> Precision:
        """Return the precision, by default the device's setting."""
        return self.precision or device.settings.precision


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
    bias, shape = settings.bias, result_shape(a, b)
    out = element_of(a) if settings.out_dtype is None else settings.out_dtype
    whole = device.empty(shape, out) if into is None else into
    left, right, c, residual, *operands = in_matrices(a, b, (whole, settings.residual, *settings.operands), len(shape))
    terms = replace(settings.epilogue, beta=0.0 if residual is None else 1.0, bias=bias_kind(bias))
    with Temporaries(device, settings.tune, settings.other) as call:
        multiplied(call, left, right, c, bias, residual, terms, settings.precision_on(device), operands)
    return whole


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
    left, right, into, residual, *operands = in_matrices(a, b, (c, residual, *operands), c.ndim)
    left, right = (x[(None,) * (into.ndim - x.ndim)] for x in (left, right))
    if not into.size:
        return
    if not left.shape[-1]:
        added = 0.0 if bias is None else bias.astype(np.float64)
        start = 0.0 if residual is None else residual
        into[...] = settings.epilogue.reference(np.zeros(into.shape), bias=added, operands=operands) + start
        return

    def multiply(
        x: Array, y: Array, z: Array, beta: float, added: Array | None, kind: str, last: bool, parts: list[NDArray[Any]]
    ) -> None:
        epilogue = replace(settings.epilogue, beta=beta, bias=kind, **({} if last else OF_WHOLE_SUMS))
        with Temporaries(device) as moved:  # the parts of this piece only: together they may exceed the memory
            over = [forward(moved, part).broadcast_to(z.shape) for part in parts] if last else []
            for problem, arrays in dispatches(call, x, y, z, added, epilogue, precision, over):
                call.run(problem, *arrays)

    precision = settings.precision_on(device)
    with Temporaries(device, settings.tune, settings.other) as call:
        StreamedProduct(
            *(device, multiply, left, right, into),
            *(dtype_of(a.dtype), dtype_of(c.dtype)),
            bias=bias,
            residual=residual,
            operands=operands,
            needs_whole_sum=settings.epilogue.needs_whole_sum,
            progress=progress,
            fresh=fresh,
        ).run(memory)


def multiply(a: NDArray[Any], b: NDArray[Any], device: Device, run: Run) -> NDArray[Any]:
    """Return `matmul(a, b)` for NumPy arrays, with each dispatch queued by `run(problem, device, *arrays)`."""
    with device.span("matmul", "call"):
        return on_host(device, a, b, Arguments(None, None, Terms(), None, other=run), None, None)


def fill(call: Temporaries, c: Array, residual: Data, queued: Sequence[Dispatch]) -> None:
    """Copy `residual` into `c`, unless both are the same view, once all that is `queued` is known to have kernels."""
    for problem, _ in queued:
        choose.choose(problem, c.device, call.tune)
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


# The steps, in both languages


def in_matrices(a: Data, b: Data, others: Sequence[Data | None], ndim: int) -> list[Any]:
    """Return `a`, `b` and `others`, which have or broadcast to the shape of a @ b, with the axes that vectors drop."""
    rows, columns = a.ndim == 1, b.ndim == 1
    left = as_matrices(a, 1, True, False) if rows else a
    right = as_matrices(b, 1, False, True) if columns else b
    return [left, right, *(None if x is None else as_matrices(x, ndim, rows, columns) for x in others)]


def multiplied(
    call: Temporaries,
    a: Data,
    b: Data,
    c: Array,
    bias: Data | None,
    residual: Data | None,
    terms: Terms,
    precision: str,
    operands: Sequence[Data] = (),
) -> None:
    """Set `c` to activation(alpha·a @ b + bias) + beta·c, where c is the `residual` if there is one, as `terms` say.

    All arrays were checked, and have at least two axes; `operands` are those of the activation.
    """
    if not c.size:
        return
    added = None if bias is None else call.array(dense(call, bias), element_of(a))
    over = [spread(call, forward(call, x), c.shape) for x in operands]
    queued = dispatches(call, a, b, c, added, terms, precision, over)
    if residual is not None:
        fill(call, c, residual, queued)
    for problem, arrays in queued:
        call.run(problem, *arrays)


def dispatches(
    call: Temporaries,
    a: Data,
    b: Data,
    c: Array,
    bias: Array | None,
    terms: Terms,
    precision: str,
    operands: Sequence[Data],
) -> list[Dispatch]:
    """Return the dispatches of c ← terms(a @ b), with `bias` if there is one, and `operands` of the shape of `c`.

    Nothing is written before the first of them runs.
    """
    if not a.shape[-1]:
        a, b = no_terms(a, b)
    batch, arrays = c.shape[:-2], [call.array(readable(call, x)) for x in (a, b)]
    left, right = (spread(call, x, (*batch, *x.shape[-2:])) for x in arrays)
    found = []
    for each in product_dispatches((left, right, c), bias, terms, precision, operands, described(call)):
        found.append((each.problem, [call.sum(each.size, each.sums) if x is None else x for x in each.arrays]))
    return found
