"""The limits of a dispatch on a device, from which `webmm.cut` plans, and how fast a device is at least."""

from __future__ import annotations

from dataclasses import replace

from webmm.choose import tuned
from webmm.cut.pieces import Limits
from webmm.dtypes import F32, F64, DType
from webmm.engine.device import Device
from webmm.problems.base import ALIGNMENT

# The operations per second that a device of each kind is assumed to reach if it has no faster tuned record. A dispatch
# must be short: drivers reset a device that is busy for long (Windows: 2 s), and a display freezes before that.
ASSUMED_RATE = {"cpu": 2.0**35, "integrated": 2.0**37, "other": 2.0**37, "discrete": 2.0**41}
DISPATCH_SECONDS = 1.0
BANDWIDTH = {"discrete": 2.5e10, "integrated": 2e10, "other": 1e10, "cpu": 5e9}  # measured uploads from NumPy, bytes/s
# For float64: gaming GPUs have one float64 unit per 64 float32 units; with integer slices, one product takes 37 integer
# products, and the slices need at most four times the bytes of an operand and twice those of a result.
SLOWER, SLOWER_IN_SLICES, ROOM_FOR_SLICES = 64, 256, 4


def dispatch_limits(device: Device, dtype: DType = F32) -> Limits:
    """Return the limits of one dispatch on `device` for products of `dtype`."""
    sliced = dtype == F64 and not F64.features <= device.capabilities.features
    slower = 1 if dtype != F64 else SLOWER_IN_SLICES if sliced else SLOWER
    assumed = max(tuned.rate(device, F32), ASSUMED_RATE[device.info.kind]) / slower  # no dtype is slower than this
    binding = device.capabilities.limit("max-storage-buffer-binding-size") // (ROOM_FOR_SLICES if sliced else 1)
    return Limits(binding, max(tuned.rate(device, dtype), assumed) * DISPATCH_SECONDS)


def largest_buffer(device: Device) -> int:
    """Return the bytes of the largest buffer that can be bound as a whole."""
    return min(device.capabilities.limit(name) for name in ("max-storage-buffer-binding-size", "max-buffer-size"))


def moving_limits(device: Device, memory: float) -> Limits:
    """Return the limits of pieces that are moved to `device` and take at most `memory` there."""
    return replace(dispatch_limits(device), binding=largest_buffer(device), memory=memory)


def most_at_once(device: Device, memory: int, resident: bool) -> int:
    """Return the most bytes of an array in a piece, of one in host memory at most a quarter of `memory`."""
    room = largest_buffer(device) - 2 * ALIGNMENT  # a binding starts at an aligned offset before its data
    return room if resident else min(room, memory // 4)
