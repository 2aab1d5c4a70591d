"""Functions of single elements: the calls."""

from __future__ import annotations

import weakref
from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any

from webmm import choose
from webmm.calls.operands import Operandish, opened, returned
from webmm.calls.pieces import Labelled, in_pieces
from webmm.calls.planned import planned
from webmm.dtypes import F32
from webmm.engine.array import Array, element_of
from webmm.engine.device import Device
from webmm.epilogues import Epilogue, activation_name
from webmm.errors import ProblemError, ShaderError
from webmm.kernels.elementwise.map import Map
from webmm.problems.elementwise import Elementwise
from webmm.render import render

TRIED = 1000  # elements on which an epilogue is tried

_right: MutableMapping[Device, set[str]] = weakref.WeakKeyDictionary()  # epilogues of one's own that were tried there


@planned
def gelu(x: Operandish, approximate: bool = False, *, device: Device | None = None) -> Any:
    """Return x·Φ(x) of each element, by the error function or, `approximate`, by tanh; as `reduce()` otherwise."""
    return _map("gelu", x, "gelu_tanh" if approximate else "gelu", device)


@planned
def map(x: Operandish, function: str | Epilogue, *, device: Device | None = None) -> Any:
    """Return a function of each element: one of `webmm.epilogues.ACTIVATIONS` or an `Epilogue`; else as `reduce()`.

    Raises ShaderError for an `Epilogue` that does not compile there, or computes something else than its NumPy
    function.
    """
    if not function:
        raise ProblemError("map() needs a function: the name of an activation, or an Epilogue(wgsl=…, numpy=…)")
    return _map("map", x, function, device)


def _map(call: str, x: Operandish, function: str | Epilogue, device: Device | None) -> Any:
    with opened(call, device, x) as temporary:
        source = temporary.data(x)
        problem = Elementwise(activation_on(temporary.device, function), source.size, element_of(source))
        y = temporary.result(source.shape, problem.dtype, source)

        def compute(x: Array, y: Array) -> None:
            choose.run(replace(problem, size=x.size, x_offset=x.offset, y_offset=y.offset), x.device, x, y)

        if source.size:
            dense = source.numpy() if isinstance(source, Array) and not source.contiguous else source
            operands = [Labelled(dense.reshape(-1), "i")]
            in_pieces(temporary.device, compute, operands, Labelled(y.reshape(-1), "i"), "i")
        return returned(y)


def activation_on(device: Device, activation: str | Epilogue | None) -> str:
    """Return the name of an activation, "" for none; one of one's own is tried before its first use on a device.

    It is compiled by itself, and compared with its NumPy function where the setting `selftest` says so. Raises
    ProblemError for an unknown name, ShaderError, which names the epilogue, where it fails.
    """
    name = activation_name(activation)
    if isinstance(activation, Epilogue) and name not in _right.setdefault(device, set()):
        problem = Elementwise(name, TRIED, F32)
        try:
            device.pipeline(render(Map(), problem, device.engine.dialect))
        except ShaderError as error:
            raise ShaderError(f"epilogue {activation.wgsl!r}: {error}") from error
        if reason := choose.refused(Map(), problem, device):
            raise ShaderError(f"epilogue {activation.wgsl!r} and its NumPy function differ: {reason}")
        _right[device].add(name)
    return name
