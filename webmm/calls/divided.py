"""Products on several devices of one host: each computes a rectangle of C, as planned by `webmm.calls.scaling`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from webmm import log
from webmm.calls.operands import data_of
from webmm.calls.parts import ASSUMED_RATE
from webmm.calls.product import checked
from webmm.calls.scaling import Share, Types, Worker, cuts, plan
from webmm.calls.stream import Progress
from webmm.choose import tuned
from webmm.dtypes import DType, dtype_of
from webmm.engine.aliasing import check_separate, overlap
from webmm.engine.device import Array, Device
from webmm.engine.devices import devices as all_devices
from webmm.engine.view import host_array
from webmm.errors import DeviceLostError, ProblemError

Devices = Literal["all"] | Sequence[Device]
BANDWIDTH = {"discrete": 2.5e10, "integrated": 2e10, "other": 1e10, "cpu": 5e9}  # measured uploads from NumPy, bytes/s
# Total upload bandwidth of a host, bytes/s. Two H200s have the same as one: 34e9 for uploads only, 24e9 in a product.
HOST = 2.4e10
LONG = 0.1  # the rate of a share is remembered if it took at least this many seconds
_rates: dict[tuple[str, str], float] = {}  # operations/s by adapter name and dtype: equal adapters get equal shares

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


def chosen(devices: Devices) -> list[Device]:
    """Return the devices to use, without CPU adapters if there are others; raises ProblemError if there are none."""
    found = all_devices() if isinstance(devices, str) and devices == "all" else devices
    if isinstance(found, str) or not found or not all(isinstance(device, Device) for device in found):
        raise ProblemError(f'devices must be "all" or a list of Devices, not {devices!r}')
    distinct = list(dict.fromkeys(found))
    return [device for device in distinct if device.info.kind != "cpu"] or distinct


def rate_of(device: Device, dtype: DType) -> float:
    """Return operations/s: from tuned records, else the best rate of a large share, including its transfers, in this
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

    `one` is `matmul()` with all arguments bound except the operands and `more`: bias, residual and out. The share of a
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
        job.divide(Share(0, slice(0, shape[0]), slice(0, shape[1]), slice(0, a.shape[1])), found)
    else:
        job.divide_batch(found, slice(0, shape[0]))
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
        self._done: dict[tuple[int, int], float] = {}  # finished elements of C, by the first row and column of a share
        self._progress_lock = threading.Lock()

    def divide(self, whole: Share, devices: list[Device]) -> None:
        """Compute a rectangle of C."""
        m, n, k = whole.sizes
        types = Types(*(dtype.itemsize for dtype in self._dtypes))
        workers = [worker_of(device, self._dtypes[0]) for device in devices]
        chosen = plan(m, n, k, workers, types, host=HOST)
        shares = [_within(whole, share) for share in chosen.shares]
        self._run(shares, devices, self._rectangle, self.divide)

    def divide_batch(self, devices: list[Device], batch: slice) -> None:
        """Compute the part `batch` of C's first axis, along which the products are independent."""
        parts = cuts(batch.stop - batch.start, [rate_of(device, self._dtypes[0]) for device in devices])
        shares = [
            Share(i, slice(batch.start + part.start, batch.start + part.stop), slice(0, 1), slice(0, 1))
            for i, part in enumerate(parts)
            if part.stop > part.start
        ]
        self._run(shares, devices, self._matrices, lambda share, left: self.divide_batch(left, share.rows))

    def _run(
        self,
        shares: list[Share],
        devices: list[Device],
        compute: Callable[[Share, Device], None],
        again: Callable[[Share, list[Device]], None],
    ) -> None:
        """Compute all shares concurrently, each on its device; call `again` for the shares of lost devices."""

        def attempt(share: Share) -> Exception | None:
            try:
                compute(share, devices[share.worker])
            except Exception as error:
                return error
            return None

        with ThreadPoolExecutor(len(shares), "webmm-device") as pool:
            others = [pool.submit(attempt, share) for share in shares[1:]]
            errors = [attempt(shares[0]), *(future.result() for future in others)]
        lost = [share for share, error in zip(shares, errors, strict=True) if isinstance(error, DeviceLostError)]
        left = [device for device in devices if not device.lost]
        for error in errors:
            if error is not None and not (isinstance(error, DeviceLostError) and left):
                raise error
        for share in lost:
            log.choice.warning("%s: its share is computed by the other devices", devices[share.worker].lost)
            again(share, left)

    def _rectangle(self, share: Share, device: Device) -> None:
        rows, columns = share.rows, share.columns
        bias, residual = self._bias, self._residual
        if bias is not None:
            bias = bias[columns] if bias.ndim == 1 else bias[rows]
        residual = residual if residual is None else residual[rows, columns]
        began = time.perf_counter()
        self._one(
            *(self._a[rows], self._b[:, columns]),
            out=self._c[rows, columns],
            device=device,
            bias=bias,
            residual=residual,
            progress=self._share_progress(rows.start, columns.start, share.sizes[0] * share.sizes[1]),
        )
        if (took := time.perf_counter() - began) > LONG:
            key = (device.info.name, self._dtypes[0].name)
            _rates[key] = max(_rates.get(key, 0.0), share.flops / took)

    def _matrices(self, share: Share, device: Device) -> None:
        def some(x: NDArray[Any]) -> NDArray[Any]:
            return x[share.rows] if x.ndim == self._c.ndim and len(x) > 1 else x

        c = self._c[share.rows]
        self._one(
            *(some(self._a), some(self._b)),
            out=c,
            device=device,
            bias=self._bias,
            residual=self._residual if self._residual is None else self._residual[share.rows],
            progress=self._share_progress(share.rows.start, 0, c.size),
        )

    def _share_progress(self, row: int, column: int, elements: int) -> Progress | None:
        """Return the progress function of a share, which reports the finished elements of all of C."""
        if self._progress is None:
            return None
        report = self._progress

        def progress(done: int, total: int) -> None:
            with self._progress_lock:
                self._done[row, column] = elements * done / total
                report(int(sum(self._done.values())), self._c.size)

        return progress


def worker_of(device: Device, dtype: DType) -> Worker:
    """Return the description of a device that the plan needs."""
    limit = device.capabilities.limit
    largest = min(limit("max-storage-buffer-binding-size"), limit("max-buffer-size"))
    return Worker(rate_of(device, dtype), device.memory, BANDWIDTH[device.info.kind], largest)


def _within(whole: Share, share: Share) -> Share:
    """Return a share whose rows and columns count from the rectangle `whole` as one that counts from C."""

    def moved(by: slice, part: slice) -> slice:
        return slice(by.start + part.start, by.start + part.stop)

    return Share(share.worker, moved(whole.rows, share.rows), moved(whole.columns, share.columns), whole.inner)
