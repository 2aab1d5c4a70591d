"""A device: an open adapter, with its limits, compiled pipelines and arrays."""

from __future__ import annotations

import dataclasses
import os
import threading
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike, NDArray

from webmm import log
from webmm.config import settings
from webmm.dtypes import DType, dtype_of
from webmm.engine import allocate, forking, moves, rates
from webmm.engine.adapters import AdapterInfo, capabilities, choose_engine, describe, loaded
from webmm.engine.array import Array, checked_shape, host_array
from webmm.engine.guard import Guard
from webmm.engine.launch import Launch, Launches
from webmm.engine.memory import MemoryStats
from webmm.engine.pipelines import Pipelines
from webmm.engine.plans import Plans
from webmm.engine.pool import Pool
from webmm.engine.probe import matrix_shapes, subgroup_size
from webmm.engine.submissions import Submissions
from webmm.engine.transfer import Staging
from webmm.errors import ConfigError, WebmmError
from webmm.kernels.base import Binding, Kernel
from webmm.problems.base import Problem
from webmm.render import ENTRY_POINT, Shader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webmm.engine.profiling import Profile

MEMORY = {"discrete": 2**31, "integrated": 2**30, "other": 2**30, "cpu": 2**30}  # bytes; see Device.memory
NO_SPAN = nullcontext()


