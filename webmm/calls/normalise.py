"""Softmax and normalisations: the calls."""

from __future__ import annotations

from typing import Any

from webmm.calls.operands import Operandish, Temporaries, opened, returned
from webmm.calls.reduce import axes_of, piece_in_place, run_in_parts
from webmm.engine.array import Array
from webmm.engine.device import Device
from webmm.errors import ProblemError
from webmm.problems.normalise import NORMALISATIONS, Normalisation


def softmax(x: Operandish, axis: int = -1, *, device: Device | None = None) -> Any:
    """Return exp(x) / Σ exp(x) along `axis`, without overflow; shapes, types and errors as in `reduce()`."""
    return _normalise(x, "softmax", axis, None, None, 0.0, device)


def layer_norm(
    x: Operandish,
    weight: Operandish | None = None,
    bias: Operandish | None = None,
    eps: float = 1e-5,
    *,
    device: Device | None = None,
) -> Any:
    """Return (x - mean) / √(variance + eps) · weight + bias along the last axis; types and errors as `reduce()`.

    `weight` and `bias` have the last axis's length and the type of `x`. The variance is taken about the mean, in a pass
    of its own, and divided by the number of elements (Ba, Kiros and Hinton, 2016).
    """
    return _normalise(x, "layer_norm", -1, weight, bias, eps, device)


def rms_norm(
    x: Operandish, weight: Operandish | None = None, eps: float = 1e-5, *, device: Device | None = None
) -> Any:
    """Return x / √(mean of squares + eps) · weight along the last axis (Zhang and Sennrich, 2019).

    Everything else as in `layer_norm()`.
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
    with opened(function, x, device) as (temporary, source):
        (axis,) = axes_of(source, (axis,))
        y = source.device.empty(source.shape, source.dtype)
        if not source.size:
            return returned(y, x)
        length = source.shape[axis]
        vectors = [_vector(temporary, v, length, source) for v in (weight, bias) if v is not None]
        piece = piece_in_place(source, axis)
        if piece is None:
            source = temporary.array(source.numpy())
            piece = piece_in_place(source, axis)
        assert piece is not None, "dense arrays are one piece"
        problem = Normalisation(
            *(NORMALISATIONS[function].operation, piece.outer, piece.length, piece.inner),
            *(source.dtype, source.dtype, piece.span),
            function=function,
            weight=weight is not None,
            bias=bias is not None,
            epsilon=epsilon,
        )
        run_in_parts(problem, source, y, *vectors)
        return returned(y, x)


def _vector(temporary: Temporaries, v: Operandish, length: int, x: Array) -> Array:
    """Return a weight or bias on the device; raises ProblemError where it is not (length,) of the type of `x`."""
    array = temporary.array(v)
    if array.shape != (length,) or array.dtype != x.dtype:
        raise ProblemError(
            f"weight and bias must have shape ({length},) and dtype {x.dtype.name}, "
            f"not {array.shape} and {array.dtype.name}"
        )
    return array if array.contiguous and not array.offset else temporary.array(array.numpy())
