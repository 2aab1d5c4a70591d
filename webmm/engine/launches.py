"""The prepared launches of a device, cached for repeated calls."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from webmm import hooks, log
from webmm.engine.aliasing import check_arrays
from webmm.engine.bindings import Bindings, Uniform
from webmm.engine.core import Core
from webmm.engine.launch import Launch
from webmm.engine.pool import TURNS, Block
from webmm.engine.submissions import minimum_seconds
from webmm.engine.view import AnyView
from webmm.errors import UnsupportedError
from webmm.kernels.base import INDEX_LIMIT, Kernel, Scratch, Texture
from webmm.kernels.subgroups import assured
from webmm.problems.base import Extent, Problem
from webmm.wgsl.render import params_bytes, tags_of

MAX_LAUNCHES = 512  # prepared launches cached per device, unless a plan has more; also what they are made of
MOST_LAUNCHES = 8192  # in any case
ROTATING = 2 * TURNS  # buffers of a size through which arguments and results rotate: idle ones, and those in use
MAX_TOKENS = 4096  # tokens cached per device, one for each pair of a kernel and a problem
MAX_SCRATCH = 8  # scratch buffers and textures per device, shared by all launches

LaunchKey = tuple[int, ...]  # the token of a kernel and a problem, and the uids of the buffers


@dataclass(frozen=True)
class Prepared:
    """A cached launch, with the kernel, problem and buffers that it was prepared from."""

    launch: Launch
    kernel: Kernel[Any]
    problem: Problem
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Unbound:
    """A dispatch that is ready but for its buffers; `bindings` are their names in order, but for the uniform's."""

    pipeline: Any
    uniform: Uniform
    bindings: tuple[str, ...]
    grid: tuple[int, int, int]
    label: str


@dataclass(frozen=True)
class Common:
    """What the launches of a kernel and a problem have in common: everything but the buffers and the bind groups.

    `steps` are the dispatches by the first elements that the buffers' bindings cover, nearly always zeros.
    """

    extents: tuple[Extent, ...]
    scratch: tuple[Texture | Scratch, ...]
    seconds: float
    steps: dict[tuple[int, ...], tuple[Unbound, ...]] = dataclasses.field(default_factory=dict)


