"""A prepared launch: a kernel's pipeline, bind group and grid on given buffers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from webmm.engine.engine import Dispatch


@dataclass(frozen=True)
class Launch:
    """A prepared dispatch: pipeline, bind group and grid, and the dispatches that must run before it.

    `offset` is the dynamic offset of its uniform, in bytes: 0 if that is a buffer of its own, None if there is none.
    `seconds` is a lower bound of the time that the dispatches take.
    """

    pipeline: Any
    bind_group: Any
    grid: tuple[int, int, int]
    offset: int | None = None
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
        """The dispatches in order, as `Engine.submit()` takes them."""
        return tuple((step.pipeline, step.bind_group, step.grid, step.offset) for step in self.steps())

    def encode(self, compute_pass: Any) -> None:
        """Record the dispatches into a wgpu compute pass, which orders dependent dispatches."""
        for pipeline, bind_group, grid, offset in self.dispatches:
            compute_pass.set_pipeline(pipeline)
            compute_pass.set_bind_group(0, bind_group, [] if offset is None else [offset])
            compute_pass.dispatch_workgroups(*grid)
