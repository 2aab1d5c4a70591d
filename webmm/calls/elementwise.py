"""Functions of single elements: the calls."""

from __future__ import annotations

from typing import Any

from webmm import choose
from webmm.calls.operands import Operandish, opened, returned
from webmm.engine.device import Device
from webmm.problems.elementwise import Elementwise


def gelu(x: Operandish, approximate: bool = False, *, device: Device | None = None) -> Any:
    """Return x·Φ(x) of each element, by the error function or, `approximate`, by tanh; as `reduce()` otherwise."""
    with opened("gelu", x, device) as (temporary, source):
        source = source if source.contiguous else temporary.array(source.numpy())
        y = source.device.empty(source.shape, source.dtype)
        if source.size:
            name = "gelu_tanh" if approximate else "gelu"
            problem = Elementwise(name, source.size, source.dtype, source.offset)
            choose.run(problem, source.device, source, y)
        return returned(y, x)
