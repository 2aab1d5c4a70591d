"""Products on several devices of one host: each computes a rectangle of C, as `webmm.calls.scaling` plans it."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from webmm import log
from webmm.calls.operands import check_bias
from webmm.calls.parts import ASSUMED_RATE, result_shape
from webmm.calls.scaling import Share, Types, Worker, cuts, plan
from webmm.calls.stream import Progress
from webmm.choose import tuned
from webmm.dtypes import DType, dtype_of
from webmm.engine.array import Array, host_array
from webmm.engine.device import Device
from webmm.engine.devices import devices as all_devices
from webmm.errors import DeviceLostError, ProblemError

Devices = Literal["all"] | Sequence[Device]
BANDWIDTH = {"discrete": 2.5e10, "integrated": 2e10, "other": 1e10, "cpu": 5e9}  # bytes/s from NumPy, as measured
# Bytes/s of all devices of a host together: two H200s, like one, are sent 34e9 alone, 24e9 in a product.
HOST = 2.4e10
LONG = 0.1  # seconds that a share takes from which its rate is worth remembering
_rates: dict[tuple[str, str], float] = {}  # operations per second, by adapter's name and dtype: twins get equal shares

One = Callable[..., Any]  # matmul() on one device


def is_panels(x: Any) -> bool:
    """Tell whether `x` is a list of Arrays: a panel for each of several devices."""
    return isinstance(x, list) and bool(x) and all(isinstance(each, Array) for each in x)


def panels(one: One, a: Any, b: Any, **more: Any) -> list[Array]:
    """Return `one()` of each pair of panels, which lie on a device each; what is no list is the same for all.

    All are queued before any is waited for. Raises ProblemError where the lists are not equally long.
    """
    lists = [x for x in (a, b, *more.values()) if is_panels(x)]
    if len({len(each) for each in lists}) > 1:
        raise ProblemError(f"lists of panels must have equal lengths, not {', '.join(str(len(x)) for x in lists)}")

    def nth(x: Any, i: int) -> Any:
        return x[i] if is_panels(x) else x

    return [one(nth(a, i), nth(b, i), **{name: nth(x, i) for name, x in more.items()}) for i, _ in enumerate(lists[0])]


def chosen(devices: Devices) -> list[Device]:
    """Return the devices that are meant, without CPU adapters where there are others; raises ProblemError for none."""
    found = all_devices() if isinstance(devices, str) and devices == "all" else devices
    if isinstance(found, str) or not found or not all(isinstance(device, Device) for device in found):
        raise ProblemError(f'devices must be "all" or a list of Devices, not {devices!r}')
    distinct = list(dict.fromkeys(found))
    return [device for device in distinct if device.info.kind != "cpu"] or distinct


def rate_of(device: Device, dtype: DType) -> float:
    """Return operations per second: as records say, else the most that a large share has shown, moving and all, or what
    such a kind is taken to do.
    """
    key = (device.info.name, dtype.name)
    return _recorded(*key) or _rates.get(key) or ASSUMED_RATE[device.info.kind]


@functools.cache
def _recorded(adapter: str, dtype: str) -> float:
    products = (r for r in (*tuned.load(), *tuned.shipped()) if (r.op, r.adapter, r.dtype) == ("gemm", adapter, dtype))
    return 1e9 * max((r.gflops or 0.0 for r in products), default=0.0)


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
    """Multiply panels where they lie, or NumPy arrays on several devices, on one where more would not be faster.

    `more` has the `bias`, `residual` and `out` of `matmul()`, which `one` is with the rest set. What a lost device
    leaves is done by the others. Raises as `matmul()` does, DeviceLostError where no device is left.
    """
    if device is not None:
        raise ProblemError(
            "device= and devices= exclude each other, and panels are multiplied on their own devices without device="
        )
    if devices is None:
        return panels(one, a, b, **more)
    if any(isinstance(x, Array) or is_panels(x) for x in (a, b, *more.values())):
        raise ProblemError("devices= takes NumPy arrays; pass Arrays as lists, one panel per device, without devices=")
    found, a, b, out = chosen(devices), host_array(a), host_array(b), more["out"]
    bias, residual = (None if more[name] is None else host_array(more[name]) for name in ("bias", "residual"))
    dtype, shape = dtype_of(a.dtype), result_shape(a, b)
    given = [x for x in (a, b, bias, residual) if x is not None]
    aliased = out is not None and any(np.may_share_memory(out, x) for x in given)
    if len(found) == 1 or aliased or 0 in (*a.shape, *b.shape) or min(a.ndim, b.ndim) < 2:
        return one(a, b, device=found[0], progress=progress, out_dtype=out_dtype, **more)
    wanted = dtype_of(out_dtype if out_dtype is not None else dtype if out is None else out.dtype)
    c = np.empty(shape, wanted.numpy) if out is None else out
    if c.shape != shape or c.dtype != wanted.numpy:
        raise ProblemError(f"out is {c.dtype} of shape {c.shape}; the result is {wanted.name} of shape {shape}")
    if bias is not None:
        check_bias(bias, shape[-2], shape[-1], dtype)
    if residual is not None and residual.shape != shape:
        raise ProblemError(f"residual has shape {residual.shape}; it must have the result's shape, {shape}")
    job = _Job(one, a, b, c, (dtype, wanted), bias, residual, progress)
    if a.ndim == b.ndim == 2:
        job.divide(Share(0, slice(0, shape[0]), slice(0, shape[1]), slice(0, a.shape[1])), found)
    else:
        job.divide_batch(found, slice(0, shape[0]))
    return c


class _Job:
    """A product under way on several devices."""

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
        self._done: dict[tuple[int, int], float] = {}  # elements of C, by where a share begins
        self._telling = threading.Lock()

    def divide(self, whole: Share, devices: list[Device]) -> None:
        """Compute a rectangle of C."""
        m, n, k = whole.sizes
        types = Types(*(dtype.itemsize for dtype in self._dtypes))
        workers = [worker_of(device, self._dtypes[0]) for device in devices]
        chosen = plan(m, n, k, workers, types, host=HOST)
        shares = [_within(whole, share) for share in chosen.shares]
        self._together(shares, devices, self._share, self.divide)

    def divide_batch(self, devices: list[Device], batch: slice) -> None:
        """Compute the part `batch` of C's first axis, along which products do not depend on each other."""
        parts = cuts(batch.stop - batch.start, [rate_of(device, self._dtypes[0]) for device in devices])
        shares = [
            Share(i, slice(batch.start + part.start, batch.start + part.stop), slice(0, 1), slice(0, 1))
            for i, part in enumerate(parts)
            if part.stop > part.start
        ]
        self._together(shares, devices, self._matrices, lambda share, left: self.divide_batch(left, share.rows))

    def _together(
        self,
        shares: list[Share],
        devices: list[Device],
        compute: Callable[[Share, Device], None],
        again: Callable[[Share, list[Device]], None],
    ) -> None:
        """Compute each share on its device, all at once, and `again` what lost devices leave."""

        def tried(share: Share) -> Exception | None:
            try:
                compute(share, devices[share.worker])
            except Exception as error:
                return error
            return None

        with ThreadPoolExecutor(len(shares), "webmm-device") as pool:
            others = [pool.submit(tried, share) for share in shares[1:]]
            errors = [tried(shares[0]), *(future.result() for future in others)]
        lost = [share for share, error in zip(shares, errors, strict=True) if isinstance(error, DeviceLostError)]
        left = [device for device in devices if not device.lost]
        for error in errors:
            if error is not None and not (isinstance(error, DeviceLostError) and left):
                raise error
        for share in lost:
            log.choice.warning("%s: its share goes to the others", devices[share.worker].lost)
            again(share, left)

    def _share(self, share: Share, device: Device) -> None:
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
            progress=self._heard(rows.start, columns.start, share.sizes[0] * share.sizes[1]),
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
            progress=self._heard(share.rows.start, 0, c.size),
        )

    def _heard(self, row: int, column: int, elements: int) -> Progress | None:
        """Return what hears of a share's steps and tells of all: the elements of C that are done."""
        if self._progress is None:
            return None
        tell = self._progress

        def heard(done: int, total: int) -> None:
            with self._telling:
                self._done[row, column] = elements * done / total
                tell(int(sum(self._done.values())), self._c.size)

        return heard


def worker_of(device: Device, dtype: DType) -> Worker:
    """Return what the plan needs to know of a device."""
    limit = device.capabilities.limit
    largest = min(limit("max-storage-buffer-binding-size"), limit("max-buffer-size"))
    return Worker(rate_of(device, dtype), device.memory, BANDWIDTH[device.info.kind], largest)


def _within(whole: Share, share: Share) -> Share:
    """Return a share of a rectangle as one of all of C."""

    def moved(by: slice, part: slice) -> slice:
        return slice(by.start + part.start, by.start + part.stop)

    return Share(share.worker, moved(whole.rows, share.rows), moved(whole.columns, share.columns), whole.inner)
