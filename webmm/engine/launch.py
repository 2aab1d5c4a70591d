"""Prepared launches: a kernel's pipeline, bind group and grid on given buffers, cached for repeated calls."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from webmm import log
from webmm.engine.array import Array
from webmm.engine.pool import Block
from webmm.engine.submissions import minimum_seconds
from webmm.engine.wgpu import Dispatch
from webmm.errors import ProblemError, UnsupportedError
from webmm.kernels.base import INDEX_LIMIT, Kernel, Scratch, Texture
from webmm.problems.base import Problem
from webmm.render import params_bytes, render, tags_of

if TYPE_CHECKING:
    from webmm.engine.device import Device

MAX_LAUNCHES = 512  # prepared launches cached per device: results rotate through several buffers
MAX_TOKENS = 4096  # tokens cached per device, one for each pair of a kernel and a problem
MAX_SCRATCH = 8  # scratch buffers and textures per device, shared by all launches

Key = tuple[int, ...]  # the token of a kernel and a problem, and the uids of the buffers


@dataclass(frozen=True)
class Launch:
    """A prepared dispatch: pipeline, bind group and grid, and the dispatches that must run before it.

    `seconds` is a lower bound of the time that they take.
    """

    pipeline: Any
    bind_group: Any
    grid: tuple[int, int, int]
    before: tuple[Launch, ...] = ()
    label: str = ""
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """The kernel's name without its settings."""
        return self.label.partition("(")[0]

    def steps(self) -> Iterator[Launch]:
        """Yield the dispatches one by one, in order."""
        for launch in self.before:
            yield from launch.steps()
        yield dataclasses.replace(self, before=())

    @functools.cached_property
    def dispatches(self) -> tuple[Dispatch, ...]:
        """The dispatches in order, as `Wgpu.submit()` takes them."""
        return tuple((step.pipeline, step.bind_group, step.grid) for step in self.steps())

    def encode(self, compute_pass: Any) -> None:
        """Record the dispatches into a wgpu compute pass, which orders dependent dispatches."""
        for pipeline, bind_group, grid in self.dispatches:
            compute_pass.set_pipeline(pipeline)
            compute_pass.set_bind_group(0, bind_group)
            compute_pass.dispatch_workgroups(*grid)


@dataclass(frozen=True)
class Prepared:
    """A cached launch, with the kernel, problem and buffers that it was prepared from."""

    launch: Launch
    kernel: Kernel[Any]
    problem: Problem
    blocks: tuple[Block, ...]


