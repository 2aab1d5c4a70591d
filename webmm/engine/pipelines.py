"""Cache of a device's compiled pipelines: each WGSL text is compiled once, up to a limit on their host memory."""

from __future__ import annotations

import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from webmm import log
from webmm.engine.guard import Guard
from webmm.errors import UnsupportedError
from webmm.kernels.base import Binding, Capabilities
from webmm.wgsl.compilers import Place, refused
from webmm.wgsl.render import ENTRY_POINT, Shader

# Host memory of a pipeline, estimated from the length of its WGSL, as measured on lavapipe (Mesa 22.3.6: naive 1.4 MB
# for 2,600 characters, cpu_lanes 4.7 MB for 28,000, blocked 6.7 MB for 32,000, pipelined 3.2 MB for 54,000).
BYTES, BYTES_PER_CHARACTER = 2**20, 200
CPU_LIMIT, GPU_LIMIT = 2**28, 2**30  # bytes of all pipelines by that estimate, which is too high for GPUs


@dataclass(frozen=True)
class CompiledPipeline:
    """A pipeline and its estimated host memory in bytes."""

    pipeline: Any
    nbytes: int


class Pipelines:
    """The pipelines of one device; the least recently used are evicted first, and compiled again on demand.

    `forget` is called with each evicted pipeline: it must drop all other references to it.
    """

    def __init__(self, guard: Guard, kind: str, forget: Callable[[Any], None]) -> None:
        self._guard, self._forget = guard, forget
        self._kept: OrderedDict[str, CompiledPipeline] = OrderedDict()
        self._layouts: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.limit = CPU_LIMIT if kind == "cpu" else GPU_LIMIT
        self.nbytes = 0  # estimate for all cached pipelines
        self.compilations = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, shader: Shader, capabilities: Capabilities) -> Any:
        """Return the compute pipeline of `shader`.

        Raises UnsupportedError if it exceeds the device's limits, ShaderError if the engine rejects it.
        """
        with self._guard.using(f"compiling {shader.label}"), self._guard.lock:
            found = self._kept.get(shader.wgsl)
            if found is not None:
                self._kept.move_to_end(shader.wgsl)
                return found.pipeline
            _check_limits(shader, capabilities)
            start = time.perf_counter()
            made = CompiledPipeline(
                self.compile(shader.wgsl, shader.label, shader.bindings, origin=lambda: _places(shader)),
                BYTES + BYTES_PER_CHARACTER * len(shader.wgsl),
            )
            elapsed = time.perf_counter() - start
            log.compilation.info("%s: %.1f ms, %d characters", shader.label, 1e3 * elapsed, len(shader.wgsl))
            log.compilation.log(log.LEVELS["trace"], "%s\n%s", shader.label, shader.wgsl)
            self._kept[shader.wgsl] = made
            self.nbytes += made.nbytes
            self.compilations += 1
            while self.nbytes > self.limit and len(self._kept) > 1:
                _, evicted = self._kept.popitem(last=False)
                self.nbytes -= evicted.nbytes
                self._forget(evicted.pipeline)
            return made.pipeline

    def layout(self, pipeline: Any) -> Any:
        """Return the layout of a pipeline's bind group: engines make a new object whenever they are asked for it."""
        if (found := self._layouts.get(pipeline)) is None:
            found = self._layouts[pipeline] = pipeline.get_bind_group_layout(0)
        return found

    def compile(
        self,
        wgsl: str,
        label: str,
        bindings: tuple[Binding, ...],
        entry_point: str = ENTRY_POINT,
        origin: Callable[[], Sequence[Place | None]] = tuple,
    ) -> Any:
        """Compile WGSL with `bindings`, all in group 0; raises ShaderError with the line that the compiler means.

        A uniform has a dynamic offset, that of the `Launch`. `origin` returns the places of the text's lines in
        templates, as far as they are known.
        """
        device = self._guard.device
        with self._guard.using(f"compiling {label}"), self._shader_errors(label, wgsl, origin):
            module = device.create_shader_module(label=label, code=wgsl)
            visible = self._guard.engine.api.ShaderStage.COMPUTE
            entries = [{"binding": b.binding, "visibility": visible, **_entry(b.type)} for b in bindings]
            layout = device.create_pipeline_layout(
                bind_group_layouts=[device.create_bind_group_layout(entries=entries)]
            )
            return device.create_compute_pipeline(
                label=label, layout=layout, compute={"module": module, "entry_point": entry_point}
            )

    @contextmanager
    def _shader_errors(self, label: str, wgsl: str, origin: Callable[[], Sequence[Place | None]]) -> Iterator[None]:
        engine = self._guard.engine
        try:
            yield
        except engine.api.GPUError as error:
            if isinstance(error, engine.api.GPUOutOfMemoryError) or self._guard.find_lost(f"compiling {label}", error):
                raise
            raise refused(f"{label} was refused by the engine", str(error), wgsl, origin()) from error

    def clear(self) -> None:
        """Drop all pipelines."""
        self._kept.clear()
        self.nbytes = 0


def _places(shader: Shader) -> Sequence[Place | None]:
    from webmm.wgsl.places import places  # needed for errors only

    return places(shader)


def _check_limits(shader: Shader, capabilities: Capabilities) -> None:
    # Engines do not check this, and a pipeline with too much workgroup memory has hung a driver.
    have = capabilities.limit("max-compute-workgroup-storage-size")
    if shader.workgroup_bytes > have:
        raise UnsupportedError(
            f"{shader.label} needs {shader.workgroup_bytes:,} bytes of workgroup memory, "
            f"{capabilities.name} has {have:,}"
        )


def _entry(kind: str) -> dict[str, Any]:
    """Return the fields of a bind group layout entry for a binding of type `kind`."""
    if kind.endswith("-only"):
        return {"storage_texture": {"access": kind, "format": "rgba32float", "view_dimension": "2d-array"}}
    return {"buffer": {"type": kind, "has_dynamic_offset": kind == "uniform"}}
