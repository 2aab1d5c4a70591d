"""Public calls for softmax, layer norm and RMS norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webmm.arguments.arrays import element_of
from webmm.arguments.rows import axes_of, check_vector, ikj_shape, normalisation_of
from webmm.calls.devices import Devices
from webmm.calls.executor import Data, labelled
from webmm.calls.operands import Operandish, Temporaries, number, opened, returned
from webmm.calls.pieces import in_pieces
from webmm.calls.planned import planned
from webmm.calls.sides import from_start, reshaped
from webmm.calls.views import as_ikj
from webmm.dtypes import DType
from webmm.engine.device import Array, Device
from webmm.problems.normalise import check_normalised


@planned
def softmax(
    x: Operandish, axis: int = -1, *, device: Device | str | None = None, devices: Devices | None = None
) -> Any:
    """Return exp(x) / Σ exp(x) along `axis`, without overflow, with the shape and dtype of `x`.

    `x` is of one of `webmm.dtypes.MATRIX_DTYPES`, or float64 on devices with the feature shader-f64. Arrays and errors
    and `devices` as for `reduce()`; UnsupportedError for float64 on other devices.
    """
    return _normalise(x, "softmax", axis, None, None, 0.0, device, devices)


@planned
def layer_norm(
    x: Operandish,
    weight: Operandish | None = None,
    bias: Operandish | None = None,
    eps: float = 1e-5,
    *,
    device: Device | str | None = None,
    devices: Devices | None = None,
) -> Any:
    """Return (x - mean) / √(variance + eps) · weight + bias along the last axis; dtypes and errors as for `softmax()`.

    `weight` and `bias` have the length of the last axis and the dtype of `x`; ProblemError otherwise. The variance is
    computed about the mean in a second pass, and divided by the number of elements (Ba, Kiros and Hinton, 2016).
    """
    return _normalise(x, "layer_norm", -1, weight, bias, eps, device, devices)


@planned
def rms_norm(
    x: Operandish,
    weight: Operandish | None = None,
    eps: float = 1e-5,
    *,
    device: Device | str | None = None,
    devices: Devices | None = None,
) -> Any:
    """Return x / √(mean of squares + eps) · weight along the last axis (Zhang and Sennrich, 2019).

    Everything else is as for `layer_norm()`.
    """
    return _normalise(x, "rms_norm", -1, weight, None, eps, device, devices)


def along(x: Any, function: str, axis: int, device: Device) -> Any:
    """Return a normalisation of a matrix along an axis; norms along the first are those of the transpose."""
    if function == "softmax":
        return softmax(x, axis, device=device)
    norm: Callable[..., Any] = layer_norm if function == "layer_norm" else rms_norm
    return norm(x, device=device) if axis else norm(x.T, device=device).T


def _normalise(
    x: Operandish,
    function: str,
    axis: int,
    weight: Operandish | None,
    bias: Operandish | None,
    epsilon: float,
    device: Device | str | None,
    devices: Devices | None,
) -> Any:
    epsilon = number("eps", epsilon)
    with opened(function, device, *(v for v in (x, weight, bias) if v is not None), devices=devices) as call:
        return returned(normalised(call, call.data(x), function, axis, weight, bias, epsilon))


# The steps, in both languages


def normalised(
    call: Temporaries,
    x: Data,
    function: str,
    axis: int,
    weight: Operandish | None,
    bias: Operandish | None,
    epsilon: float,
) -> Data:
    """Return `x` normalised along an axis."""
    (axis,) = axes_of(x, (axis,))
    dtype = element_of(x)
    for one in call.devices:
        check_normalised(function, dtype, one.capabilities.features, one.capabilities.name)
    y = call.result(x.shape, dtype, x)
    if not x.size:
        return y
    vectors = [_vector(call, v, x.shape[axis], dtype) for v in (weight, bias) if v is not None]

    def compute(x: Array, *others: Array) -> None:
        *vectors, y = others
        problem = normalisation_of(function, x, y, weight is not None, bias is not None, epsilon)
        call.run(problem, x, y, *vectors)

    operands = [labelled(as_ikj(call, x, axis), "ikj"), *(labelled(v, "k", anywhere=False) for v in vectors)]
    in_pieces(call, compute, operands, labelled(reshaped(y, ikj_shape(x, axis)), "ikj"), "ij")
    return y


def _vector(call: Temporaries, v: Operandish, length: int, dtype: DType) -> Data:
    """Return a weight or bias; raises ProblemError unless it has shape (length,) and that dtype."""
    vector = call.data(v)
    check_vector(vector, length, dtype)
    return from_start(call, vector)
