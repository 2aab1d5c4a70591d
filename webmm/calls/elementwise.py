"""Functions of single elements: the calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from webmm import choose
from webmm.calls.operands import Operandish, opened, returned
from webmm.calls.pieces import Labelled, in_pieces
from webmm.calls.planned import planned
from webmm.engine.array import Array, element_of
from webmm.engine.device import Device
from webmm.problems.elementwise import Elementwise


@planned
def gelu(x: Operandish, approximate: bool = False, *, device: Device | None = None) -> Any:
    """Return x·Φ(x) of each element, by the error function or, `approximate`, by tanh; as `reduce()` otherwise."""
    return activate("gelu_tanh" if approximate else "gelu", x, device=device)


def activate(name: str, x: Operandish, *, device: Device | None = None) -> Any:
    """Return the activation of that name, one of `webmm.epilogues.ACTIVATIONS`, of each element."""
    with opened(name, device, x) as temporary:
        source = temporary.data(x)
        problem = Elementwise(name, source.size, element_of(source))
        y = temporary.result(source.shape, problem.dtype, source)

        def compute(x: Array, y: Array) -> None:
            choose.run(replace(problem, size=x.size, x_offset=x.offset, y_offset=y.offset), x.device, x, y)

        if source.size:
            dense = source.numpy() if isinstance(source, Array) and not source.contiguous else source
            operands = [Labelled(dense.reshape(-1), "i")]
            in_pieces(temporary.device, compute, operands, Labelled(y.reshape(-1), "i"), "i")
        return returned(y)
