"""Products on several devices of one host: each computes a piece of C, a rectangle (`webmm.cut.devices`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from webmm.calls.devices import Devices, chosen, concurrently
from webmm.calls.executor import Labelled, Progress, of_product
from webmm.calls.operands import data_of, operands_of
from webmm.calls.product import checked
from webmm.choose import tuned
from webmm.choose.limits import ASSUMED_RATE, BANDWIDTH, largest_buffer
from webmm.cut.devices import Types, Worker, divided, proportional, sizes_of
from webmm.cut.pieces import Piece, lengths_of, moved
from webmm.cut.streams import BATCH
from webmm.dtypes import DType, dtype_of
from webmm.engine.aliasing import check_separate, overlap
from webmm.engine.device import Array, Device
from webmm.engine.view import imported
from webmm.errors import ProblemError
from webmm.wgsl.own import Epilogue

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
    if operands_of(more["activation"]):
        raise ProblemError("an epilogue with arrays is not for panels; multiply each panel with its part of the arrays")
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
    device: Device | str | None,
    devices: Devices | None,
    progress: Progress | None,
) -> Any:
    """Multiply panels on their devices, or NumPy arrays on several devices (on one if more would not be faster).

    `one` is `matmul()` with all arguments bound except the operands and `more`: bias, residual, out and activation.
    The piece of a lost device is computed by the others. Raises as `matmul()` does, and DeviceLostError if
    none is left.
    """
    if device is not None:
        raise ProblemError(
            "device= and devices= exclude each other, and panels are multiplied on their own devices without device="
        )
    if devices is None:
        return panels(one, a, b, more, out_dtype)
    function, operands = more["activation"], operands_of(more["activation"])
    if any(isinstance(x, Array) or is_panels(x) for x in (a, b, *more.values(), *operands)):
        raise ProblemError("devices= takes NumPy arrays; pass Arrays as lists, one panel per device, without devices=")
    found, a, b, out = chosen(devices), imported(a), imported(b), more["out"]
    bias, residual = (None if more[name] is None else imported(more[name]) for name in ("bias", "residual"))
    shape, wanted = checked(None, a, b, bias, residual, out, out_dtype, operands)
    aliased = out is not None and any(overlap(out, x) for x in (a, b, bias, residual, *operands) if x is not None)
    if len(found) == 1 or aliased or 0 in (*a.shape, *b.shape) or min(a.ndim, b.ndim) < 2:
        return one(a, b, device=found[0], progress=progress, out_dtype=out_dtype, **more)
    c = np.empty(shape, wanted.numpy) if out is None else out
    named = {f"y{i}": x[(None,) * (c.ndim - x.ndim)] for i, x in enumerate(operands)}
    given = {"a": a, "b": b, "c": c, "bias": bias, "residual": residual, **named}
    axes = {
        "a": "mk",
        "b": "kn",
        "c": "mn",
        "bias": "m1" if bias is not None and bias.ndim == 2 else "n",
        "residual": "mn",
        **{
            name: "".join("1" if length == 1 else axis for length, axis in zip(x.shape[-2:], "mn", strict=True))
            for name, x in named.items()
        },
    }
    labelled = {name: of_product(x, axes[name], len(shape) - 2) for name, x in given.items() if x is not None}
    job = _Job(one, labelled, Types(a.itemsize, c.itemsize), dtype_of(a.dtype), function, progress)
    matrix = {"m": (0, shape[-2]), "n": (0, shape[-1]), "k": (0, a.shape[-1])}
    job.divide(Piece(matrix if a.ndim == b.ndim == 2 else {BATCH[0]: (0, shape[0])}), found)
    return c


@dataclass
class _Job:
    """A product that is being computed on several devices: a, b, c, and what is given of bias, residual and function.

    The operands of the function are y0, y1, …
    """

    one: One
    labelled: dict[str, Labelled]
    types: Types
    dtype: DType  # of the operands
    function: Epilogue | str | None
    progress: Progress | None
    lock: threading.Lock = field(default_factory=threading.Lock)
    done: dict[tuple[int, ...], float] = field(default_factory=dict)  # elements of C, by the first ones of a piece

    def divide(self, whole: Piece, devices: list[Device]) -> None:
        """Compute a rectangle of C, or a piece of its first axis, along which the products are independent."""
        first = BATCH[0]
        if first in whole.at:
            cut = enumerate(proportional(lengths_of(whole)[first], [rate_of(x, self.dtype) for x in devices]))
            pieces: Iterable[Piece] = [Piece({first: at}, worker=i) for i, at in cut if at[1] > at[0]]
        else:
            workers = [worker_of(device, self.dtype) for device in devices]
            pieces = divided(sizes_of(whole), workers, self.types, host=HOST).pieces
        concurrently([moved(piece, whole) for piece in pieces], devices, self._compute, self.divide)

    def _compute(self, piece: Piece, device: Device) -> None:
        began, data = time.perf_counter(), {name: x.within(piece).data for name, x in self.labelled.items()}
        a, b, c = (data[name] for name in "abc")
        terms: dict[str, Any] = {name: data.get(name) for name in ("bias", "residual")}
        operands, own = [x for name, x in data.items() if name.startswith("y")], self.function
        terms["activation"] = own.over(operands) if isinstance(own, Epilogue) else own
        self.one(a, b, out=c, device=device, progress=self._progress_of(piece, c.size), **terms)
        if (took := time.perf_counter() - began) > LONG:
            key = (device.info.name, self.dtype.name)
            _rates[key] = max(_rates.get(key, 0.0), 2 * c.size * a.shape[-1] / took)

    def _progress_of(self, piece: Piece, elements: int) -> Progress | None:
        """Return the progress function of a piece, which reports the finished elements of all of C."""
        if self.progress is None:
            return None
        report, key = self.progress, tuple(start for start, _ in piece.at.values())

        def progress(done: int, total: int) -> None:
            with self.lock:
                self.done[key] = elements * done / total
                report(int(sum(self.done.values())), self.labelled["c"].data.size)

        return progress


def worker_of(device: Device, dtype: DType) -> Worker:
    """Return the description of a device that the division needs."""
    return Worker(rate_of(device, dtype), device.memory, BANDWIDTH[device.info.kind], largest_buffer(device))
