"""Public calls for softmax, layer norm and RMS norm."""

from __future__ import annotations

import math
from typing import Any

from webmm import choose
from webmm.calls.axes import as_ikj, axes_of, span_of
from webmm.calls.executor import Labelled
from webmm.calls.operands import Operandish, Temporaries, opened, returned
from webmm.calls.pieces import in_pieces
from webmm.calls.planned import planned
from webmm.dtypes import DType
from webmm.engine.device import Array, Device
from webmm.engine.view import element_of
from webmm.errors import ProblemError
from webmm.problems.normalise import NORMALISATIONS, Normalisation, check_normalised


@planned
def softmax(x: Operandish, axis: int = -1, *, device: Device | None = None) -> Any:
    """Return exp(x) / Σ exp(x) along `axis`, without overflow, with the shape and dtype of `x`.

    `x` is of one of `webmm.dtypes.MATRIX_DTYPES`, or float64 on devices with the feature shader-f64. Arrays and errors
    as for `reduce()`; UnsupportedError for float64 on other devices.
    """
    return _normalise(x, "softmax", axis, None, None, 0.0, device)


@planned
def layer_norm(
    x: Operandish,
    weight: Operandish | None = None,
    bias: Operandish | None = None,
    eps: float = 1e-5,
    *,
    device: Device | None = None,
) -> Any:
    """Return (x - mean) / √(variance + eps) · weight + bias along the last axis; dtypes and errors as for `softmax()`.

    `weight` and `bias` have the length of the last axis and the dtype of `x`; ProblemError otherwise. The variance is
    computed about the mean in a second pass, and divided by the number of elements (Ba, Kiros and Hinton, 2016).
    """
    return _normalise(x, "layer_norm", -1, weight, bias, eps, device)


@planned
def rms_norm(
    x: Operandish, weight: Operandish | None = None, eps: float = 1e-5, *, device: Device | None = None
) -> Any:
    """Return x / √(mean of squares + eps) · weight along the last axis (Zhang and Sennrich, 2019).

    Everything else is as for `layer_norm()`.
    """
    return _normalise(x, "rms_norm", -1, weight, None, eps, device)


def _normalise(
    x: Operandish,
    function: str,
    axis: int,
    weight: Operandish | None,
    bias: Operandish | None,
    epsilon: float,
    device: Device | None,
) -> Any:
    with opened(function, device, x) as temporary:
        source = temporary.data(x)
        (axis,) = axes_of(source, (axis,))
        dtype = element_of(source)
        capabilities = temporary.device.capabilities
        check_normalised(function, dtype, capabilities.features, capabilities.name)
        y = temporary.result(source.shape, dtype, source)
        if not source.size:
            return returned(y)
        length = source.shape[axis]
        vectors = [_vector(temporary, v, length, dtype) for v in (weight, bias) if v is not None]

        def compute(x: Array, y: Array) -> None:
            outer, length, inner = x.shape
            problem = Normalisation(
                *(NORMALISATIONS[function].operation, outer, length, inner),
                *(dtype, dtype, span_of(x), y.offset),
                function=function,
                weight=weight is not None,
                bias=bias is not None,
                epsilon=epsilon,
            )
            choose.run(problem, x.device, x, y, *vectors)

        shape = (math.prod(source.shape[:axis]), length, math.prod(source.shape[axis + 1 :]))
        operands, into = [Labelled(as_ikj(source, axis), "ikj")], Labelled(y.reshape(*shape), "ikj")
        in_pieces(temporary.device, compute, operands, into, "ij")
        return returned(y)


def _vector(temporary: Temporaries, v: Operandish, length: int, dtype: DType) -> Array:
    """Return a weight or bias on the device; raises ProblemError unless it has shape (length,) and that dtype."""
    array = temporary.array(v)
    if array.shape != (length,) or array.element != dtype:
        raise ProblemError(
            f"weight and bias must have shape ({length},) and dtype {dtype.name}, "
            f"not {array.shape} and {array.element.name}"
        )
    return array if array.contiguous and not array.offset else temporary.array(array.numpy())
