"""Bind groups and uniforms, which launches share: one for other sizes of the same buffers needs no bind group.

A uniform is a part of a larger buffer, at the dynamic offset of its dispatch. While a model decodes, each token has
other lengths but the same buffers; to make a bind group takes an engine longer than all else in a repeated call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from webmm.engine.core import Core
from webmm.engine.guard import frameless
from webmm.engine.pool import Block

CHUNK = 2**16  # bytes of a buffer of uniforms, or what the device allows
ALIGNMENT = 256  # of a dynamic offset, on every device
MAX_UNIFORMS = 512  # cached per device; launches keep theirs
MAX_GROUPS = 4096  # cached per device; launches keep theirs

GroupKey = tuple[Any, ...]
Part = tuple[Block, int, int]  # a binding: a buffer, and the offset and number of the bytes that are bound


class Uniform(NamedTuple):
    """Where a uniform is: bytes of a buffer."""

    buffer: Any
    offset: int
    nbytes: int


class Bindings:
    """The bind groups and uniforms of one device; the least recently made are evicted first. Callers hold its lock."""

    def __init__(self, device: Core) -> None:
        self._device = device
        self.uniforms: OrderedDict[bytes, Uniform] = OrderedDict()
        self.groups: OrderedDict[GroupKey, tuple[Any, tuple[Block, ...]]] = OrderedDict()
        self._size = min(CHUNK, device.capabilities.limit("max-buffer-size"))
        self._chunk: Any = None
        self._used = self._size  # bytes of the chunk

    def uniform(self, data: bytes) -> Uniform:
        """Return a uniform that holds `data`, shared by all launches with equal data."""
        found = self.uniforms.get(data)
        if found is None:
            found = self.uniforms[data] = self._written(data)
            if len(self.uniforms) > MAX_UNIFORMS:
                self.uniforms.popitem(last=False)
        return found

    def _written(self, data: bytes) -> Uniform:
        """Write `data` where nothing was written before: dispatches that are not submitted yet may read all else."""
        size = -(-len(data) // ALIGNMENT) * ALIGNMENT
        with self._device.guard.using("writing a uniform"):
            gpu, usage = self._device.wgpu_device, self._device.engine.api.BufferUsage
            if self._used + size > self._size:
                made = frameless(gpu.create_buffer, size=self._size, usage=usage.UNIFORM | usage.COPY_DST)
                self._chunk, self._used = made, 0
            frameless(gpu.queue.write_buffer, self._chunk, self._used, data)
        self._used += size
        return Uniform(self._chunk, self._used - size, len(data))

    def group(self, pipeline: Any, uniform: Uniform, parts: Sequence[Part | Any]) -> Any:
        """Return the bind group of a uniform, whatever its offset, and of parts of blocks, buffers or texture views."""
        shown = tuple([(x[0].uid, x[1], x[2]) if type(x) is tuple else x for x in parts])
        key = (pipeline, uniform.buffer, uniform.nbytes, *shown)
        if (found := self.groups.get(key)) is not None:
            return found[0]
        resources = [(x[0].buffer, x[1], x[2]) if type(x) is tuple else x for x in parts]
        made = self._device.bind(pipeline, [(uniform.buffer, 0, uniform.nbytes), *resources])
        blocks = tuple([x[0] for x in parts if type(x) is tuple])
        self.groups[key] = made, blocks
        for block in blocks:
            block.groups.add(key)
        if len(self.groups) > MAX_GROUPS:
            self._drop(next(iter(self.groups)))
        return made

    def forget(self, block: Block) -> None:
        """Drop the groups that bind a block, which is about to be destroyed."""
        for key in tuple(block.groups):
            self._drop(key)

    def forget_object(self, used: Any) -> None:
        """Drop the groups of a pipeline, of a buffer that is no block, or of a texture view: none keeps it alive."""
        for key in tuple(self.groups):  # a copy: a collection of garbage may drop some meanwhile
            if any(part is used for part in key):
                self._drop(key)

    def clear(self) -> None:
        """Drop everything."""
        self.uniforms.clear()
        self.groups.clear()
        self._chunk, self._used = None, self._size

    def _drop(self, key: GroupKey) -> None:
        """Drop a group, and remove its key from the buffers that it binds, which outlive it."""
        if (found := self.groups.pop(key, None)) is not None:
            for block in found[1]:
                block.groups.discard(key)
