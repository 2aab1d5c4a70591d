"""Epilogues: the operations on each element of A·B before it is stored, ``C ← activation(alpha·A·B + bias) + beta·C``.

A built-in activation is a WGSL file that defines `activate(vec4f) -> vec4f`, and a NumPy function that defines the
expected result; a user-defined one is an `Epilogue`, which holds both.
Each term is a field of `Terms` (of `EpilogueParams` if it is a number). Its reference is a line of `Terms.reference()`
and its WGSL is part of the macro `epilogue` in `shaders/common/matrix.wgsl`; the problem, the uniform and the self-test
are derived from the field.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.errors import ProblemError
from webmm.wgsl.params import F32

Floats = NDArray[Any]
BIASES = ("", "row", "column", "matrix")


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


@dataclass(frozen=True)
class Epilogue:
    """A user-defined elementwise function, for `activation=` of `matmul()` and for `map()`.

    - `wgsl`: an expression of x, a vec4f, such as "x * x", or source code that defines
      `fn activate(x: vec4f) -> vec4f`.
    - `numpy`: the reference, a function that takes a float64 array and returns an array of the same shape. The
      self-test compares the shader with it before the first use.

    Two epilogues are equal if their WGSL is equal and their references agree on sample values.

    Raises ProblemError if `numpy` fails, or does not return an array of numbers of the same shape.

    Example: ``webmm.matmul(a, b, activation=webmm.Epilogue("x * x", np.square))``
    """

    wgsl: str
    numpy: Callable[[Floats], Floats] = field(compare=False)
    name: str = field(init=False, repr=False)  # identifies both functions in problems and shaders

    def __post_init__(self) -> None:
        try:
            values = self.reference(SAMPLES.copy())
        except Exception as error:
            raise ProblemError(f"numpy of the epilogue {self.wgsl!r} fails: {error}") from error
        if values.shape != SAMPLES.shape or values.dtype.kind not in "fiub":
            raise ProblemError(f"numpy of the epilogue {self.wgsl!r} must return an array of numbers of the same shape")
        digest = hashlib.sha256(self.wgsl.encode() + values.astype(np.float64).tobytes()).hexdigest()
        object.__setattr__(self, "name", f"own_{digest[:12]}")
        OWN[self.name] = self

    @property
    def text(self) -> str:
        """The WGSL of `activate()`; the name in a comment ties a self-test verdict to the reference, too."""
        function = f"fn activate(x: vec4f) -> vec4f {{\nreturn {self.wgsl};\n}}"
        return f"// {self.name}\n{self.wgsl if 'fn activate' in self.wgsl else function}\n"

    def reference(self, x: Floats) -> Floats:
        """Return the NumPy function's values for `x`."""
        with np.errstate(all="ignore"):
            return np.asarray(self.numpy(x))


SAMPLES = np.arange(-32, 33) / 8.0  # the values at which the NumPy functions of two epilogues are compared
OWN: dict[str, Epilogue] = {}  # user-defined, by name; never removed, since cached problems and shaders refer to them


def activation_name(activation: str | Epilogue | None) -> str:
    """Return the name of an activation, "" for None; raises ProblemError if it is unknown."""
    name = activation.name if isinstance(activation, Epilogue) else activation or ""
    if name and name not in ACTIVATIONS and name not in OWN:
        known = ", ".join(ACTIVATIONS)
        raise ProblemError(f"unknown activation {name!r}; choose from {known}, or pass an Epilogue(wgsl=…, numpy=…)")
    return name


def activation_of(name: str) -> Activation | Epilogue:
    """Return the activation called `name`, built-in or user-defined."""
    return ACTIVATIONS[name] if name in ACTIVATIONS else OWN[name]


def term(default: Any, doc: str = "", *, trial: float = 0.0, of_whole_sums: bool = False) -> Any:
    """Declare a term of the epilogue: its neutral value, and the WGSL comment of its uniform member if it is a number.

    The self-test sets a number to `trial`. A term with `of_whole_sums` is applied once, to the complete sum over k.
    """
    return field(default=default, metadata={"doc": doc, "trial": trial, "of_whole_sums": of_whole_sums})


@dataclass(frozen=True, kw_only=True)
class EpilogueParams:
    """The numbers of an epilogue, which are members of the uniform."""

    alpha: F32 = term(1.0, "factor of A·B", trial=0.5)
    beta: F32 = term(0.0, "factor of the previous C", trial=0.5)


@dataclass(frozen=True, kw_only=True)
class EpilogueSpecialisation:
    """The parameters that specialise a template to an epilogue."""

    terms: frozenset[str] = frozenset()  # the numbers that are not neutral
    bias: str = ""
    activation: str = ""


@dataclass(frozen=True, kw_only=True)
class Terms(EpilogueParams):
    """A complete epilogue: C ← activation(alpha·A·B + bias) + beta·C, with a kind of bias from BIASES.

    Raises ProblemError for an unknown kind of bias or activation.
    """

    bias: str = term("")
    activation: str = term("", of_whole_sums=True)

    def __post_init__(self) -> None:
        if self.bias not in BIASES:
            raise ProblemError(f"bias must be one of {BIASES}, not {self.bias!r}")
        activation_name(self.activation)

    @property
    def terms(self) -> frozenset[str]:
        """The names of the numbers that are not neutral."""
        return frozenset(name for name, number in NUMBERS.items() if getattr(self, name) != number.default)

    @property
    def numbers(self) -> dict[str, Any]:
        """The values of the uniform's members, by name."""
        return {name: getattr(self, name) for name in NUMBERS}

    @property
    def trial(self) -> dict[str, Any]:
        """The numbers that the self-test uses: those that are not neutral get values with exact arithmetic."""
        used = self.terms
        return {name: TRIALS[name] if name in used else number.default for name, number in NUMBERS.items()}

    @property
    def needs_whole_sum(self) -> bool:
        """Whether a term must be applied to the complete sum over k; partial sums then accumulate outside C."""
        return any(getattr(self, name) != default for name, default in OF_WHOLE_SUMS.items())

    def reference(self, product: Floats, c: Floats | float = 0.0, bias: Floats | float = 0.0) -> Floats:
        """Return the new C for the product A·B and the previous value `c` of C; `bias` broadcasts to `product`."""
        value = np.asarray(self.alpha * product + bias)
        if self.activation:
            value = activation_of(self.activation).reference(value)
        return np.asarray(value + self.beta * c)


NUMBERS = {number.name: number for number in fields(EpilogueParams)}
TRIALS: Mapping[str, Any] = {name: number.metadata["trial"] for name, number in NUMBERS.items()}
OF_WHOLE_SUMS: Mapping[str, Any] = {  # the neutral values to use for a part of k, by name
    each.name: each.default for each in fields(Terms) if each.metadata["of_whole_sums"]
}