class Launches:
    """The prepared launches of one device, with the uniform buffers and the scratch memory that they share.

    The least recently used are evicted first. Callers hold the device's lock.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self.kept: OrderedDict[Key, Prepared] = OrderedDict()
        self.uniforms: OrderedDict[bytes, Any] = OrderedDict()
        self.scratch: OrderedDict[Texture | Scratch, Any] = OrderedDict()
        self._tokens: dict[tuple[Kernel[Any], Problem], int] = {}
        self._next = itertools.count()

    def token(self, kernel: Kernel[Any], problem: Problem) -> int:
        """Return a number for the pair: hashing both takes longer than everything else in a repeated call."""
        key = (kernel, problem)
        if (found := self._tokens.get(key)) is None:
            if len(self._tokens) >= MAX_TOKENS:
                self._tokens.clear()  # launches and plans with older tokens stay valid
            found = self._tokens[key] = next(self._next)
        return found

    def get(self, kernel: Kernel[Any], problem: Problem, arrays: tuple[Array, ...], debug: Array | None) -> Launch:
        """Implement `Device.launch()`."""
        blocks = tuple(array.storage.block for array in (arrays if debug is None else (*arrays, debug)))
        token = self.token(kernel, problem)
        key = (token, *(block.uid for block in blocks if block))
        found = self.kept.get(key)
        if found is not None:
            self.kept.move_to_end(key)
            return found.launch
        self._check_arrays(problem, arrays)
        if reason := kernel.check(problem, self._device.capabilities):
            raise UnsupportedError(f"{kernel.name}: {reason}")
        return self.prepare(token, kernel, problem, tuple(block for block in blocks if block))

    def prepare(self, token: int, kernel: Kernel[Any], problem: Problem, blocks: tuple[Block, ...]) -> Launch:
        """Prepare `kernel` to compute `problem` in these buffers, which the caller has checked, and cache it."""
        with self._device.span(kernel.name, "prepare"):
            launch = self._prepare(kernel, problem, blocks)
        key = (token, *(block.uid for block in blocks))
        self.kept[key] = Prepared(launch, kernel, problem, blocks)
        for block in blocks:
            block.launches.add(key)
        if len(self.kept) > MAX_LAUNCHES:
            self._drop(next(iter(self.kept)))
        return launch

    def run(self, kernel: Kernel[Any], problem: Problem, arrays: tuple[Array, ...]) -> None:
        """Implement `Device.run()`."""
        device = self._device
        with _logged(device, kernel, problem):
            launch = self.get(kernel, problem, arrays, None)
            if device.profile is not None:
                device.profile.run(launch, f"{problem.op} {problem}", problem.flops)
                return
            written = [extent.written for extent in problem.buffers()]
            blocks = tuple(block for array in arrays if (block := array.storage.block))  # of all: none was freed
            queued = (launch, blocks, tuple(itertools.compress(blocks, written)))
            if device.submissions.add(queued):
                device.submissions.flush(queued[2])

    def forget(self, keys: set[Key]) -> None:
        """Drop the launches with these keys, and clear the set."""
        for key in tuple(keys):  # a copy: the garbage collector may call this method again meanwhile
            if key in self.kept:
                self._drop(key)
        keys.clear()

    def forget_pipeline(self, pipeline: Any) -> None:
        """Drop the launches that use `pipeline`, so that they do not keep it alive."""
        for key in [k for k, p in self.kept.items() if any(step[0] is pipeline for step in p.launch.dispatches)]:
            self._drop(key)

    def clear(self) -> None:
        """Drop all launches, uniform buffers and scratch memory."""
        self.kept.clear()
        self.scratch.clear()
        self.uniforms.clear()

    def _drop(self, key: Key) -> None:
        """Drop a launch, and remove its key from the buffers that it binds, which outlive it."""
        for block in self.kept.pop(key).blocks:
            block.launches.discard(key)

    def _prepare(self, kernel: Kernel[Any], problem: Problem, blocks: tuple[Block, ...]) -> Launch:
        extents, firsts = problem.buffers(), []
        resources: dict[str, Any] = {}
        most = min(self._device.capabilities.limit("max-storage-buffer-binding-size"), INDEX_LIMIT)
        least = minimum_seconds(self._device.info.kind, problem.flops, problem.bytes)
        for extent, block in zip(extents, blocks, strict=False):
            size = block.buffer.size
            whole = size <= most and not (extent.windowed and extent.first)
            offset, nbytes = (0, size) if whole else (extent.offset, min(extent.nbytes, size - extent.offset))
            resources[extent.name] = (block.buffer, offset, nbytes)
            firsts.append(0 if whole else extent.first)
        problem = problem.within(tuple(firsts))
        if len(blocks) > len(extents):
            debug = blocks[-1].buffer
            resources["debug"] = (debug, 0, debug.size)
        resources |= {scratch.name: self.scratch_for(scratch) for scratch in kernel.scratch(problem)}
        tags = tags_of(kernel, problem, self._device.engine.dialect) if "debug" in resources else None
        *before, launch = (self._dispatch(step, problem, resources, tags) for step in kernel.dispatches)
        return dataclasses.replace(launch, before=tuple(before), seconds=least)

    def _dispatch(
        self, kernel: Kernel[Any], problem: Problem, resources: dict[str, Any], tags: tuple[str, ...] | None
    ) -> Launch:
        shader = render(kernel, problem, self._device.engine.dialect, debug=tags is not None, tags=tags)
        pipeline = self._device.pipeline(shader)
        uniform = self._uniform(params_bytes(kernel, problem))
        group = self._device.bind(pipeline, [uniform, *(resources[binding.name] for binding in shader.bindings[1:])])
        return Launch(pipeline, group, kernel.dispatch(problem), label=shader.label)

    def scratch_for(self, wanted: Texture | Scratch) -> Any:
        """Return a buffer or a texture view of this kind; launches share it, as each writes it before reading it."""
        if wanted not in self.scratch:
            with self._device.guard.using(f"allocating {wanted}"):
                made = self._texture(wanted) if isinstance(wanted, Texture) else self._buffer(wanted.nbytes)
                self.scratch[wanted] = made
            if len(self.scratch) > MAX_SCRATCH:
                evicted, _ = self.scratch.popitem(last=False)
                for key in [key for key, p in self.kept.items() if evicted in p.kernel.scratch(p.problem)]:
                    self._drop(key)  # its bind group would keep the memory alive
        self.scratch.move_to_end(wanted)
        return self.scratch[wanted]

    def _buffer(self, nbytes: int) -> Any:
        size = max(16, -(-nbytes // 16) * 16)
        usage = self._device.engine.buffer_usage
        return self._device.wgpu_device.create_buffer(size=size, usage=usage.STORAGE | usage.COPY_SRC)

    def _texture(self, texture: Texture) -> Any:
        created = self._device.wgpu_device.create_texture(
            label=texture.name,
            size=(texture.width, texture.height, texture.layers),
            format="rgba32float",
            usage=self._device.engine.texture_usage.STORAGE_BINDING,
        )
        return created.create_view(dimension="2d-array")

    def _uniform(self, data: bytes) -> Any:
        """Return a uniform buffer that holds `data`, shared by all launches with equal data."""
        if data not in self.uniforms:
            usage = self._device.engine.buffer_usage.UNIFORM
            self.uniforms[data] = self._device.wgpu_device.create_buffer_with_data(data=data, usage=usage)
            if len(self.uniforms) > MAX_LAUNCHES:
                self.uniforms.popitem(last=False)
        return self.uniforms[data]

    def _check_arrays(self, problem: Problem, arrays: tuple[Array, ...]) -> None:
        extents = problem.buffers()
        if len(arrays) != len(extents):
            names = ", ".join(extent.name for extent in extents)
            raise ProblemError(f"the problem needs {len(extents)} arrays ({names}); {len(arrays)} were given")
        for extent, array in zip(extents, arrays, strict=True):
            name, dtype = extent.name, extent.dtype
            if array.device is not self._device:
                raise ProblemError(f"{name} is on another device; copy it to this one with device.array(x.numpy())")
            if array.element != dtype:
                raise ProblemError(f"{name} is {array.element.name}; the problem expects {dtype.name}")
            if array.capacity < extent.end:
                raise ProblemError(
                    f"{name} has {array.capacity:,} elements; the problem {problem} needs {extent.end:,}"
                )
        for extent, array in zip(extents, arrays, strict=True):
            if extent.written and sum(array.storage is other.storage for other in arrays) > 1:
                raise ProblemError(
                    f"{extent.name} shares its buffer with an operand, which would be overwritten; use another array"
                )


@contextmanager
def _logged(device: Device, kernel: Kernel[Any], problem: Problem) -> Iterator[None]:
    """Log how long a problem takes on the host and on the device, if the topic `profile` is enabled."""
    if not log.profile.isEnabledFor(logging.DEBUG):
        yield
        return
    device.synchronize()
    start = time.perf_counter()
    yield
    queued = time.perf_counter() - start
    device.synchronize()
    elapsed = time.perf_counter() - start
    text = "%s %s by %s: queued in %.3f ms, done after %.3f ms, %.1f G operations/s"
    log.profile.debug(text, problem.op, problem, kernel, 1e3 * queued, 1e3 * elapsed, problem.flops / elapsed / 1e9)
