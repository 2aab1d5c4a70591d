"""Public calls for elementwise functions of one array."""

from __future__ import annotations

import weakref
from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any

from webmm import choose
from webmm.arguments.arrays import element_of
from webmm.calls.devices import Devices
from webmm.calls.executor import Labelled
from webmm.calls.operands import Operandish, opened, returned
from webmm.calls.pieces import in_pieces
from webmm.calls.planned import planned
from webmm.choose.elementwise import COMPATIBLE
from webmm.dtypes import F32
from webmm.engine.device import Array, Device
from webmm.errors import ProblemError, ShaderError
from webmm.kernels.elementwise.map import Map
from webmm.problems.elementwise import Elementwise
from webmm.wgsl.epilogues import Epilogue, activation_name

TRIAL_SIZE, TRIAL = 1000, Map(COMPATIBLE)  # the elements and the kernel of the test of an epilogue

_tested: MutableMapping[Device, set[str]] = weakref.WeakKeyDictionary()  # names of user-defined epilogues that passed


@planned
def gelu(
    x: Operandish, approximate: bool = False, *, device: Device | None = None, devices: Devices | None = None
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
    x: Operandish, function: str | Epilogue, *, device: Device | None = None, devices: Devices | None = None
) -> Any:
    """Return a function of each element, of the same shape and dtype as `x`.

    Arguments:

    - `x`: an array of any shape, of one of `webmm.dtypes.MATRIX_DTYPES`.
    - `function`: a name in `webmm.wgsl.epilogues.ACTIVATIONS`, or an `Epilogue` for a user-defined function.
    - `device`: by default the device of `x`, or the most capable adapter.
    - `devices`: "all" or a list of Devices, among which a call on NumPy arrays is divided.

    Returns a NumPy array, or an `Array` on the same device if `x` is one. Raises ProblemError for an unknown name,
    ShaderError for an `Epilogue` that does not compile on the device, or differs from its NumPy function there;
    otherwise as `reduce()`.

    Example: ``webmm.map(x, webmm.Epilogue("x * x", np.square))``
    """
    if not function:
        raise ProblemError("map() needs a function: the name of an activation, or an Epilogue(wgsl=…, numpy=…)")
    return _map("map", x, function, device, devices)


def along(x: Operandish, function: str, axis: int, device: Device) -> Any:
    """Return the function of each element of a matrix, whatever the axis."""
    del axis
    return map(x, function, device=device)


def _map(call: str, x: Operandish, function: str | Epilogue, device: Device | None, devices: Devices | None) -> Any:
    with opened(call, device, x, devices=devices) as temporary:
        source = temporary.data(x)
        for one in temporary.devices:
            name = activation_on(one, function)
        problem = Elementwise(name, source.size, element_of(source))
        y = temporary.result(source.shape, problem.dtype, source)

        def compute(x: Array, y: Array) -> None:
            choose.run(replace(problem, size=x.size, x_offset=x.offset, y_offset=y.offset), x.device, x, y)

        if source.size:
            dense = source.numpy() if isinstance(source, Array) and not source.contiguous else source
            operands = [Labelled(dense.reshape(-1), "i")]
            in_pieces(temporary.devices, compute, operands, Labelled(y.reshape(-1), "i"), "i")
        return returned(y)


def activation_on(device: Device, activation: str | Epilogue | None) -> str:
    """Return the name of an activation, "" for None, after testing a user-defined one before its first use on a device.

    The test compiles it in a shader without other terms and, if the setting `selftest` is on, compares it with its
    NumPy function. Raises ProblemError for an unknown name, and ShaderError with the WGSL of an epilogue that fails.
    """
    name = activation_name(activation)
    if isinstance(activation, Epilogue) and name not in _tested.setdefault(device, set()):
        problem = Elementwise(name, TRIAL_SIZE, F32)
        try:
            device.pipeline(device.shader(TRIAL, problem))
        except ShaderError as error:
            raise ShaderError(f"epilogue {activation.wgsl!r}: {error}") from error
        if reason := choose.refused(TRIAL, problem, device):
            raise ShaderError(f"epilogue {activation.wgsl!r} and its NumPy function differ: {reason}")
        _tested[device].add(name)
    return name
