"""Public calls for elementwise functions of one array."""

from __future__ import annotations

import weakref
from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from typing import Any

from webmm import choose
from webmm.arguments.arrays import element_of
from webmm.arguments.elements import copy_of, link_of_arrays
from webmm.arguments.products import check_operands
from webmm.calls.devices import Devices
from webmm.calls.executor import Data, labelled
from webmm.calls.expression import expressed
from webmm.calls.operands import Operandish, Temporaries, opened, returned
from webmm.calls.pieces import in_pieces
from webmm.calls.planned import planned
from webmm.calls.sides import dense, owned, reshaped
from webmm.choose.elementwise import COMPATIBLE
from webmm.dtypes import F32
from webmm.engine.device import Array, Device
from webmm.errors import ProblemError, ShaderError
from webmm.kernels.elementwise.map import Map
from webmm.problems.base import check_floats
from webmm.problems.elementwise import Elementwise
from webmm.wgsl.functions import OWN
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
    if not isinstance(function, Epilogue) or (function.function.plain and len(function.function.links) == 1):
        return _map("map", x, function, device, devices)
    with opened("map", device, x, *function.operands, devices=devices) as call:
        for one in call.devices:
            activation_on(one, function)
        return returned(in_turn(call, call.data(x), function.links))


def along(x: Operandish, function: str, axis: int, device: Device) -> Any:
    """Return the function of each element of a matrix, whatever the axis."""
    del axis
    return map(x, function, device=device)


def _map(
    name: str, x: Operandish, function: str | Epilogue, device: Device | str | None, devices: Devices | None
) -> Any:
    with opened(name, device, x, devices=devices) as call:
        source = call.data(x)
        for one in call.devices:
            activation_on(one, function)
        return returned(mapped(call, source, name_of(function)))


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


# The steps, in both languages


def mapped(call: Temporaries, x: Data, function: str) -> Data:
    """Return a function of each element, given its name in problems."""
    problem = Elementwise(function, x.size, element_of(x))
    y = call.result(x.shape, problem.dtype, x)
    if not x.size:
        return y

    def compute(x: Array, y: Array) -> None:
        call.run(replace(problem, size=x.size, x_offset=x.offset, y_offset=y.offset), x, y)

    source, target = (labelled(reshaped(each, (x.size,)), "i") for each in (dense(call, x), y))
    in_pieces(call, compute, [source], target, "i")
    return y


def in_turn(call: Temporaries, x: Data, functions: Sequence[Epilogue]) -> Data:
    """Return functions, of one link each, applied to each element in turn; what is between two of them is float32."""
    dtype, last = element_of(x), len(functions) - 1
    check_floats("activations", dtype)
    check_operands([call.data(y) for own in functions for y in own.operands], x.shape)
    value = x
    if last and OWN[functions[0].name].plain and dtype != F32:
        value = owned(call, expressed(call, copy_of(dtype, F32), [x]))
    for i, own in enumerate(functions):
        (link,) = OWN[own.name].links
        if link.numpy is not None:
            found = mapped(call, value, own.name)
        else:
            xs = [value, *(call.data(y) for y in own.operands)]
            dtypes = [*(element_of(each) for each in xs), dtype if i == last else F32]
            found = expressed(call, link_of_arrays(link, dtypes, own.numbers), xs)
        value = found if i == last else owned(call, found)
    same = element_of(value) == dtype
    return value if same else expressed(call, copy_of(F32, dtype), [owned(call, value)])
