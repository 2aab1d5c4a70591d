"""A device: an opened adapter, with its limits, compiled pipelines and arrays."""

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
NOTHING = nullcontext()


class Device:
    """An adapter opened for computing; safe to share between threads.

    Long because all that a program does with a device begins here, mostly in a line: the modules beside do the work.

    `adapter` is an index, a kind (discrete, integrated, cpu), "gpu", or part of a name; by default that of the
    setting `adapter`, or the most capable one. `limits` asks for lower limits than the adapter's, such as a browser's,
    by their WebGPU names in kebab case. `engine` is wgpu, or dawn where the package wgpudawn is installed, or auto,
    which takes Dawn for an adapter with matrix units; by default the setting `engine`. Raises NoAdapterError,
    ConfigError, or UnsupportedError for a limit that is not reached. Closing it frees its arrays. In a process that is
    forked from its own, every use raises DeviceLostError, and opening another device NoAdapterError.
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
        self._use(opened, info, True, no_matrix, limits)

    @classmethod
    def from_wgpu(cls, device: Any) -> Device:
        """Return a Device that shares an open `wgpu.GPUDevice`, such as pygfx's, with the limits and features it has.

        Both programs' work goes through one queue, in the order in which they submit it. Closing the Device leaves the
        wgpu device open. Raises ConfigError for anything else than a wgpu device.
        """
        engine = next((engine for engine in loaded() if engine.is_device(device)), None)
        if engine is None:
            raise ConfigError(f"from_wgpu() takes an open wgpu.GPUDevice, not {type(device).__name__}")
        self = cls.__new__(cls)
        self._prepare_to_open()
        self.engine = engine
        self._use(device, describe(-1, device.adapter), False)
        return self

    def _prepare_to_open(self) -> None:
        forking.check()
        self.settings = settings()
        if self.settings.log or self.settings.log_file:
            log.show(self.settings.log, self.settings.log_file)

    def _use(
        self, device: Any, info: AdapterInfo, owned: bool, no_matrix: str = "", lower: Mapping[str, int] | None = None
    ) -> None:
        self.wgpu_device, self.info, self._owned = device, info, owned
        self.guard = Guard(self.engine, device, info.name)
        if owned:
            self.guard.shield()
        forking.opened(self)
        self.capabilities = capabilities(info, device, lower, self.engine)  # Dawn grants no less than WebGPU's least
        self.launches = Launches(self)
        self.pipelines = Pipelines(self.guard, info.kind, self.launches.forget_pipeline)
        self.staging = Staging(self.guard)
        self.submissions = Submissions(self.guard, shared=not owned)
        self.pool = Pool(self.guard, self.capabilities, info.kind, self._destroying)
        self.plans = Plans(self)
        self.constants = allocate.Constants(self)
        self.choices: dict[
            tuple[Problem, str], Any
        ] = {}  # by problem and tune=; clear it and `plans` where better is known
        self.learned: set[Any] = set()  # buckets of shapes that were tuned, with or without success
        self.verdicts: dict[str, str] | None = None  # of webmm.selftest, when they are first needed
        self.memory = MEMORY[info.kind]  # bytes of it that a product of NumPy arrays takes; larger ones are streamed
        self.profile: Profile | None = None  # who records what this device does, if anybody does
        self.capabilities = dataclasses.replace(
            self.capabilities, subgroup_size=subgroup_size(self), no_matrix=no_matrix
        )
        probed = rates.known(self)
        self.capabilities = dataclasses.replace(
            self.capabilities, matrix_shapes=matrix_shapes(self), workgroups=probed.workgroups if probed else 0
        )

    @property
    def lost(self) -> str:
        """Why the device is gone; empty where it is not."""
        return self.guard.lost

    # Arrays

    def array(self, data: ArrayLike, dtype: DType | str | None = None) -> Array:
        """Return a device copy of `data`, row-major, optionally converted to `dtype`.

        `data` is anything that NumPy makes an array of, or that exports DLPack from host memory.
        Raises ProblemError for an unsupported dtype, UnsupportedError for an array over the device's limits,
        MemoryLimitError where the device has no room.
        """
        host = host_array(data)
        target = dtype_of(host.dtype if dtype is None else dtype)
        array = self.empty(host.shape, target)
        self.upload(host, array)
        return array

    def upload(self, host: NDArray[Any], target: Array) -> None:
        """Copy `host` to the contiguous array `target`, as its dtype, and to nothing beside it.

        Raises ProblemError where the sizes differ, or `target` is not contiguous, or is a view that begins or ends
        within a word of four bytes, which copies overwrite whole.
        """
        moves.upload(self, host, target)

    def assign(self, target: Array, data: Array | ArrayLike) -> None:
        """Overwrite the contiguous array `target` with `data` of the same size, converted to its dtype.

        Raises ProblemError where the sizes differ, an array lives on another device, or `target` is not contiguous or
        ends within a word of four bytes, which copies overwrite whole.
        """
        moves.assign(self, target, data)

    def empty(self, shape: tuple[int, ...], dtype: DType | str = "float32") -> Array:
        """Return a new array of `shape` that holds anything, as NumPy's `empty()`; raises as `array()` does."""
        return allocate.new(self, checked_shape(shape), dtype_of(dtype))[0]

    def zeros(self, shape: tuple[int, ...], dtype: DType | str = "float32") -> Array:
        """Return a new array of zeros of `shape`; raises as `array()` does."""
        return allocate.zeros(self, checked_shape(shape), dtype_of(dtype))

    def constant(self, host: NDArray[Any]) -> Array:
        """Return `host`, a small array, on the device, kept for the next call that needs it; nobody may write to it."""
        return self.constants.get(host)

    def wrap(self, buffer: Any, shape: tuple[int, ...], dtype: DType | str = "float32", offset: int = 0) -> Array:
        """Return an array over a `wgpu.GPUBuffer` of this device, row-major from element `offset` on, without a copy.

        The buffer stays its owner's: neither `free()` nor the garbage collector destroys it. It needs the usage
        STORAGE, and COPY_SRC where the array is read back. Raises ProblemError where it has not, where it belongs to
        another device or is too small.
        """
        return allocate.wrap(self, buffer, shape, dtype_of(dtype), offset)

    def download(self, array: Array, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the contents of `array` in host memory, in `out` where given; of a view only its span is moved.

        `out` has the array's shape, any strides, and a dtype to convert to; else ProblemError is raised.
        """
        return moves.download(self, array, out)

    # Dispatch

    def pipeline(self, shader: Shader) -> Any:
        """Return the compiled compute pipeline of `shader`, which is compiled when it is not kept.

        Raises UnsupportedError where the device's limits do not allow it, ShaderError where the engine refuses it.
        """
        return self.pipelines.get(shader, self.capabilities)

    def compile(self, wgsl: str, label: str, bindings: tuple[Binding, ...], entry_point: str = ENTRY_POINT) -> Any:
        """Compile WGSL whose bindings, all of group 0, are `bindings`; raises ShaderError with the numbered source."""
        return self.pipelines.compile(wgsl, label, bindings, entry_point)

    def launch(self, kernel: Kernel[Any], problem: Problem, *arrays: Array, debug: Array | None = None) -> Launch:
        """Return `kernel` made ready to compute `problem` with an array for each of `problem.buffers()`, in that order.

        The same call is made once. `problem` says where in the buffers the operands lie: the arrays' own shapes and
        offsets do not matter. With `debug`, its debug shader is, which records there what `webmm.debug` reads. Raises
        UnsupportedError where the kernel cannot run here, ShaderError where the engine refuses it, and ProblemError for
        arrays that are too small or of another dtype or device.
        """
        with self.guard.using(f"preparing {kernel.name}"), self.guard.lock:
            return self.launches.get(kernel, problem, arrays, debug)

    def bind(self, pipeline: Any, resources: list[Any]) -> Any:
        """Return a wgpu bind group of buffers, (buffer, offset, size) in bytes, and texture views, numbered from 0."""
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

        Calls that follow each other closely share a submission: see `flush()`.
        """
        with self.guard.using(f"running {kernel.name}"), self.guard.lock:
            self.launches.run(kernel, problem, arrays)
        if recording := self.plans.current():
            recording.ran(self.launches.token(kernel, problem), kernel, problem, arrays)

    def flush(self) -> None:
        """Submit what was queued and waits for company, which reading and waiting do by themselves; see docs.

        It takes a millisecond at most to be submitted anyway.
        """
        self.submissions.flush()

    def span(self, name: str, kind: str, **amounts: int) -> AbstractContextManager[None]:
        """Return a context whose time a profile of this device records; without one it does nothing."""
        return NOTHING if self.profile is None else self.profile.span(name, kind, **amounts)

    def using(self, doing: str) -> AbstractContextManager[None]:
        """Return a context for work with `wgpu_device` itself: no other thread closes it, and errors are webmm's.

        What was queued before is submitted first. Raises DeviceLostError where the device is gone; `doing` says in
        errors what was being done.
        """
        self.submissions.flush()
        if recording := self.plans.current():
            recording.complete = False
        return self.guard.using(doing)

    def synchronize(self) -> None:
        """Wait until everything that was queued is done."""
        with self.using("waiting"):
            self.engine.wait(self.wgpu_device)

    # Lifetime

    def trim(self) -> None:
        """Destroy the buffers that nobody uses and that are kept for later arrays."""
        with self.guard.uses.one(), self.guard.lock:
            self.pool.trim()

    def _destroying(self, launches: set[Any]) -> None:
        """Prepare for the end of a buffer: work that needs it must have been submitted."""
        self.submissions.flush()
        self.launches.forget(launches)

    def memory_stats(self) -> MemoryStats:
        """Return what the device keeps at the moment."""
        with self.guard.lock:
            self.pool.collect()
        return MemoryStats(
            array_bytes=self.pool.lent_bytes,
            pool_bytes=self.pool.idle_bytes,
            pool_limit=self.pool.most,
            launches=len(self.launches.kept),
            pipelines=len(self.pipelines),
            pipeline_bytes=self.pipelines.nbytes,
            pipeline_limit=self.pipelines.most,
            scratch=len(self.launches.scratch),
        )

    def close(self) -> None:
        """Give the device back; its arrays and pipelines are gone.

        What other threads have begun is waited for; what begins later raises DeviceLostError. Within a use, where a
        destructor may call this, nothing is waited for, and the device goes as soon as nobody uses it.
        """
        self.guard.close(self._destroy)

    def abandon(self) -> None:
        """Leave the device and all that is on it to the process that this one was forked from."""
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


_default: list[Device] = []  # none or one
_opening = threading.Lock()


def _unlock() -> None:
    """Do without the lock, which another thread may have held when this process was forked."""
    global _opening
    _opening = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


def default_device() -> Device:
    """Return the device that is used where none is named: one per process, and a fresh one when that is gone."""
    with _opening:
        if _default and _default[0].lost:
            _default.clear()
        if not _default:
            _default.append(Device())
        return _default[0]
