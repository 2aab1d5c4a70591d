"""What an engine must do: everything that implementations of WebGPU do differently, or that is not in its standard.

The rest of the package uses standard WebGPU – buffers, encoders, passes, queues – on the objects that an engine
returns, and the classes and flags of its `api`. An engine is one module: `wgpu`, `dawn`; `native` has what they share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from webmm.kernels.base import MatrixShape
from webmm.wgsl.render import Dialect

# A pipeline, its bind group, the grid of workgroups, and the dynamic offset of its uniform, if it has one.
Dispatch = tuple[Any, Any, tuple[int, int, int], int | None]
# A copy between buffers: the source, its first byte, the target, its first byte, and the number of bytes.
Copy = tuple[Any, int, Any, int, int]


class Mapped:
    """A pending or complete mapping of the first `size` bytes of a buffer; `status` is 0 while it is pending."""

    __slots__ = ("buffer", "future", "mode", "size", "status")

    def __init__(self, buffer: Any, mode: str, size: int) -> None:
        self.buffer, self.mode, self.size, self.status = buffer, mode, size, 0
        self.future: Any = None


class Engine(Protocol):
    """An implementation of WebGPU; errors are those of its `api` unless a method says otherwise."""

    name: str
    api: Any  # the module with WebGPU's classes and flags, with wgpu-py's names
    dialect: Dialect
    rejects: str  # which drivers the engine rejects although they work, and what to do about it
    wanted: tuple[str, ...]  # features that are enabled if the adapter has them
    subgroups: str  # the name of that feature
    matrix_units: str  # the name of that feature
    refusals: tuple[type[Exception], ...]  # errors of opening a device

    def version(self) -> str:
        """Return the engine's name and version, as in records."""

    # Adapters and devices

    def adapters(self) -> list[Any]:
        """Return new objects for all adapters, in the driver's order."""

    def open(self, adapter: Any, features: Iterable[str], limits: Mapping[str, int]) -> tuple[Any, str]:
        """Return an open device with matrix units if possible, and otherwise the reason why it has none.

        Raises one of `refusals` if the device cannot be opened at all.
        """

    def matrix_shapes(self, adapter: Any) -> frozenset[MatrixShape]:
        """Return the fragment shapes that the adapter's matrix units may support."""

    def subgroup_sizes(self, adapter_info: Mapping[str, Any]) -> tuple[int, int]:
        """Return the least and the largest size of subgroups that an adapter reports; zeros if it reports none."""

    def timestamp_period(self, device: Any) -> float:
        """Return the length of a tick of the device's clock in nanoseconds."""

    # Queue

    def submit(self, device: Any, dispatches: Sequence[Dispatch], copy: Copy | None = None) -> None:
        """Submit dispatches in order, in one pass, and then a copy; if one is rejected, none of them is queued."""

    def wait(self, device: Any) -> None:
        """Wait until all work queued on `device` has finished."""

    # Mappings

    def map(self, buffer: Any, mode: str, size: int) -> Mapped:
        """Request a mapping of the first `size` bytes of `buffer`, for READ or WRITE, once the device has used them."""

    def ready(self, device: Any, mapped: Mapped) -> bool:
        """Tell whether `data()` would return without waiting."""

    def data(self, device: Any, mapped: Mapped) -> NDArray[np.uint8]:
        """Wait for the mapping and return its bytes, which are valid until `unmap()`.

        Other threads may submit meanwhile. Raises an error if the device is lost.
        """

    def unmap(self, mapped: Mapped) -> None:
        """Unmap the buffer, so that the device may use it."""

    # Loss

    def is_lost(self, device: Any) -> bool:
        """Tell whether `device` was lost or destroyed."""

    def loss_reason(self, device: Any) -> str:
        """Return the driver's message about the loss of `device`; empty if there was none."""
