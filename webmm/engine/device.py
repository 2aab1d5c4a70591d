"""A device: an opened adapter, with its limits, compiled pipelines and arrays."""

from __future__ import annotations

import dataclasses
import logging
import math
import operator
import os
import re
import threading
import time
from collections import OrderedDict
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import wgpu
from numpy.lib.stride_tricks import as_strided
from numpy.typing import ArrayLike, NDArray

from webmm import log
from webmm.config import settings
from webmm.dtypes import DType, dtype_of
from webmm.engine import forking
from webmm.engine.adapters import WANTED_FEATURES, AdapterInfo, capabilities, choose_adapter, describe
from webmm.engine.array import Array, Storage, host_array
from webmm.engine.lifetime import Uses
from webmm.engine.probe import matrix_shapes, open_device, subgroup_size
from webmm.engine.transfer import Staging
from webmm.errors import (
    ConfigError,
    DeviceLostError,
    MemoryLimitError,
    ProblemError,
    ShaderError,
    UnsupportedError,
    WebmmError,
    numbered,
)
from webmm.kernels.base import INDEX_LIMIT, Binding, Kernel, Scratch, Texture
from webmm.problems.base import Problem
from webmm.render import ENTRY_POINT, Shader, params_bytes, render

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webmm.engine.profiling import Profile

MEMORY = {"discrete": 2**31, "integrated": 2**30, "other": 2**30, "cpu": 2**30}  # bytes; see Device.memory
MAX_LAUNCHES = 256  # prepared launches kept per device
MAX_SCRATCH = 8  # and buffers and textures between their dispatches, shared by all launches
STORAGE_USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
NOTHING = nullcontext()

Prepared = tuple["Launch", list[set[Any]]]  # a launch, and the sets of keys of the buffers that it binds


@dataclass(frozen=True)
class Launch:
    """A dispatch made ready: pipeline, bind group and grid, and the dispatches that must come before it."""

    pipeline: Any
    bind_group: Any
    grid: tuple[int, int, int]
    before: tuple[Launch, ...] = ()
    label: str = ""

    @property
    def name(self) -> str:
        """The kernel's name, without its tile sizes."""
        return self.label.partition("(")[0]

    def steps(self) -> Iterator[Launch]:
        """Yield the dispatches one by one, in order."""
        for launch in self.before:
            yield from launch.steps()
        yield dataclasses.replace(self, before=())

    def encode(self, compute_pass: Any) -> None:
        """Record the dispatches into a wgpu compute pass, which runs one after the other where one needs the other."""
        for launch in self.before:
            launch.encode(compute_pass)
        compute_pass.set_pipeline(self.pipeline)
        compute_pass.set_bind_group(0, self.bind_group)
        compute_pass.dispatch_workgroups(*self.grid)


