"""What may happen to an element of A·B before it is stored: one row per activation.

``C ← activation(alpha·A·B + bias) + beta·C``. Each activation is a WGSL file that defines `activate(vec4f) -> vec4f`,
and a NumPy function that says what it means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.errors import ProblemError

Floats = NDArray[Any]


@dataclass(frozen=True)
class Activation:
    """An activation function: its template below `shaders/epilogues/`, and its meaning in NumPy."""

    name: str
    reference: Callable[[Floats], Floats]

    @property
    def template(self) -> str:
        """Path of the WGSL file below `shaders/`."""
        return f"epilogues/{self.name}.wgsl"


def relu(x: Floats) -> Floats:
    """Return max(x, 0)."""
    return np.asarray(np.maximum(x, 0))


def gelu(x: Floats) -> Floats:
    """Return x·Φ(x), the Gaussian error linear unit, by the error function (Hendrycks and Gimpel, 2016)."""
    from math import erf

    return np.asarray(x * 0.5 * (1 + np.vectorize(erf, otypes=[np.float64])(x / np.sqrt(2))))


def gelu_tanh(x: Floats) -> Floats:
    """Return GELU's tanh approximation, from the same paper."""
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


def silu(x: Floats) -> Floats:
    """Return x·sigmoid(x)."""
    return np.asarray(x / (1 + np.exp(-x)))


ACTIVATIONS = {f.__name__: Activation(f.__name__, f) for f in (relu, gelu, gelu_tanh, silu)}


def activation_name(name: str | None) -> str:
    """Return the name of an activation, "" for none; raises ProblemError for an unknown one."""
    if name is None or name == "":
        return ""
    if name not in ACTIVATIONS:
        raise ProblemError(f"unknown activation {name!r}; choose from {', '.join(ACTIVATIONS)}")
    return name
