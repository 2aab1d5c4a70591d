"""Products of Dask arrays: one task per piece of C, or several along k, with a tree of partial sums."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import dask
import dask.array as da
import numpy as np
from numpy.typing import DTypeLike

from webmm.calls.elementwise import map as mapped
from webmm.calls.expression import elementwise
from webmm.calls.gemm import matmul as multiply
from webmm.choose.limits import ASSUMED_RATE, BANDWIDTH
from webmm.cut.devices import Types, Worker, divided, sizes_of
from webmm.cut.streams import Sizes, held_lengths
from webmm.dask.workers import RESOURCE, count
from webmm.dtypes import MATRIX_DTYPES, WIDE, DType, dtype_of
from webmm.engine.device import Array, Device, default_device
from webmm.errors import ProblemError
from webmm.wgsl.epilogues import Terms
from webmm.wgsl.own import Epilogue, name_of

TASKS = 4  # per worker: if a worker is lost, only a part of its work must be recomputed
ROOM = 2**31  # bytes of a worker's memory for a task's pieces of the operands and of C
# Assumed speed of a worker: equal workers get equal pieces at any speed, but small products are not divided.
WORKER = Worker(ASSUMED_RATE["discrete"], bandwidth=BANDWIDTH["discrete"])
_task_lock = threading.Lock()


def matmul(
    x: Any,
    y: Any,
    *,
    bias: Any = None,
    activation: str | None = None,
    residual: Any = None,
    alpha: float = 1.0,
    out_dtype: DTypeLike | None = None,
    tile: tuple[int, int, int] | None = None,
    memory: int | None = None,
) -> Any:
    """Return ``activation(alpha·x @ y + bias) + residual`` of Dask arrays, as a lazy Dask array.

    `x` is (m, k) and `y` (k, n), of the same dtype, any that `webmm.matmul()` accepts, in chunks of any sizes that are
    NumPy arrays or `webmm.Array`s. A task computes a piece of C, which is a chunk of the result: it streams its pieces
    of x and y through the device and accumulates the sum there. If they are few, or long along k, tasks
    compute pieces of k, whose float32 sums are added pairwise. `tile` sets the rows, columns and length of k of a task;
    by default `webmm.cut.devices.divided()` chooses them for the available workers. `memory` is `Device.memory` of the
    workers. `bias`, (n,) or (m, 1), and `residual`, (m, n), are NumPy or Dask arrays; other arguments are as in
    `webmm.matmul()`.

    Raises ProblemError if shapes or dtypes do not match, or if no worker of the cluster has a device.
    """
    x, y = da.asarray(x), da.asarray(y)
    dtype, out = _checked(x, y, activation, out_dtype)
    m, n, k = x.shape[0], y.shape[1], x.shape[1]
    workers = count()
    types = Types(dtype.itemsize, out.itemsize)
    rows, columns, inner = _given((m, n, k), tile) if tile else task_sizes((m, n, k), types, workers or 1)
    x, y = x.rechunk((rows, inner)), y.rechunk((inner, columns))
    more = {"bias": _bias(bias, m, n, rows, columns), "residual": _residual(residual, (m, n), rows, columns)}
    settings: dict[str, Any] = {"alpha": float(alpha), "activation": name_of(activation), "out": out.name}
    finish = [each for name in ("bias", "residual") for each in _indexed(more[name])]
    like = {"dtype": out.numpy, "meta": _meta(x, out)}
    splits = x.numblocks[1]
    with on_devices(workers):
        if splits == 1:
            compute = functools.partial(_product, memory=memory, **settings)
            return da.blockwise(compute, "ij", x, "ik", y, "kj", *finish, concatenate=True, **like)
        sums = {"dtype": dtype.sums.numpy, "meta": _meta(x, dtype.sums)}
        partial = functools.partial(_product, memory=memory, out=dtype.sums.name)
        found = [
            da.blockwise(partial, "ij", x.blocks[:, i], "ik", y.blocks[i], "kj", concatenate=True, **sums)
            for i in range(splits)
        ]
    while len(found) > 1:
        pairs = zip(found[::2], found[1::2], strict=False)
        left = found[len(found) // 2 * 2 :]
        found = [da.blockwise(_add, "ij", p, "ij", q, "ij", **sums) for p, q in pairs] + left
    with on_devices(workers):
        return da.blockwise(functools.partial(_finished, **settings), "ij", found[0], "ij", *finish, **like)


def task_sizes(sizes: Sizes, types: Types, workers: int) -> Sizes:
    """Return the rows, columns and length of k of a task for `workers` workers."""
    found = divided(sizes, [WORKER] * (TASKS * workers if workers > 1 else 1), types, splits=True)
    m, n, k = (max(lengths) for lengths in zip(*map(sizes_of, found.pieces), strict=True))
    return held_lengths((m, n, k), types.itemsize, types.out, ROOM, ROOM)


def _given(sizes: Sizes, tile: Sizes) -> Sizes:
    if len(tile) != 3 or not all(isinstance(length, int) and length > 0 for length in tile):
        raise ProblemError(f"tile must be three whole numbers (rows, columns and length of k), not {tile!r}")
    m, n, k = (max(1, min(length, size)) for length, size in zip(tile, sizes, strict=True))
    return m, n, k


def _checked(x: Any, y: Any, activation: str | None, out_dtype: DTypeLike | None) -> tuple[DType, DType]:
    if x.ndim != 2 or y.ndim != 2:
        raise ProblemError(
            f"x and y must be matrices, not of shapes {x.shape} and {y.shape}; use map_blocks() for batches"
        )
    if isinstance(activation, Epilogue) and not activation.function.plain:
        raise ProblemError(
            "Dask products take the built-in activations, and functions in WGSL; apply an expression to the product by "
            "map_blocks(webmm.map, …)"
        )
    if math.isnan(sum((*x.shape, *y.shape))):
        raise ProblemError("x or y has chunks of unknown sizes: call compute_chunk_sizes() first")
    if x.shape[1] != y.shape[0]:
        raise ProblemError(
            f"x {x.shape} and y {y.shape} do not fit: the inner sizes {x.shape[1]} and {y.shape[0]} differ"
        )
    if x.dtype != y.dtype:
        raise ProblemError(f"x is {x.dtype}, y is {y.dtype}; cast one of them: x.astype('{y.dtype}')")
    if not x.shape[1]:
        raise ProblemError("x has no columns; a product needs at least one")
    dtype = dtype_of(x.dtype)
    if dtype not in (*MATRIX_DTYPES, *WIDE):
        raise ProblemError(f"x is {dtype.name}, which matmul() does not support; cast it: x.astype('float32')")
    return dtype, dtype if out_dtype is None else dtype_of(out_dtype)


def _bias(bias: Any, m: int, n: int, rows: int, columns: int) -> tuple[Any, str] | None:
    """Return the bias in chunks, and the letters of its axes for `blockwise()`."""
    if bias is None:
        return None
    given = da.asarray(bias)
    if given.shape == (n,):
        return given.rechunk((columns,)), "j"
    if given.shape == (m, 1):
        return given.rechunk((rows, 1)), "iz"
    raise ProblemError(f"bias has shape {given.shape}; it must be ({n},), or ({m}, 1) for one per row")


def _residual(residual: Any, shape: tuple[int, int], rows: int, columns: int) -> tuple[Any, str] | None:
    if residual is None:
        return None
    given = da.asarray(residual)
    if given.shape != shape:
        raise ProblemError(f"residual has shape {given.shape}; it must have the result's shape, {shape}")
    return given.rechunk((rows, columns)), "ij"


def _indexed(given: tuple[Any, str] | None) -> tuple[Any, str | None]:
    return (None, None) if given is None else given


def _meta(x: Any, dtype: DType) -> Any:
    """Return an empty array of the same type as the chunks of `x`."""
    if isinstance(x._meta, Array):
        return x._meta.device.empty((0, 0), dtype)
    return np.empty((0, 0), dtype.numpy)


def on_devices(workers: int | None) -> AbstractContextManager[Any]:
    """Return a context whose tasks run on workers with devices, one at a time each; without workers it does nothing."""
    return contextlib.nullcontext() if workers is None else dask.annotate(resources={RESOURCE: 1})


@contextmanager
def own_device(*chunks: Any, memory: int | None = None, device: Device | None = None) -> Iterator[Device]:
    """Return a context in which a task has exclusive use of its chunks' device, or of this process's default device."""
    with _task_lock:
        device = device or next((x.device for x in chunks if isinstance(x, Array)), None) or default_device()
        before, device.memory = device.memory, memory or device.memory
        try:
            yield device
        finally:
            device.memory = before


def _product(
    x: Any,
    y: Any,
    bias: Any = None,
    residual: Any = None,
    *,
    out: str,
    memory: int | None,
    alpha: float = 1.0,
    activation: str = "",
) -> Any:
    more = {"bias": _one(bias), "residual": residual, "alpha": alpha, "activation": activation or None}
    with own_device(x, y, memory=memory) as device:
        return multiply(x, y, out_dtype=out, device=device, **more)


def _one(bias: Any) -> Any:
    """Return a chunk of the bias, which Dask passes in a list if it has an axis that the result lacks."""
    return bias[0] if isinstance(bias, list) else bias


def _add(x: Any, y: Any) -> Any:
    return x + y


def _finished(total: Any, bias: Any = None, residual: Any = None, *, alpha: float, activation: str, out: str) -> Any:
    """Return the result of the epilogue for a complete sum."""
    bias = _one(bias)
    if dtype_of(total.dtype).wide:  # no activations, and the sums are in host memory
        added, residual = (0.0 if x is None else x for x in (bias, residual))
        return Terms(alpha=alpha).reference(total, bias=added) + residual
    with own_device(total) as device:
        terms = {"x": total, **({} if bias is None else {"b": _as(bias, total)})}
        value = elementwise("x * alpha" + " + b" * (bias is not None), alpha=float(alpha), device=device, **terms)
        value = mapped(value, activation, device=device) if activation else value
        if residual is not None:
            value = elementwise("x + r", x=value, r=_as(residual, value), device=device)
        return value if value.dtype == out else value.astype(dtype_of(out).numpy)


def _as(x: Any, other: Any) -> Any:
    return x if x.dtype == other.dtype else x.astype(other.dtype)
