"""The core of a device: its engine, limits, pipelines, buffers and queue; everything that needs no array."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from webmm.config import Settings
from webmm.engine import forking
from webmm.engine.adapters import AdapterInfo, capabilities
from webmm.engine.engine import Engine
from webmm.engine.guard import Guard
from webmm.engine.launch import Launch
from webmm.engine.pipelines import Pipelines
from webmm.engine.pool import Block, Pool
from webmm.engine.recording import Recordings
from webmm.engine.submissions import Submissions
from webmm.engine.transfer import Staging
from webmm.kernels.base import Binding, Kernel
from webmm.kernels.subgroups import pinned
from webmm.problems.base import Problem
from webmm.wgsl.render import ENTRY_POINT, Shader, render

NO_SPAN = nullcontext()


class Profiler(Protocol):
    """What a device tells the profile that is active, if there is one."""

    def span(self, name: str, kind: str, **amounts: int) -> AbstractContextManager[None]:
        """Return a context whose duration is recorded as one step."""

    def run(self, launch: Launch, kernel: Kernel[Any], problem: Problem) -> None:
        """Run `launch`, of `kernel` on `problem`, once and record its dispatches."""

    def before_close(self) -> None:
        """Do what needs the device, which is about to be closed."""


class Core:
    """The parts of an open device and what is done with them alone; `Device` adds arrays and what is cached for calls.

    `device` is the engine's; it is destroyed with this one if it is `owned`. `before_destroy` is called with each
    block before its buffer is destroyed, `forget_pipeline` with each evicted pipeline.
    """

    def __init__(
        self,
        engine: Engine,
        device: Any,
        info: AdapterInfo,
        owned: bool,
        settings: Settings,
        before_destroy: Callable[[Block], None],
        forget_pipeline: Callable[[Any], None],
        lower: Mapping[str, int] | None = None,
    ) -> None:
        self.engine, self.wgpu_device, self.info, self.settings, self._owned = engine, device, info, settings, owned
        self.guard = Guard(engine, device, info.name)
        if owned:
            self.guard.shield()
        forking.opened(self)
        self.capabilities = capabilities(info, device, lower, engine)  # Dawn grants at least WebGPU's defaults
        self.pipelines = Pipelines(self.guard, info.kind, forget_pipeline)
        self.submissions = Submissions(self.guard, shared=not owned)
        self.staging = Staging(self.guard, self.submissions)
        self.pool = Pool(self.guard, self.capabilities, info.kind, before_destroy)
        self.recordings = Recordings()
        self.profile: Profiler | None = None  # the active profile, if any

    @property
    def lost(self) -> str:
        """Why the device was lost or closed; empty while it is usable."""
        return self.guard.lost

    def shader(self, kernel: Kernel[Any], problem: Problem, tags: tuple[str, ...] | None = None) -> Shader:
        """Return the shader of a dispatch as it runs on this device; with `tags`, a debug shader; see `render()`."""
        pins = pinned(kernel, self.capabilities)
        return render(kernel, problem, self.engine.dialect, pinned=pins, debug=tags is not None, tags=tags)

    def pipeline(self, shader: Shader) -> Any:
        """Return the compute pipeline of `shader`, from the cache or newly compiled.

        Raises UnsupportedError if it exceeds the device's limits, ShaderError if the engine rejects it.
        """
        return self.pipelines.get(shader, self.capabilities)

    def compile(self, wgsl: str, label: str, bindings: tuple[Binding, ...], entry_point: str = ENTRY_POINT) -> Any:
        """Compile WGSL with `bindings`, all in group 0; raises ShaderError with the line that the compiler means."""
        return self.pipelines.compile(wgsl, label, bindings, entry_point)

    def bind(self, pipeline: Any, resources: list[Any]) -> Any:
        """Return a wgpu bind group, numbered from 0, of buffers, (buffer, offset, size) in bytes, or texture views."""
        with self.guard.using("binding"):
            return self.wgpu_device.create_bind_group(
                layout=self.pipelines.layout(pipeline),
                entries=[{"binding": i, "resource": self._resource(x)} for i, x in enumerate(resources)],
            )

    def _resource(self, x: Any) -> Any:
        if isinstance(x, self.engine.api.GPUTextureView):
            return x
        return dict(zip(("buffer", "offset", "size"), x if isinstance(x, tuple) else (x, 0, x.size), strict=True))

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
        self.recordings.interrupt(doing)
        return self.guard.using(doing)

    def synchronize(self) -> None:
        """Wait until all queued work has finished."""
        with self.using("waiting"):
            self.engine.wait(self.wgpu_device)

    def trim(self) -> None:
        """Destroy the idle buffers in the pool."""
        with self.guard.uses.use(), self.guard.lock:
            self.pool.trim()

    def abandon(self) -> None:
        """Mark the device as owned by the parent process; called in a forked child."""
        self.guard.abandon()
