"""The built-in activations: for each its WGSL, a template that defines `activate(vec4f) -> vec4f`, and its NumPy twin.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]


@dataclass(frozen=True)
class Activation:
    """A built-in activation function: its template in `shaders/epilogues/` and its NumPy reference."""

    name: str
    reference: Callable[[Floats], Floats]

    @property
    def template(self) -> str:
        """The path of the WGSL file, relative to `shaders/`."""
        return f"epilogues/{self.name}.wgsl"


def relu(x: Floats) -> Floats:
    """Return max(x, 0)."""
    return np.asarray(np.maximum(x, 0))


def gelu(x: Floats) -> Floats:
    """Return x·Φ(x), the exact Gaussian error linear unit, with erf (Hendrycks and Gimpel, 2016)."""
    from math import erf

    return np.asarray(x * 0.5 * (1 + np.vectorize(erf, otypes=[np.float64])(x / np.sqrt(2))))


def gelu_tanh(x: Floats) -> Floats:
    """Return the tanh approximation of GELU, from the same paper."""
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


def silu(x: Floats) -> Floats:
    """Return x·sigmoid(x)."""
    return np.asarray(x / (1 + np.exp(-x)))


ACTIVATIONS = {f.__name__: Activation(f.__name__, f) for f in (relu, gelu, gelu_tanh, silu)}
