"""Devices and their arrays, which refer to each other: an array knows its device, and a device makes arrays."""

from __future__ import annotations

import dataclasses
import math
import os
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from numpy.typing import ArrayLike, NDArray

from webmm import hooks, log
from webmm.config import Settings, settings
from webmm.dtypes import DType, dtype_of
from webmm.engine import allocate, forking, moves, rates
from webmm.engine.adapters import AdapterInfo, capabilities, choose_engine, describe, loaded
from webmm.engine.core import Core
from webmm.engine.engine import Engine
from webmm.engine.launch import Launch
from webmm.engine.launches import Launches
from webmm.engine.memory import MemoryStats
from webmm.engine.operators import LISTS
from webmm.engine.plans import Plans
from webmm.engine.pool import Block
from webmm.engine.probe import matrix_shapes, with_subgroups
from webmm.engine.values import Values
from webmm.engine.view import checked_shape, imported
from webmm.errors import ConfigError, WebmmError
from webmm.kernels.base import Kernel
from webmm.problems.base import Problem

MEMORY = {"discrete": 2**31, "integrated": 2**30, "other": 2**30, "cpu": 2**30}  # bytes; see Device.memory
DLPACK_CPU = (1, 0)  # kDLCPU and its number


class Array(Values["Device"]):
    """An n-dimensional array on a device, or a view of one: slices and transposes share the buffer without a copy.

    The buffer lives as long as any array that shares it. `free()`, or leaving a `with` block, releases it at once for
    all of them; any later use raises FreedArrayError, and freeing twice has no effect. Strides and offset are in
    elements.
    """

    def __getitem__(self, key: Any) -> Array:
        """Return a view by integers, slices, None and `...`, with NumPy's meaning and NumPy's IndexError.

        If one key is a list of positions, or an Array of them, return a copy of those elements, as `take()` does.
        """
        keys = key if isinstance(key, tuple) else (key,)
        keys = tuple(k.__index__() if isinstance(k, Array) and not k.ndim else k for k in keys)
        return self._taken(keys) if any(isinstance(k, LISTS) for k in keys) else super().__getitem__(keys)

    def numpy(self) -> NDArray[Any]:
        """Return a copy in host memory, of the array's shape and dtype."""
        return self.device.download(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("the array is in device memory, so copy=False is impossible; use copy=None or copy=True")
        return self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)

    async def numpy_async(self) -> NDArray[Any]:
        """Return `numpy()`, awaited in another thread so that the event loop is not blocked."""
        from asyncio import to_thread

        return await to_thread(self.numpy)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a DLPack capsule of a copy in host memory: WebGPU exposes no device pointers."""
        if copy is False or (dl_device or DLPACK_CPU) != DLPACK_CPU:
            raise BufferError("the array is in a WebGPU buffer: DLPack can only export a copy in host memory")
        del stream, max_version  # NumPy's capsule has the version that every consumer reads
        return self.numpy().__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLPACK_CPU

    def __repr__(self) -> str:
        place = "lost" if self.device.lost else f"on {self.device.info.name}"
        state = place if self._storage.alive else "freed"
        return f"<webmm.Array {'x'.join(map(str, self.shape))} {self.element.name} {state}>"


class Device(Core):
    """An open adapter that runs kernels; threads may share it.

    `adapter` is an index, a kind (discrete, integrated, cpu), "gpu", or part of a name. The default is the setting
    `adapter`, or the most capable adapter. `limits` requests lower limits than the adapter's, for example a browser's,
    by their WebGPU names in kebab case. `engine` is "wgpu", "dawn" (if the package wgpudawn is installed) or "auto",
    which selects Dawn for an adapter with matrix units; the default is the setting `engine`. Raises NoAdapterError,
    ConfigError, or UnsupportedError if the adapter does not reach a limit. Closing the device frees its arrays. In a
    forked child process every use of the device raises DeviceLostError, and opening another raises NoAdapterError.
    """

    def __init__(
        self,
        adapter: str | int | None = None,
        *,
        limits: Mapping[str, int] | None = None,
        engine: str | None = None,
    ) -> None:
        current = _settings()
        chosen, info, found = choose_engine(engine or current.engine, adapter)
        wanted = capabilities(info, found, limits or {}, chosen)
        try:
            features = [f for f in chosen.wanted if f in wanted.features]
            opened, no_matrix = chosen.open(found, features, wanted.limits)
        except chosen.refusals as error:
            raise WebmmError(f"{info} could not be opened: {error}") from error
        self._set_up(chosen, opened, info, True, current, no_matrix, limits)

    @classmethod
    def from_wgpu(cls, device: Any) -> Device:
        """Return a Device that shares an open `wgpu.GPUDevice`, such as pygfx's, with its limits and features.

        Both libraries submit to the same queue, in the order in which they call it. Closing the Device leaves the wgpu
        device open. Raises ConfigError if `device` is not a wgpu device.
        """
        engine = next((engine for engine in loaded() if isinstance(device, engine.api.GPUDevice)), None)
        if engine is None:
            raise ConfigError(f"from_wgpu() takes an open wgpu.GPUDevice, not {type(device).__name__}")
        self = cls.__new__(cls)
        self._set_up(engine, device, describe(-1, device.adapter), False, _settings())
        return self

    def _set_up(
        self,
        engine: Engine,
        device: Any,
        info: AdapterInfo,
        owned: bool,
        current: Settings,
        no_matrix: str = "",
        lower: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(engine, device, info, owned, current, self._before_destroy, self._forget_pipeline, lower)
        self.launches = Launches(self)
        self.plans = Plans(self, self.launches)
        self.constants = allocate.Constants(self.array)
        # What `webmm.choose` keeps, by `webmm.engine.generation` and: problem and tune= (kernels), dtype (operations/s)
        self.choices: dict[tuple[Any, ...], Any] = {}  # kernels; see webmm.choose
        self.rates: dict[tuple[int, str], float] = {}
        self.learned: set[Any] = set()  # shapes or buckets of them that were tuned without success
        self.verdicts: dict[str, str] | None = None  # results of webmm.measure.selftest, loaded on first use
        self.memory = MEMORY[info.kind]  # device memory in bytes for a product of NumPy arrays; more is streamed
        self.capabilities = dataclasses.replace(with_subgroups(self), no_matrix=no_matrix)
        probed, shapes = rates.known(self), matrix_shapes(self, self._product)
        self.capabilities = dataclasses.replace(
            self.capabilities,
            matrix_shapes=shapes,
            workgroups=probed.workgroups if probed else 0,
            fragment_rates=probed.fragments if probed else {},
        )
        if current.profile:
            hooks.above.profile_until_exit(self)

    # Arrays

    def array(self, data: ArrayLike, dtype: DType | str | None = None) -> Array:
        """Return a row-major copy of `data` on the device, optionally converted to `dtype`.

        `data` is anything that NumPy can convert to an array, or that exports DLPack from host memory; lists of
        Python's numbers are float32 or int32. Raises ProblemError for an unsupported dtype, and for masked arrays,
        matrices and tables with labels; UnsupportedError for one over the device's limits; MemoryLimitError.
        """
        host = imported(data, wide=dtype is not None)
        target = dtype_of(host.dtype if dtype is None else dtype)
        array = self.empty(host.shape, target)
        self.upload(host, array)
        return array

    def upload(self, host: NDArray[Any], target: Array) -> None:
        """Copy `host` to the contiguous array `target`, converted to its dtype.

        Raises ProblemError if the sizes differ, if `target` is not contiguous, or if it is a view that begins or ends
        within a 4-byte word: copies overwrite whole words.
        """
        moves.upload(self, (host, target))

    def assign(self, target: Array, data: Array | ArrayLike) -> None:
        """Overwrite the contiguous array `target` with `data` of the same size, converted to its dtype.

        Raises ProblemError if the sizes differ, if an array is on another device, or if `target` is not contiguous or
        ends within a 4-byte word: copies overwrite whole words.
        """
        moves.assign(self, target, data)

    def empty(self, shape: tuple[int, ...], dtype: DType | str = "float32") -> Array:
        """Return a new uninitialised array of `shape`, as `numpy.empty()`; raises the same errors as `array()`."""
        shape, element = checked_shape(shape), dtype_of(dtype)
        return Array(allocate.new(self, math.prod(shape) * element.itemsize)[0], shape, element)

    def zeros(self, shape: tuple[int, ...], dtype: DType | str = "float32") -> Array:
        """Return a new array of zeros of `shape`; raises the same errors as `array()`."""
        shape, element = checked_shape(shape), dtype_of(dtype)
        return Array(allocate.zeros(self, math.prod(shape) * element.itemsize), shape, element)

    def constant(self, host: NDArray[Any]) -> Array:
        """Return a cached device copy of the small array `host`; callers share it and must not write to it."""
        return self.constants.get(host)

    def wrap(self, buffer: Any, shape: tuple[int, ...], dtype: DType | str = "float32", offset: int = 0) -> Array:
        """Return an array over a `wgpu.GPUBuffer` of this device, row-major from element `offset` on, without a copy.

        The caller keeps ownership of the buffer: neither `free()` nor the garbage collector destroys it. It needs the
        usage STORAGE, and COPY_SRC if the array is read back. Raises ProblemError if the buffer lacks the usage,
        belongs to another device or is too small.
        """
        shape, element = checked_shape(shape), dtype_of(dtype)
        return Array(allocate.wrapped(self, buffer, shape, element, offset), shape, element, offset=offset)

    def download(self, array: Array, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the contents of `array` in host memory, in `out` if given; only the span of a view is transferred.

        `out` must have the array's shape, or ProblemError is raised; its strides and its dtype, to which the elements
        are converted, are free.
        """
        return moves.download(self, array, out)

    # Dispatch

    def launch(self, kernel: Kernel[Any], problem: Problem, *arrays: Array, debug: Array | None = None) -> Launch:
        """Prepare `kernel` to compute `problem` on `arrays`, one for each of `problem.buffers()`, in that order.

        Launches are cached. `problem` says where in the buffers the operands are: the shapes and offsets of `arrays`
        do not matter. With `debug`, the kernel's debug shader is prepared, which writes the values that `webmm.debug`
        reads to that array. Raises UnsupportedError if the kernel cannot run on this device, ShaderError if the engine
        rejects it, and ProblemError for arrays that are too small, of another dtype or on another device.
        """
        with self.guard.using(f"preparing {kernel.name}"), self.guard.lock:
            return self.launches.get(kernel, problem, arrays, debug)

    def run(self, kernel: Kernel[Any], problem: Problem, *arrays: Array) -> None:
        """Queue `kernel` to compute `problem` with an array for each of its buffers; raises as `launch()` does.

        Calls in quick succession share a submission: see `flush()`.
        """
        with self.guard.using(f"running {kernel.name}"), self.guard.lock:
            self.launches.run(kernel, problem, arrays)
        if recording := self.recordings.current():
            recording.ran(self.launches.token(kernel, problem), kernel, problem, arrays)

    def _product(self, kernel: Kernel[Any], problem: Problem, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        """Return the product of `a` and `b` by `kernel`."""
        with self.array(a) as x, self.array(b) as y, self.empty((len(a), b.shape[1])) as c:
            self.run(kernel, problem, x, y, c)
            return c.numpy()

    # Lifetime

    def _forget_pipeline(self, pipeline: Any) -> None:
        self.launches.forget_pipeline(pipeline)

    def _before_destroy(self, block: Block) -> None:
        """Submit the work that may need a buffer, and drop its launches, before the buffer is destroyed."""
        self.submissions.flush()
        self.launches.forget(block)

    def memory_stats(self) -> MemoryStats:
        """Return the memory and the caches that the device holds now."""
        with self.guard.lock:
            self.pool.collect()
        return MemoryStats(
            array_bytes=self.pool.lent_bytes,
            pool_bytes=self.pool.idle_bytes,
            pool_limit=self.pool.limit,
            launches=len(self.launches.kept),
            pipelines=len(self.pipelines),
            pipeline_bytes=self.pipelines.nbytes,
            pipeline_limit=self.pipelines.limit,
            scratch=len(self.launches.scratch),
        )

    def close(self) -> None:
        """Close the device and free its arrays and pipelines.

        Waits for calls under way in other threads; later calls raise DeviceLostError. When a destructor calls this
        during a call on the same device, it does not wait: the device is destroyed as soon as no call uses it.
        """
        if self.profile is not None:
            self.profile.before_close()
        self.guard.close(self._destroy)

    def _destroy(self) -> None:
        with self.guard.lock:
            self.staging.close()
            self.submissions.close()
            self.plans.clear()
            self.pool.clear()
            self.launches.clear()
            self.pipelines.clear()
            if self._owned:
                self.wgpu_device.destroy()

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<webmm.Device {self.info}>"


def _settings() -> Settings:
    """Return the settings of a device to be opened, after showing the log that they ask for; fails after a fork."""
    forking.check()
    current = settings()
    if current.log or current.log_file:
        log.show(current.log, current.log_file)
    return current


_default: list[Device] = []  # empty or one device
_opening = threading.Lock()


def _unlock() -> None:
    """Replace the lock, which another thread may have held at the time of the fork."""
    global _opening
    _opening = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


def default_device() -> Device:
    """Return the default device: one per process, opened again if it was lost or closed."""
    with _opening:
        if _default and _default[0].lost:
            _default.clear()
        if not _default:
            _default.append(Device())
        return _default[0]
