"""Candidates for attention, by rules."""

from __future__ import annotations

from webmm.engine.device import Device
from webmm.kernels.attention.base import AttentionKernel, held
from webmm.kernels.attention.online import Online
from webmm.kernels.attention.three_calls import ThreeCalls
from webmm.problems.attention import Attention

MOST_HELD = 256  # columns that an invocation holds

ANYWHERE = (ThreeCalls(),)


def candidates(problem: Attention, device: Device) -> list[AttentionKernel]:
    """Return the kernels that rules choose for `problem` on `device`, best first."""
    p = problem
    columns, values = held(p.width), held(p.value_width)
    if max(columns, values) > MOST_HELD:
        return []
    return [Online(columns, values, 8 if device.info.kind == "cpu" else 32)]
