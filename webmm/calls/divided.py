"""Products on several devices of one host: each computes a piece of C, a rectangle (`webmm.cut.devices`)."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from webmm.calls.devices import Devices, chosen, concurrently
from webmm.calls.executor import Progress
from webmm.calls.operands import data_of
from webmm.calls.product import checked
from webmm.choose import tuned
from webmm.choose.limits import ASSUMED_RATE, BANDWIDTH, largest_buffer
from webmm.cut.devices import Types, Worker, divided, proportional, sizes_of
from webmm.cut.pieces import Piece, elements, lengths_of, moved
from webmm.cut.streams import BATCH
from webmm.dtypes import DType, dtype_of
from webmm.engine.aliasing import check_separate, overlap
from webmm.engine.device import Array, Device
from webmm.engine.view import host_array
from webmm.errors import ProblemError

# Total upload bandwidth of a host, bytes/s. Two H200s have the same as one: 34e9 for uploads only, 24e9 in a product.
HOST = 2.4e10
LONG = 0.1  # the rate of a piece is remembered if it took at least this many seconds
_rates: dict[tuple[str, str], float] = {}  # operations/s by adapter name and dtype: equal adapters get equal pieces

One = Callable[..., Any]  # matmul() on one device


def is_panels(x: Any) -> bool:
    """Return whether `x` is a list of Arrays: one panel for each of several devices."""
    return isinstance(x, list) and bool(x) and all(isinstance(each, Array) for each in x)


def panels(one: One, a: Any, b: Any, more: Mapping[str, Any], out_dtype: DTypeLike | None) -> list[Array]:
    """Return `one()` of each pair of panels on the panels' devices; an argument that is not a list is used for all.

    All products are queued without waiting for any. Raises ProblemError if the lists have different lengths, and, with
    `out`, before anything is written, if any panel is refused.
    """
    lists = [x for x in (a, b, *more.values()) if is_panels(x)]
    if len({len(each) for each in lists}) > 1:
        raise ProblemError(f"lists of panels must have equal lengths, not {', '.join(str(len(x)) for x in lists)}")
    given = {"a": a, "b": b, **more}
    each = [{name: x[i] if is_panels(x) else x for name, x in given.items()} for i, _ in enumerate(lists[0])]
    if more["out"] is not None:
        if not is_panels(more["out"]):
            raise ProblemError("out must be a list of Arrays, one array for each panel")
        _check_panels(each, out_dtype)
    return [one(panel.pop("a"), panel.pop("b"), **panel) for panel in each]


def _check_panels(each: list[dict[str, Any]], out_dtype: DTypeLike | None) -> None:
    """Raise ProblemError if a panel is invalid, or if one is written before another that shares its buffer is read."""
    for panel in each:
        bias, residual = (None if panel[name] is None else data_of(panel[name]) for name in ("bias", "residual"))
        checked(panel["out"].device, data_of(panel["a"]), data_of(panel["b"]), bias, residual, panel["out"], out_dtype)
    for i, panel in enumerate(each):
        others = {
            f"{name} of panel {j + 1}": x
            for j, other in enumerate(each)
            for name, x in other.items()
            if i != j and isinstance(x, Array) and x.device is panel["out"].device
        }
        check_separate(f"out of panel {i + 1}", panel["out"], others)


def rate_of(device: Device, dtype: DType) -> float:
    """Return operations/s: from tuned records, else the best rate of a large piece, including its transfers, in this
    process, else an assumed rate for the kind of device.
    """
    known = _rates.get((device.info.name, dtype.name))
    return tuned.rate(device, dtype) or known or ASSUMED_RATE[device.info.kind]


def on_several(
    one: One,
    a: Any,
    b: Any,
    more: Mapping[str, Any],
    out_dtype: DTypeLike | None,
    device: Device | None,
    devices: Devices | None,
    progress: Progress | None,
) -> Any:
    """Multiply panels on their devices, or NumPy arrays on several devices (on one if more would not be faster).

    `one` is `matmul()` with all arguments bound except the operands and `more`: bias, residual and out. The piece of a
    lost device is computed by the others. Raises as `matmul()` does, and DeviceLostError if no device is left.
    """
    if device is not None:
        raise ProblemError(
            "device= and devices= exclude each other, and panels are multiplied on their own devices without device="
        )
    if devices is None:
        return panels(one, a, b, more, out_dtype)
    if any(isinstance(x, Array) or is_panels(x) for x in (a, b, *more.values())):
        raise ProblemError("devices= takes NumPy arrays; pass Arrays as lists, one panel per device, without devices=")
    found, a, b, out = chosen(devices), host_array(a), host_array(b), more["out"]
    bias, residual = (None if more[name] is None else host_array(more[name]) for name in ("bias", "residual"))
    shape, wanted = checked(None, a, b, bias, residual, out, out_dtype)
    aliased = out is not None and any(overlap(out, x) for x in (a, b, bias, residual) if x is not None)
    if len(found) == 1 or aliased or 0 in (*a.shape, *b.shape) or min(a.ndim, b.ndim) < 2:
        return one(a, b, device=found[0], progress=progress, out_dtype=out_dtype, **more)
    c = np.empty(shape, wanted.numpy) if out is None else out
    job = _Job(one, a, b, c, (dtype_of(a.dtype), wanted), bias, residual, progress)
    if a.ndim == b.ndim == 2:
        job.divide(Piece({"m": (0, shape[0]), "n": (0, shape[1]), "k": (0, a.shape[1])}), found)
    else:
        job.divide_batch(Piece({BATCH[0]: (0, shape[0])}), found)
    return c


class _Job:
    """A product that is being computed on several devices."""

    def __init__(
        self,
        one: One,
        a: NDArray[Any],
        b: NDArray[Any],
        c: NDArray[Any],
        dtypes: tuple[DType, DType],
        bias: NDArray[Any] | None,
        residual: NDArray[Any] | None,
        progress: Progress | None,
    ) -> None:
        self._one, self._a, self._b, self._c, self._dtypes = one, a, b, c, dtypes
        self._bias, self._residual, self._progress = bias, residual, progress
        self._done: dict[tuple[int, ...], float] = {}  # finished elements of C, by the first elements of a piece
        self._progress_lock = threading.Lock()

    def divide(self, whole: Piece, devices: list[Device]) -> None:
        """Compute a rectangle of C."""
        types = Types(*(dtype.itemsize for dtype in self._dtypes))
        workers = [worker_of(device, self._dtypes[0]) for device in devices]
        pieces = divided(sizes_of(whole), workers, types, host=HOST).pieces
        concurrently([moved(piece, whole) for piece in pieces], devices, self._rectangle, self.divide)

    def divide_batch(self, whole: Piece, devices: list[Device]) -> None:
        """Compute a piece of C's first axis, along which the products are independent."""
        first, rates = BATCH[0], [rate_of(device, self._dtypes[0]) for device in devices]
        cut = enumerate(proportional(lengths_of(whole)[first], rates))
        pieces = [moved(Piece({first: at}, worker=i), whole) for i, at in cut if at[1] > at[0]]
        concurrently(pieces, devices, self._matrices, self.divide_batch)

    def _rectangle(self, piece: Piece, device: Device) -> None:
        bias, residual = self._bias, self._residual
        if bias is not None:
            bias = bias[elements(piece, "n" if bias.ndim == 1 else "m")]
        began, c = time.perf_counter(), self._c[elements(piece, "mn")]
        self._one(
            *(self._a[elements(piece, "m")], self._b[elements(piece, "kn")]),
            out=c,
            device=device,
            bias=bias,
            residual=residual if residual is None else residual[elements(piece, "mn")],
            progress=self._progress_of(piece, c.size),
        )
        if (took := time.perf_counter() - began) > LONG:
            key = (device.info.name, self._dtypes[0].name)
            _rates[key] = max(_rates.get(key, 0.0), 2 * math.prod(sizes_of(piece)) / took)

    def _matrices(self, piece: Piece, device: Device) -> None:
        at = elements(piece, BATCH[0])

        def some(x: NDArray[Any]) -> NDArray[Any]:
            return x[at] if x.ndim == self._c.ndim and len(x) > 1 else x

        c = self._c[at]
        self._one(
            *(some(self._a), some(self._b)),
            out=c,
            device=device,
            bias=self._bias,
            residual=self._residual if self._residual is None else self._residual[at],
            progress=self._progress_of(piece, c.size),
        )

    def _progress_of(self, piece: Piece, elements: int) -> Progress | None:
        """Return the progress function of a piece, which reports the finished elements of all of C."""
        if self._progress is None:
            return None
        report, key = self._progress, tuple(start for start, _ in piece.at.values())

        def progress(done: int, total: int) -> None:
            with self._progress_lock:
                self._done[key] = elements * done / total
                report(int(sum(self._done.values())), self._c.size)

        return progress


def worker_of(device: Device, dtype: DType) -> Worker:
    """Return the description of a device that the division needs."""
    return Worker(rate_of(device, dtype), device.memory, BANDWIDTH[device.info.kind], largest_buffer(device))