class Device:
    """An adapter opened for computing; safe to share between threads.

    `adapter` is an index, a kind (discrete, integrated, cpu), "gpu", or part of a name; by default that of the
    setting `adapter`, or the most capable one. `limits` asks for lower limits than the adapter's, such as a browser's,
    by their WebGPU names in kebab case. Raises NoAdapterError, ConfigError, or UnsupportedError for a limit that the
    adapter does not reach. Closing it frees its arrays. It stays with its process: in one that is forked from it, every
    use raises DeviceLostError, and opening another device NoAdapterError.
    """

    def __init__(self, adapter: str | int | None = None, *, limits: Mapping[str, int] | None = None) -> None:
        self._prepare_to_open()
        info, found = choose_adapter(adapter)
        wanted = capabilities(info, found, limits or {})
        try:
            features = [f for f in WANTED_FEATURES if f in wanted.features]
            opened, no_matrix = open_device(found, features, wanted.limits)
        except (wgpu.GPUError, RuntimeError) as error:
            raise WebmmError(f"{info} could not be opened: {error}") from error
        self._use(opened, info, owned=True, no_matrix=no_matrix)

    @classmethod
    def from_wgpu(cls, device: Any) -> Device:
        """Return a Device that shares an open `wgpu.GPUDevice`, such as pygfx's, with the limits and features it has.

        Both programs' work goes through one queue, in the order in which they submit it. Closing the Device leaves the
        wgpu device open. Raises ConfigError for anything else than a wgpu device.
        """
        if not isinstance(device, wgpu.GPUDevice):
            raise ConfigError(f"from_wgpu() takes an open wgpu.GPUDevice, not {type(device).__name__}")
        self = cls.__new__(cls)
        self._prepare_to_open()
        self._use(device, describe(-1, device.adapter), owned=False)
        return self

    def _prepare_to_open(self) -> None:
        forking.check()
        self.settings = settings()
        if self.settings.log:
            log.show(self.settings.log)

    def _use(self, device: Any, info: AdapterInfo, owned: bool, no_matrix: str = "") -> None:
        self.wgpu_device, self.info, self._owned = device, info, owned
        self.lost = ""  # why the device is gone, if it is
        self._abandoned = False
        forking.opened(self)
        self.capabilities = capabilities(info, device)
        self._lock = threading.RLock()
        self._uses = Uses()
        self._staging = Staging(device, self._lock, self._uses.one)
        self._pipelines: dict[str, Any] = {}
        self._uniforms: OrderedDict[bytes, Any] = OrderedDict()
        self._launches: OrderedDict[Any, Prepared] = OrderedDict()
        self._scratch: OrderedDict[Texture | Scratch, Any] = OrderedDict()
        self.choices: dict[tuple[Problem, str], Any] = {}  # for a problem, by tune=; clear it where better is known
        self.learned: set[Any] = set()  # buckets of shapes that were tuned, with or without success
        self.verdicts: dict[str, str] | None = None  # of webmm.selftest, when they are first needed
        self.compilations = 0
        self.memory = MEMORY[info.kind]  # bytes of it that a product of NumPy arrays takes; larger ones are streamed
        self.profile: Profile | None = None  # who records what this device does, if anybody does
        self.capabilities = dataclasses.replace(self.capabilities, subgroup_size=subgroup_size(self))
        shapes = matrix_shapes(self)
        self.capabilities = dataclasses.replace(self.capabilities, matrix_shapes=shapes, no_matrix=no_matrix)

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
        """Copy `host` to the start of `target`'s buffer, as its dtype; up to three bytes behind it become zero."""
        if target.size:
            with self._driver_errors("uploading"), self.span("upload", "upload", bytes=target.nbytes):
                self._staging.upload(host, target.dtype.numpy, target.storage)

    def assign(self, target: Array, data: Array | ArrayLike) -> None:
        """Overwrite the contiguous array `target` with `data` of the same size, converted to its dtype.

        Raises ProblemError where the sizes differ, an array lives on another device, or `target` is not contiguous or
        ends within a word of four bytes, which copies overwrite whole.
        """
        if target.device is not self or (isinstance(data, Array) and data.device is not self):
            raise ProblemError("the arrays live on different devices; copy one: device.array(x.numpy())")
        split = target.nbytes % 4 and target.size < target.capacity
        if not target.contiguous or target.offset or split:
            raise ProblemError("only a whole, contiguous array can be assigned to")
        count = data.size if isinstance(data, Array) else np.size(data)
        if count != target.size:
            raise ProblemError(f"{count:,} elements cannot fill an array of shape {target.shape}")
        if isinstance(data, Array) and data.dtype == target.dtype and _can_copy(data, target):
            self._copy(data, target)
            return
        self.upload(data.numpy() if isinstance(data, Array) else np.asarray(data), target)

    def _copy(self, source: Array, target: Array) -> None:
        nbytes = -(-source.nbytes // 4) * 4
        with self._driver_errors("copying"), self._lock, self.span("copy", "copy", bytes=nbytes):
            encoder = self.wgpu_device.create_command_encoder()
            start = source.offset * source.dtype.itemsize
            encoder.copy_buffer_to_buffer(source.storage.buffer, start, target.storage.buffer, 0, nbytes)
            self.wgpu_device.queue.submit([encoder.finish()])

    def empty(self, shape: tuple[int, ...], dtype: DType | str = "float32") -> Array:
        """Return a new array of zeros of `shape`; raises as `array()` does."""
        dtype = dtype_of(dtype)
        shape = _checked_shape(shape)
        nbytes = math.prod(shape) * dtype.itemsize
        return Array(Storage(self, self._buffer(nbytes), nbytes), shape, dtype)

    def wrap(self, buffer: Any, shape: tuple[int, ...], dtype: DType | str = "float32", offset: int = 0) -> Array:
        """Return an array over a `wgpu.GPUBuffer` of this device, row-major from element `offset` on, without a copy.

        The buffer stays its owner's: neither `free()` nor the garbage collector destroys it. It needs the usage
        STORAGE, and COPY_SRC where the array is read back. Raises ProblemError where it has not, where it belongs to
        another device or is too small.
        """
        dtype = dtype_of(dtype)
        if not isinstance(buffer, wgpu.GPUBuffer) or buffer._device is not self.wgpu_device:
            raise ProblemError("wrap() takes a wgpu.GPUBuffer of this very device; share one with Device.from_wgpu()")
        if not buffer.usage & wgpu.BufferUsage.STORAGE:
            raise ProblemError("the buffer was created without the usage STORAGE, which kernels need")
        shape = _checked_shape(shape)
        end = (offset + math.prod(shape)) * dtype.itemsize
        if offset < 0 or end > buffer.size:
            raise ProblemError(
                f"{dtype.name} of shape {shape} from element {offset:,} on reach to byte {end:,}; "
                f"the buffer has {buffer.size:,}"
            )
        return Array(Storage(self, buffer, buffer.size, owned=False), shape, dtype, offset=offset)

    def download(self, array: Array, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the contents of `array` in host memory, in `out` where given; of a view only its span is moved.

        `out` has the array's shape, any strides, and a dtype to convert to; else ProblemError is raised.
        """
        dtype, strides, buffer = array.dtype.numpy, array.strides, array.storage.buffer
        if out is None:
            out = np.empty(array.shape, dtype)
        elif out.shape != array.shape:
            raise ProblemError(f"out has shape {out.shape}, the array {array.shape}")
        if not array.size:
            return out
        if not buffer.usage & wgpu.BufferUsage.COPY_SRC:
            raise ProblemError("the wrapped buffer was created without the usage COPY_SRC, which reading it back needs")
        reach = [(length - 1) * stride for length, stride in zip(array.shape, strides, strict=True)]
        first = array.offset + sum(min(0, r) for r in reach)
        skipped = first * dtype.itemsize % 4 // dtype.itemsize  # copies start at multiples of four bytes
        direct = array.contiguous and not skipped
        span = out if direct else np.empty(sum(abs(r) for r in reach) + 1 + skipped, dtype)
        with self._driver_errors("downloading"), self.span("download", "download", bytes=span.size * dtype.itemsize):
            self._staging.download(array.storage, (first - skipped) * dtype.itemsize, dtype, span)
        if not direct:
            start = span[array.offset - first + skipped :]
            shown = as_strided(start, array.shape, [s * dtype.itemsize for s in strides], writeable=False)
            np.copyto(out, shown, casting="unsafe")
        return out

    def _buffer(self, nbytes: int) -> Any:
        size = max(16, -(-nbytes // 16) * 16)  # whole vec4
        limit = self.capabilities.limit("max-buffer-size")
        if size > limit:
            raise UnsupportedError(
                f"the array needs {size:,} bytes, {self.capabilities.name} allows {limit:,} (max-buffer-size)"
            )
        with self._driver_errors(f"allocating {size:,} bytes"), self._lock:
            return self.wgpu_device.create_buffer(size=size, usage=STORAGE_USAGE)

    # Shaders

    def pipeline(self, shader: Shader) -> Any:
        """Return the compiled compute pipeline of `shader`; each text is compiled once.

        Raises UnsupportedError where the device's limits do not allow it, ShaderError where the engine refuses it.
        """
        with self._driver_errors(f"compiling {shader.label}"), self._lock:
            if shader.wgsl not in self._pipelines:
                self._check_limits(shader)
                start = time.perf_counter()
                self._pipelines[shader.wgsl] = self.compile(shader.wgsl, shader.label, shader.bindings)
                self.compilations += 1
                taken = time.perf_counter() - start
                log.compilation.info("%s: %.1f ms, %d characters", shader.label, 1e3 * taken, len(shader.wgsl))
            return self._pipelines[shader.wgsl]

    def _check_limits(self, shader: Shader) -> None:
        # Engines do not: a pipeline with too much workgroup memory has hung a driver.
        have = self.capabilities.limit("max-compute-workgroup-storage-size")
        if shader.kernel.workgroup_bytes > have:
            raise UnsupportedError(
                f"{shader.label} needs {shader.kernel.workgroup_bytes:,} bytes of workgroup memory, "
                f"{self.capabilities.name} has {have:,}"
            )

    def compile(self, wgsl: str, label: str, bindings: tuple[Binding, ...]) -> Any:
        """Compile WGSL whose bindings, all of group 0, are `bindings`; raises ShaderError with the numbered source."""
        device = self.wgpu_device
        with self._driver_errors(f"compiling {label}"), self._shader_errors(label, wgsl):
            module = device.create_shader_module(label=label, code=wgsl)
            entries: list[Any] = [
                {"binding": b.binding, "visibility": wgpu.ShaderStage.COMPUTE, **_entry(b.type)} for b in bindings
            ]
            layout = device.create_pipeline_layout(
                bind_group_layouts=[device.create_bind_group_layout(entries=entries)]
            )
            return device.create_compute_pipeline(
                label=label, layout=layout, compute={"module": module, "entry_point": ENTRY_POINT}
            )

    @contextmanager
    def _shader_errors(self, label: str, wgsl: str) -> Iterator[None]:
        try:
            yield
        except wgpu.GPUError as error:
            if isinstance(error, wgpu.GPUOutOfMemoryError) or self._check_lost(f"compiling {label}", error):
                raise
            raise ShaderError(f"{label} was refused by the engine: {error}\n{numbered(wgsl)}") from error

    # Dispatch

    def launch(self, kernel: Kernel[Any], problem: Problem, *arrays: Array, debug: Array | None = None) -> Launch:
        """Return `kernel` made ready to compute `problem` with an array for each of `problem.buffers()`, in that order.

        The same call is made once. `problem` says where in the buffers the operands lie: the arrays' own shapes and
        offsets do not matter. With `debug`, its debug shader is, which records there what `webmm.debug` reads. Raises
        UnsupportedError where the kernel cannot run here, ShaderError where the engine refuses it, and ProblemError for
        arrays that are too small or of another dtype or device.
        """
        storages = tuple(array.storage for array in (arrays if debug is None else (*arrays, debug)))
        key = (kernel, problem, *(storage.uid for storage in storages))
        with self._driver_errors(f"preparing {kernel.name}"), self._lock:
            found = self._launches.get(key)
            if found is not None:
                self._launches.move_to_end(key)
                return found[0]
            self._check_arrays(problem, arrays)
            if reason := kernel.check(problem, self.capabilities):
                raise UnsupportedError(f"{kernel.name}: {reason}")
            with self.span(kernel.name, "prepare"):
                launch = self._prepare(kernel, problem, storages)
            self._launches[key] = launch, [storage.launches for storage in storages]
            for storage in storages:
                storage.launches.add(key)
            if len(self._launches) > MAX_LAUNCHES:
                _forget(*self._launches.popitem(last=False))
            return launch

    def _prepare(self, kernel: Kernel[Any], problem: Problem, storages: tuple[Storage, ...]) -> Launch:
        extents, firsts = problem.buffers(), []
        resources: dict[str, Any] = {}
        for extent, storage in zip(extents, storages, strict=False):
            size = storage.buffer.size
            whole = size <= min(self.capabilities.limit("max-storage-buffer-binding-size"), INDEX_LIMIT)
            offset, nbytes = (0, size) if whole else (extent.offset, min(extent.nbytes, size - extent.offset))
            resources[extent.name] = (storage.buffer, offset, nbytes)
            firsts.append(0 if whole else extent.first)
        problem = problem.within(tuple(firsts))
        if len(storages) > len(extents):
            debug = storages[-1].buffer
            resources["debug"] = (debug, 0, debug.size)
        resources |= {left.name: self._left(left) for left in kernel.scratch(problem)}
        *before, launch = (self._dispatch(step, problem, resources) for step in kernel.dispatches)
        return dataclasses.replace(launch, before=tuple(before)) if before else launch

    def _dispatch(self, kernel: Kernel[Any], problem: Problem, resources: dict[str, Any]) -> Launch:
        shader = render(kernel, problem, debug="debug" in resources)
        pipeline = self.pipeline(shader)
        uniform = self._uniform(params_bytes(kernel, problem))
        group = self.bind(pipeline, [uniform, *(resources[binding.name] for binding in shader.bindings[1:])])
        return Launch(pipeline, group, kernel.dispatch(problem), label=shader.label)

    def bind(self, pipeline: Any, resources: list[Any]) -> Any:
        """Return a wgpu bind group of buffers, (buffer, offset, size) in bytes, and texture views, numbered from 0."""
        with self._driver_errors("binding"):
            return self.wgpu_device.create_bind_group(
                layout=pipeline.get_bind_group_layout(0),
                entries=[{"binding": i, "resource": _resource(x)} for i, x in enumerate(resources)],
            )

    def _left(self, left: Texture | Scratch) -> Any:
        """Return a buffer or a view of a texture like this; launches share it: each fills it before it reads it."""
        if left not in self._scratch:
            with self._driver_errors(f"allocating {left}"):
                self._scratch[left] = self._texture(left) if isinstance(left, Texture) else self._buffer(left.nbytes)
            if len(self._scratch) > MAX_SCRATCH:
                self._drop(self._scratch.popitem(last=False)[0])
        self._scratch.move_to_end(left)
        return self._scratch[left]

    def _drop(self, left: Texture | Scratch) -> None:
        """Forget the launches that bind `left`, which would keep its memory."""
        for key in [key for key in self._launches if left in key[0].scratch(key[1])]:
            _forget(key, self._launches.pop(key))

    def _texture(self, texture: Texture) -> Any:
        created = self.wgpu_device.create_texture(
            label=texture.name,
            size=(texture.width, texture.height, texture.layers),
            format="rgba32float",
            usage=wgpu.TextureUsage.STORAGE_BINDING,
        )
        return created.create_view(dimension="2d-array")

    def _check_arrays(self, problem: Problem, arrays: tuple[Array, ...]) -> None:
        extents = problem.buffers()
        if len(arrays) != len(extents):
            names = ", ".join(extent.name for extent in extents)
            raise ProblemError(f"the problem needs {len(extents)} arrays ({names}), {len(arrays)} were given")
        for extent, array in zip(extents, arrays, strict=True):
            name, dtype = extent.name, extent.dtype
            if array.device is not self:
                raise ProblemError(f"{name} lives on another device; copy it here with device.array(x.numpy())")
            if array.dtype != dtype:
                raise ProblemError(f"{name} is {array.dtype.name}, the problem says {dtype.name}")
            if array.capacity < extent.end:
                raise ProblemError(
                    f"{name} has {array.capacity:,} elements, the problem {problem} reaches to {extent.end:,}"
                )
        for extent, array in zip(extents, arrays, strict=True):
            if extent.written and sum(array.storage is other.storage for other in arrays) > 1:
                raise ProblemError(
                    f"{extent.name} shares its buffer with an operand, which it would overwrite; use another array"
                )

    def _uniform(self, data: bytes) -> Any:
        """Return a uniform buffer that holds `data`; equal ones are shared."""
        if data not in self._uniforms:
            usage = wgpu.BufferUsage.UNIFORM
            self._uniforms[data] = self.wgpu_device.create_buffer_with_data(data=data, usage=usage)
            if len(self._uniforms) > MAX_LAUNCHES:
                self._uniforms.popitem(last=False)
        return self._uniforms[data]

    def run(self, kernel: Kernel[Any], problem: Problem, *arrays: Array) -> None:
        """Queue `kernel` to compute `problem` with an array for each of its buffers; raises as `launch()` does."""
        with self._driver_errors(f"running {kernel.name}"), self._lock, self._profiled(kernel, problem):
            launch = self.launch(kernel, problem, *arrays)
            if self.profile is not None:
                self.profile.run(launch, f"{problem.op} {problem}", problem.flops)
                return
            encoder = self.wgpu_device.create_command_encoder()
            compute_pass = encoder.begin_compute_pass()
            launch.encode(compute_pass)
            compute_pass.end()
            self.wgpu_device.queue.submit([encoder.finish()])

    def span(self, name: str, kind: str, **amounts: int) -> AbstractContextManager[None]:
        """Return a context whose time a profile of this device records; without one it does nothing."""
        return NOTHING if self.profile is None else self.profile.span(name, kind, **amounts)

    @contextmanager
    def _profiled(self, kernel: Kernel[Any], problem: Problem) -> Iterator[None]:
        """Tell how long the product took on the host and on the device, if anybody listens."""
        if not log.profile.isEnabledFor(logging.DEBUG):
            yield
            return
        self.synchronize()
        start = time.perf_counter()
        yield
        queued = time.perf_counter() - start
        self.synchronize()
        taken = time.perf_counter() - start
        text = "%s %s by %s: queued in %.3f ms, done after %.3f ms, %.1f G operations/s"
        log.profile.debug(text, problem.op, problem, kernel, 1e3 * queued, 1e3 * taken, problem.flops / taken / 1e9)

    @contextmanager
    def _driver_errors(self, doing: str) -> Iterator[None]:
        """Turn wgpu's errors into webmm's; refuse to begin where the device is gone, and keep it until the end.

        It comes before the lock: a thread that holds the lock must be known to use the device.
        """
        with self._uses.one():
            if self.lost:
                raise DeviceLostError(f"{doing}: {self.lost}")
            try:
                yield
            except wgpu.GPUOutOfMemoryError as error:
                words = f"{doing}: the device is out of memory; free arrays or use smaller ones"
                raise MemoryLimitError(words) from error
            except WebmmError:
                raise
            except Exception as error:  # of any kind, where wgpu-py meets a device that is gone while it maps a buffer
                if self._check_lost(doing, error):
                    raise DeviceLostError(f"{doing}: {self.lost}") from error
                if isinstance(error, wgpu.GPUError):
                    raise WebmmError(f"{doing}: {error}") from error
                raise

    def using(self, doing: str) -> AbstractContextManager[None]:
        """Return a context for work with `wgpu_device` itself: no other thread closes it, and errors are webmm's.

        Raises DeviceLostError where the device is gone; `doing` says in errors what was being done.
        """
        return self._driver_errors(doing)

    def _check_lost(self, doing: str, error: Exception) -> bool:
        """Find out whether the device is gone, and keep what there is to say about it."""
        poller = self.wgpu_device._poller
        gone = poller is None or poller._shutdown  # destroyed, or about to be
        try:
            self.wgpu_device.create_command_encoder().finish()
        except wgpu.GPUError as alive:
            gone = gone or "lost" in str(alive).lower()
        if gone and not self.lost:
            self.wgpu_device._poll()  # brings the driver's last words
            words = _last_words.text or " ".join(str(error).split())
            self.lost = (
                f"{self.info.name} was lost while {doing}, and its arrays with it (the driver's words: {words}); open "
                "another Device and upload them again"
            )
        return bool(self.lost)

    def synchronize(self) -> None:
        """Wait until everything that was queued is done."""
        with self._driver_errors("waiting"):
            self.wgpu_device._poll_wait()

    # Lifetime

    def release(self, buffer: Any, launches: set[Any]) -> None:
        """Destroy a wgpu buffer, unless it is None, and drop the prepared launches that bind it, by their keys.

        The lock keeps it from happening while work that needs the buffer is submitted: that would end the process.
        """
        if self._abandoned:
            return
        with self._uses.one(), self._lock:
            for key in tuple(launches):  # the garbage collector may come here again meanwhile
                if key in self._launches:
                    _forget(key, self._launches.pop(key))
            launches.clear()
            if buffer is not None:
                buffer.destroy()

    def close(self) -> None:
        """Give the device back; its arrays and pipelines are gone.

        What other threads have begun is waited for; what begins later raises DeviceLostError. Within a use, where a
        destructor may call this, nothing is waited for, and the device goes as soon as nobody uses it.
        """
        self.lost = self.lost or f"the device on {self.info.name} was closed, and its arrays are gone with it"
        self._uses.end(self._destroy)

    def abandon(self) -> None:
        """Leave the device and all that is on it to the process that this one was forked from."""
        why = f"the device on {self.info.name} belongs to the process that this one was forked from; {forking.ADVICE}"
        self.lost, self._abandoned, self._uses = why, True, Uses()

    def _destroy(self) -> None:
        if self._abandoned:
            return
        with self._lock:
            self._staging.close()
            self._launches.clear()
            self._scratch.clear()
            self._uniforms.clear()
            self._pipelines.clear()
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


def _forget(key: Any, prepared: Prepared) -> None:
    """Take the key of a launch that is gone from the buffers that it bound, which may outlive many."""
    for keys in prepared[1]:
        keys.discard(key)


def _checked_shape(shape: Any) -> tuple[int, ...]:
    """Return `shape` as a tuple of int; raises ProblemError where it is none."""
    try:
        lengths = tuple(map(operator.index, shape))
    except TypeError as error:
        raise ProblemError(f"a shape is a tuple of whole numbers, not {shape!r}") from error
    if any(length < 0 for length in lengths):
        raise ProblemError(f"shape {shape} has a negative length")
    return lengths


def _resource(x: Any) -> Any:
    """Return wgpu's words for something that is bound."""
    if isinstance(x, wgpu.GPUTextureView):
        return x
    buffer, offset, size = x if isinstance(x, tuple) else (x, 0, x.size)
    return {"buffer": buffer, "offset": offset, "size": size}


def _entry(kind: str) -> dict[str, Any]:
    """Return the bind group layout's words for a binding of this type."""
    if kind.endswith("-only"):
        return {"storage_texture": {"access": kind, "format": "rgba32float", "view_dimension": "2d-array"}}
    return {"buffer": {"type": kind}}


def _can_copy(array: Array, target: Array) -> bool:
    """Tell whether one copy between buffers does: they are two, and the array starts and ends at whole words."""
    whole = array.offset * array.dtype.itemsize % 4 == 0 and array.nbytes % 4 == 0
    return whole and array.contiguous and array.storage is not target.storage


class _LastWords(logging.Filter):
    """Overhears why a driver gave a device up: wgpu-py logs it, and has no other way to tell."""

    text = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the message and let it pass."""
        _, lost, words = record.getMessage().partition("The WGPU device was lost ")
        if lost and not re.search(r"\((\d+|hiding from now)\)$", words):  # said before, it is only counted
            self.text = " ".join(words.split())
        return True


_last_words = _LastWords()
logging.getLogger("wgpu").addFilter(_last_words)

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