class Launches:
    """The prepared launches of one device, with the uniform buffers and the scratch memory that they share.

    The least recently used are evicted first. Callers hold the device's lock.
    """

    def __init__(self, device: Core) -> None:
        self._device = device
        self.kept: OrderedDict[LaunchKey, Prepared] = OrderedDict()
        self.bindings = Bindings(device)
        self.scratch: OrderedDict[Texture | Scratch, Any] = OrderedDict()
        self.limit = MAX_LAUNCHES
        self._reserved: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._common: OrderedDict[int, Common] = OrderedDict()  # by token, for the capabilities `_offered`
        self._offered = device.capabilities
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

    def get(self, kernel: Kernel[Any], problem: Problem, arrays: tuple[AnyView, ...], debug: AnyView | None) -> Launch:
        """Implement `Device.launch()`."""
        blocks = tuple(array.storage.block for array in (arrays if debug is None else (*arrays, debug)))
        token = self.token(kernel, problem)
        key = (token, *(block.uid for block in blocks if block))
        found = self.kept.get(key)
        if found is not None:
            self.kept.move_to_end(key)
            return found.launch
        check_arrays(problem, arrays, self._device)
        if reason := kernel.check(problem, self._device.capabilities) or self._unproven(kernel, problem):
            raise UnsupportedError(f"{kernel.name}: {reason}")
        launch = self.prepare(token, kernel, problem, tuple(block for block in blocks if block)).launch
        if _testing.get():
            self._drop(key)  # else the next launch in the same buffers, which the pool lends again, would be unproven
        return launch

    def _unproven(self, kernel: Kernel[Any], problem: Problem) -> str | None:
        """Return why a kernel must not run whose subgroups are only known from its self-test, or None if it may."""
        if _testing.get() or assured(kernel, self._device.capabilities):
            return None
        reason = hooks.above.failing(kernel, problem, self._device)
        return reason.partition("\n")[0] if reason else None

    def prepare(self, token: int, kernel: Kernel[Any], problem: Problem, blocks: tuple[Block, ...]) -> Prepared:
        """Prepare `kernel` to compute `problem` in these buffers, which the caller has checked, and cache it."""
        with self._device.span(kernel.name, "prepare"):
            launch = self._prepare(token, kernel, problem, blocks)
        key = (token, *(block.uid for block in blocks))
        prepared = self.kept[key] = Prepared(launch, kernel, problem, blocks)
        for block in blocks:
            block.launches.add(key)
        if len(self.kept) > self.limit:
            self._drop(next(iter(self.kept)))
        return prepared

    def reserve(self, count: int, owner: object | None = None) -> None:
        """Make room for a plan of `count` launches in each buffer through which its results rotate.

        With less room than that, each replay would evict what the next one needs. Those of owners, captured functions
        and caches, are used in turn: what all need counts as long as they live.
        """
        if owner is not None:
            self._reserved[owner] = count
            count = sum(self._reserved.values())
        self.limit = max(self.limit, min(count * ROTATING, MOST_LAUNCHES))

    def run(self, kernel: Kernel[Any], problem: Problem, arrays: tuple[AnyView, ...]) -> None:
        """Implement `Device.run()`."""
        device = self._device
        with _logged(device, kernel, problem):
            launch = self.get(kernel, problem, arrays, None)
            if device.profile is not None:
                device.profile.run(launch, kernel, problem)
                return
            written = [extent.written for extent in problem.buffers()]
            blocks = tuple(block for array in arrays if (block := array.storage.block))  # of all: none was freed
            queued = (launch, blocks, tuple(itertools.compress(blocks, written)))
            if device.submissions.add(queued):
                device.submissions.flush(queued[2])

    def forget(self, block: Block) -> None:
        """Drop the launches that bind a block, and their bind groups."""
        for key in tuple(block.launches):  # a copy: the garbage collector may call this method again meanwhile
            self._drop(key)
        block.launches.clear()
        self.bindings.forget(block)

    def forget_pipeline(self, pipeline: Any) -> None:
        """Drop the launches that use `pipeline`, so that they do not keep it alive."""
        for common in self._common.values():
            for firsts, steps in tuple(common.steps.items()):
                if any(step.pipeline is pipeline for step in steps):
                    del common.steps[firsts]
        for key, kept in tuple(self.kept.items()):  # a copy, as in forget()
            if any(step[0] is pipeline for step in kept.launch.dispatches):
                self._drop(key)
        self.bindings.forget_object(pipeline)

    def clear(self) -> None:
        """Drop all launches, uniform buffers and scratch memory."""
        self.kept.clear()
        self._common.clear()
        self.scratch.clear()
        self.bindings.clear()

    def _drop(self, key: LaunchKey) -> None:
        """Drop a launch, and remove its key from the buffers that it binds, which outlive it."""
        if (found := self.kept.pop(key, None)) is not None:
            for block in found.blocks:
                block.launches.discard(key)

    def _prepare(self, token: int, kernel: Kernel[Any], problem: Problem, blocks: tuple[Block, ...]) -> Launch:
        common = self._common_of(token, kernel, problem)
        resources: dict[str, Any] = {}
        most = min(self._device.capabilities.limit("max-storage-buffer-binding-size"), INDEX_LIMIT)
        firsts = []
        for extent, block in zip(common.extents, blocks, strict=False):
            offset, nbytes, first = extent.binding(block.buffer.size, most)
            resources[extent.name] = (block, offset, nbytes)
            firsts.append(first)
        start = tuple(firsts)
        if len(blocks) > len(common.extents):
            resources["debug"] = (blocks[-1], 0, blocks[-1].buffer.size)
            steps = self._unbound_steps(kernel, problem.within(start), debug=True)
        elif start in common.steps:
            steps = common.steps[start]
        else:
            steps = common.steps[start] = self._unbound_steps(kernel, problem.within(start))
        for scratch in common.scratch:
            resources[scratch.name] = self.scratch_for(scratch)
        *before, last = steps
        earlier = tuple([self._bound(step, resources) for step in before])
        return self._bound(last, resources, earlier, common.seconds)

    def _common_of(self, token: int, kernel: Kernel[Any], problem: Problem) -> Common:
        if self._offered is not self._device.capabilities:  # while it is opened, a device finds out more of them
            self._common.clear()
            self._offered = self._device.capabilities
        found = self._common.get(token)
        if found is None:
            least = minimum_seconds(self._device.info.kind, problem.flops, problem.bytes)
            found = self._common[token] = Common(problem.buffers(), tuple(kernel.scratch(problem)), least)
            if len(self._common) > MAX_LAUNCHES:
                self._common.popitem(last=False)
        return found

    def _unbound_steps(self, kernel: Kernel[Any], problem: Problem, debug: bool = False) -> tuple[Unbound, ...]:
        tags = tags_of(kernel, problem, self._device.engine.dialect) if debug else None
        return tuple(self._unbound_step(step, problem, tags) for step in kernel.dispatches)

    def _unbound_step(self, kernel: Kernel[Any], problem: Problem, tags: tuple[str, ...] | None) -> Unbound:
        shader = self._device.shader(kernel, problem, tags)
        bindings = tuple(binding.name for binding in shader.bindings[1:])
        uniform = self.bindings.uniform(params_bytes(kernel, problem))
        return Unbound(self._device.pipeline(shader), uniform, bindings, kernel.dispatch(problem), shader.label)

    def _bound(
        self, step: Unbound, resources: dict[str, Any], before: tuple[Launch, ...] = (), seconds: float = 0.0
    ) -> Launch:
        group = self.bindings.group(step.pipeline, step.uniform, [resources[name] for name in step.bindings])
        return Launch(step.pipeline, group, step.grid, step.uniform.offset, before, step.label, seconds)

    def scratch_for(self, wanted: Texture | Scratch) -> Any:
        """Return a buffer or a texture view of this kind; launches share it, as each writes it before reading it."""
        if wanted not in self.scratch:
            with self._device.guard.using(f"allocating {wanted}"):
                made = self._texture(wanted) if isinstance(wanted, Texture) else self._buffer(wanted.nbytes)
                self.scratch[wanted] = made
            if len(self.scratch) > MAX_SCRATCH:
                evicted, memory = self.scratch.popitem(last=False)
                for key, kept in tuple(self.kept.items()):  # a copy, as in forget()
                    if evicted in kept.kernel.scratch(kept.problem):
                        self._drop(key)  # its bind group would keep the memory alive
                self.bindings.forget_object(memory)
        self.scratch.move_to_end(wanted)
        return self.scratch[wanted]

    def _buffer(self, nbytes: int) -> Any:
        size = max(16, -(-nbytes // 16) * 16)
        usage = self._device.engine.api.BufferUsage
        return self._device.wgpu_device.create_buffer(size=size, usage=usage.STORAGE | usage.COPY_SRC)

    def _texture(self, texture: Texture) -> Any:
        created = self._device.wgpu_device.create_texture(
            label=texture.name,
            size=(texture.width, texture.height, texture.layers),
            format="rgba32float",
            usage=self._device.engine.api.TextureUsage.STORAGE_BINDING,
        )
        return created.create_view(dimension="2d-array")


_testing: ContextVar[bool] = ContextVar("testing", default=False)


def is_testing() -> bool:
    """Return whether this thread runs a self-test."""
    return _testing.get()


@contextmanager
def testing() -> Iterator[None]:
    """Launch kernels that are not proven, in this thread, to find out whether they are right."""
    token = _testing.set(True)
    try:
        yield
    finally:
        _testing.reset(token)


@contextmanager
def _logged(device: Core, kernel: Kernel[Any], problem: Problem) -> Iterator[None]:
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