class Device:
    """An open adapter that runs kernels; threads may share it.

    `adapter` is an index, a kind (discrete, integrated, cpu), "gpu", or part of a name. The default is the setting
    `adapter`, or the most capable adapter. `limits` requests lower limits than the adapter's, for example a browser's,
    by their WebGPU names in kebab case. `engine` is "wgpu", "dawn" (if the package wgpudawn is installed) or "auto",
    which selects Dawn for an adapter with matrix units; the default is the setting `engine`. Raises NoAdapterError,
    ConfigError, or UnsupportedError if the adapter does not reach a limit. Closing the device frees its arrays. In a
    forked child process every use of the device raises DeviceLostError, and opening another raises NoAdapterError.

    The class is long because every operation on a device has its method here; most of them are one line that calls
    another module of this package.
    """

    def __init__(
        self,
        adapter: str | int | None = None,
        *,
        limits: Mapping[str, int] | None = None,
        engine: str | None = None,
    ) -> None:
        self._prepare_to_open()
        self.engine, info, found = choose_engine(engine or self.settings.engine, adapter)
        wanted = capabilities(info, found, limits or {}, self.engine)
        try:
            features = [f for f in self.engine.wanted if f in wanted.features]
            opened, no_matrix = self.engine.open(found, features, wanted.limits)
        except self.engine.refusals as error:
            raise WebmmError(f"{info} could not be opened: {error}") from error
        self._set_up(opened, info, True, no_matrix, limits)

    @classmethod
    def from_wgpu(cls, device: Any) -> Device:
        """Return a Device that shares an open `wgpu.GPUDevice`, such as pygfx's, with its limits and features.

        Both libraries submit to the same queue, in the order in which they call it. Closing the Device leaves the wgpu
        device open. Raises ConfigError if `device` is not a wgpu device.
        """
        engine = next((engine for engine in loaded() if engine.is_device(device)), None)
        if engine is None:
            raise ConfigError(f"from_wgpu() takes an open wgpu.GPUDevice, not {type(device).__name__}")
        self = cls.__new__(cls)
        self._prepare_to_open()
        self.engine = engine
        self._set_up(device, describe(-1, device.adapter), False)
        return self

    def _prepare_to_open(self) -> None:
        forking.check()
        self.settings = settings()
        if self.settings.log or self.settings.log_file:
            log.show(self.settings.log, self.settings.log_file)

    def _set_up(
        self, device: Any, info: AdapterInfo, owned: bool, no_matrix: str = "", lower: Mapping[str, int] | None = None
    ) -> None:
        self.wgpu_device, self.info, self._owned = device, info, owned
        self.guard = Guard(self.engine, device, info.name)
        if owned:
            self.guard.shield()
        forking.opened(self)
        self.capabilities = capabilities(info, device, lower, self.engine)  # Dawn grants at least WebGPU's defaults
        self.launches = Launches(self)
        self.pipelines = Pipelines(self.guard, info.kind, self.launches.forget_pipeline)
        self.submissions = Submissions(self.guard, shared=not owned)
        self.staging = Staging(self.guard, self.submissions)
        self.pool = Pool(self.guard, self.capabilities, info.kind, self._before_destroy)
        self.plans = Plans(self)
        self.constants = allocate.Constants(self)
        # Chosen kernels by problem and tune=; cleared together with `plans` when a new record changes a choice.
        self.choices: dict[tuple[Problem, str], Any] = {}
        self.learned: set[Any] = set()  # shape buckets that were tuned, with or without success
        self.verdicts: dict[str, str] | None = None  # results of webmm.selftest, loaded on first use
        self.memory = MEMORY[info.kind]  # device memory in bytes for a product of NumPy arrays; more is streamed
        self.profile: Profile | None = None  # the active profile, if any
        self.capabilities = dataclasses.replace(
            self.capabilities, subgroup_size=subgroup_size(self), no_matrix=no_matrix
        )
        probed = rates.known(self)
        self.capabilities = dataclasses.replace(
            self.capabilities, matrix_shapes=matrix_shapes(self), workgroups=probed.workgroups if probed else 0
        )

    @property
    def lost(self) -> str:
        """Why the device was lost or closed; empty while it is usable."""
        return self.guard.lost

    # Arrays

    def array(self, data: ArrayLike, dtype: DType | str | None = None) -> Array:
        """Return a row-major copy of `data` on the device, optionally converted to `dtype`.

        `data` is anything that NumPy can convert to an array, or that exports DLPack from host memory.
        Raises ProblemError for an unsupported dtype, UnsupportedError for an array over the device's limits,
        MemoryLimitError if the device is out of memory.
        """
        host = host_array(data)
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
        return allocate.new(self, checked_shape(shape), dtype_of(dtype))[0]

    def zeros(self, shape: tuple[int, ...], dtype: DType | str = "float32") -> Array:
        """Return a new array of zeros of `shape`; raises the same errors as `array()`."""
        return allocate.zeros(self, checked_shape(shape), dtype_of(dtype))

    def constant(self, host: NDArray[Any]) -> Array:
        """Return a cached device copy of the small array `host`; callers share it and must not write to it."""
        return self.constants.get(host)

    def wrap(self, buffer: Any, shape: tuple[int, ...], dtype: DType | str = "float32", offset: int = 0) -> Array:
        """Return an array over a `wgpu.GPUBuffer` of this device, row-major from element `offset` on, without a copy.

        The caller keeps ownership of the buffer: neither `free()` nor the garbage collector destroys it. It needs the
        usage STORAGE, and COPY_SRC if the array is read back. Raises ProblemError if the buffer lacks the usage,
        belongs to another device or is too small.
        """
        return allocate.wrap(self, buffer, shape, dtype_of(dtype), offset)

    def download(self, array: Array, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the contents of `array` in host memory, in `out` if given; only the span of a view is transferred.

        `out` must have the array's shape, or ProblemError is raised; its strides and its dtype, to which the elements
        are converted, are free.
        """
        return moves.download(self, array, out)

    # Dispatch

    def pipeline(self, shader: Shader) -> Any:
        """Return the compute pipeline of `shader`, from the cache or newly compiled.

        Raises UnsupportedError if it exceeds the device's limits, ShaderError if the engine rejects it.
        """
        return self.pipelines.get(shader, self.capabilities)

    def compile(self, wgsl: str, label: str, bindings: tuple[Binding, ...], entry_point: str = ENTRY_POINT) -> Any:
        """Compile WGSL with `bindings`, all in group 0; raises ShaderError with the numbered source."""
        return self.pipelines.compile(wgsl, label, bindings, entry_point)

    def launch(self, kernel: Kernel[Any], problem: Problem, *arrays: Array, debug: Array | None = None) -> Launch:
        """Prepare `kernel` to compute `problem` on `arrays`, one for each of `problem.buffers()`, in that order.

        Launches are cached. `problem` says where in the buffers the operands are: the shapes and offsets of `arrays`
        do not matter. With `debug`, the kernel's debug shader is prepared, which writes the values that `webmm.debug`
        reads to that array. Raises UnsupportedError if the kernel cannot run on this device, ShaderError if the engine
        rejects it, and ProblemError for arrays that are too small, of another dtype or on another device.
        """
        with self.guard.using(f"preparing {kernel.name}"), self.guard.lock:
            return self.launches.get(kernel, problem, arrays, debug)

    def bind(self, pipeline: Any, resources: list[Any]) -> Any:
        """Return a wgpu bind group, numbered from 0, of buffers, (buffer, offset, size) in bytes, or texture views."""
        with self.guard.using("binding"):
            return self.wgpu_device.create_bind_group(
                layout=pipeline.get_bind_group_layout(0),
                entries=[{"binding": i, "resource": self._resource(x)} for i, x in enumerate(resources)],
            )

    def _resource(self, x: Any) -> Any:
        if self.engine.is_texture_view(x):
            return x
        return dict(zip(("buffer", "offset", "size"), x if isinstance(x, tuple) else (x, 0, x.size), strict=True))

    def run(self, kernel: Kernel[Any], problem: Problem, *arrays: Array) -> None:
        """Queue `kernel` to compute `problem` with an array for each of its buffers; raises as `launch()` does.

        Calls in quick succession share a submission: see `flush()`.
        """
        with self.guard.using(f"running {kernel.name}"), self.guard.lock:
            self.launches.run(kernel, problem, arrays)
        if recording := self.plans.current():
            recording.ran(self.launches.token(kernel, problem), kernel, problem, arrays)

    def flush(self) -> None:
        """Submit the queued dispatches now.

        Reading and waiting do so themselves, and a queued dispatch is submitted after about a millisecond in any case.
        """
        self.submissions.flush()

    def span(self, name: str, kind: str, **amounts: int) -> AbstractContextManager[None]:
        """Return a context whose duration the active profile records; without a profile it does nothing."""
        return NO_SPAN if self.profile is None else self.profile.span(name, kind, **amounts)

    def using(self, doing: str) -> AbstractContextManager[None]:
        """Return a context for direct work with `wgpu_device`: no other thread closes it, and errors become webmm's.

        Queued dispatches are submitted first. `doing` names the activity in error messages. Raises DeviceLostError if
        the device was lost or closed.
        """
        self.submissions.flush()
        self.plans.interrupt()
        return self.guard.using(doing)

    def synchronize(self) -> None:
        """Wait until all queued work has finished."""
        with self.using("waiting"):
            self.engine.wait(self.wgpu_device)

    # Lifetime

    def trim(self) -> None:
        """Destroy the idle buffers in the pool."""
        with self.guard.uses.use(), self.guard.lock:
            self.pool.trim()

    def _before_destroy(self, launches: set[Any]) -> None:
        """Submit the work that may need a buffer, and drop its launches, before the buffer is destroyed."""
        self.submissions.flush()
        self.launches.forget(launches)

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
        self.guard.close(self._destroy)

    def abandon(self) -> None:
        """Mark the device as owned by the parent process; called in a forked child."""
        self.guard.abandon()

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
