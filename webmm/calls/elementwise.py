"""Public calls for elementwise functions of one array."""

from __future__ import annotations

import weakref
from collections.abc import MutableMapping
from dataclasses import replace
from functools import partial
from typing import Any

from webmm import choose
from webmm.arguments.arrays import element_of
from webmm.arguments.products import check_operands
from webmm.calls.devices import Devices
from webmm.calls.executor import Labelled
from webmm.calls.expression import elementwise
from webmm.calls.operands import Operandish, data_of, opened, returned
from webmm.calls.pieces import in_pieces
from webmm.calls.planned import planned
from webmm.choose.elementwise import COMPATIBLE
from webmm.dtypes import F32
from webmm.engine.device import Array, Device
from webmm.errors import ProblemError, ShaderError
from webmm.kernels.elementwise.map import Map
from webmm.problems.base import check_floats
from webmm.problems.elementwise import Elementwise
from webmm.wgsl.own import Epilogue, name_of

TRIAL_SIZE, TRIAL = 1000, Map(COMPATIBLE)  # the elements and the kernel of the test of an epilogue

_tested: MutableMapping[Device, set[str]] = weakref.WeakKeyDictionary()  # names of user-defined epilogues that passed


@planned
def gelu(
    x: Operandish, approximate: bool = False, *, device: Device | str | None = None, devices: Devices | None = None
) -> Any:
    """Return the Gaussian error linear unit x·Φ(x) of each element, of the same shape and dtype as `x`.

    Arguments:

    - `x`: an array of any shape, of one of `webmm.dtypes.MATRIX_DTYPES`.
    - `approximate`: use the tanh approximation instead of the error function.
    - `device`: by default the device of `x`, or the most capable adapter.
    - `devices`: "all" or a list of Devices, among which a call on NumPy arrays is divided.

    Returns a NumPy array, or an `Array` on the same device if `x` is one. Raises as `reduce()` does.
    """
    return _map("gelu", x, "gelu_tanh" if approximate else "gelu", device, devices)


@planned
def map(
    x: Operandish, function: str | Epilogue, *, device: Device | str | None = None, devices: Devices | None = None
) -> Any:
    """Return a function of each element, of the same shape and dtype as `x`.

    Arguments:

    - `x`: an array of any shape, of one of `webmm.dtypes.MATRIX_DTYPES`.
    - `function`: a name in `webmm.wgsl.epilogues.ACTIVATIONS`, or an `Epilogue`, whose arrays broadcast to `x`.
    - `device`: by default the device of `x`, or the most capable adapter.
    - `devices`: "all" or a list of Devices, among which a call on NumPy arrays is divided.

    Returns a NumPy array, or an `Array` on the same device if `x`, or an array of an expression, is one. Raises
    ProblemError for an unknown name, ShaderError for an `Epilogue` that does not compile on the device, or differs from
    its NumPy function there; otherwise as `reduce()`.

    Example: ``webmm.map(x, webmm.Epilogue("where(x > 0, x, slope * x)", slope=0.1))``
    """
    if not function:
        raise ProblemError("map() needs a function: the name of an activation, or an Epilogue")
    if isinstance(function, Epilogue) and len(function.links) + (not function.function.plain) > 1:
        return _each(x, function, device, devices)
    return _map("map", x, function, device, devices)


def along(x: Operandish, function: str, axis: int, device: Device) -> Any:
    """Return the function of each element of a matrix, whatever the axis."""
    del axis
    return map(x, function, device=device)


def _each(x: Operandish, own: Epilogue, device: Device | str | None, devices: Devices | None) -> Any:
    """Return functions that are not all in WGSL, applied to each element in turn; what is between them is float32."""
    value = data_of(x)
    dtype = element_of(value)
    one = partial(elementwise, device=device, devices=devices)
    check_floats("activations", dtype)
    check_operands([data_of(y) for y in own.operands], value.shape)
    if own.links[0].function.plain and dtype != F32:
        value = one("x", x=value, out_dtype=F32.numpy)
    for i, link in enumerate(own.links):
        if link.function.plain:
            value = _map("map", value, link, device, devices)
        else:
            out = dtype if i == len(own.links) - 1 else F32
            value = one(link.wgsl, x=value, out_dtype=out.numpy, **link.values)
    return value if element_of(value) == dtype else one("x", x=value, out_dtype=dtype.numpy)


def _map(
    call: str, x: Operandish, function: str | Epilogue, device: Device | str | None, devices: Devices | None
) -> Any:
    with opened(call, device, x, devices=devices) as temporary:
        source = temporary.data(x)
        for one in temporary.devices:
            activation_on(one, function)
        problem = Elementwise(name_of(function), source.size, element_of(source))
        y = temporary.result(source.shape, problem.dtype, source)

        def compute(x: Array, y: Array) -> None:
            choose.run(replace(problem, size=x.size, x_offset=x.offset, y_offset=y.offset), x.device, x, y)

        if source.size:
            dense = source.numpy() if isinstance(source, Array) and not source.contiguous else source
            operands = [Labelled(dense.reshape(-1), "i")]
            in_pieces(temporary.devices, compute, operands, Labelled(y.reshape(-1), "i"), "i")
        return returned(y)


def activation_on(device: Device, activation: str | Epilogue | None) -> Epilogue | str:
    """Return an activation, "" for None, after testing what a user wrote in WGSL before its first use on a device.

    The test compiles it in a shader without other terms and, if the setting `selftest` is on, compares it with its
    NumPy function. Expressions need none: they are tested as part of each kernel. Raises ProblemError for an unknown
    name, and ShaderError with the WGSL of an epilogue that fails.
    """
    name_of(activation)
    if isinstance(activation, Epilogue):
        for link in activation.links:
            if link.function.plain and link.name not in _tested.setdefault(device, set()):
                _test(device, link)
                _tested[device].add(link.name)
    return activation or ""


def _test(device: Device, own: Epilogue) -> None:
    """Raise ShaderError unless a function in WGSL is right."""
    problem = Elementwise(own.name, TRIAL_SIZE, F32)
    try:
        device.pipeline(device.shader(TRIAL, problem))
    except ShaderError as error:
        raise ShaderError(f"epilogue {own.wgsl!r}: {error}") from error
    if reason := choose.refused(TRIAL, problem, device):
        raise ShaderError(f"epilogue {own.wgsl!r} and its NumPy function differ: {reason}")
