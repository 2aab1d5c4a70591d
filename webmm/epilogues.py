"""What may happen to an element of A·B before it is stored: ``C ← activation(alpha·A·B + bias) + beta·C``.

Each activation is a WGSL file that defines `activate(vec4f) -> vec4f`, and a NumPy function that says what it means;
one of one's own is an `Epilogue`, whose text is in the program that makes it.
Each term is a field, of `EpilogueParams` if it is a number, its meaning a line of `Terms.reference()`, and its WGSL
some of the macro `epilogue` in `shaders/common/matrix.wgsl`; problem, uniform and self-test know it from there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.errors import ProblemError
from webmm.params import F32

Floats = NDArray[Any]
BIASES = ("", "row", "column", "matrix")


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


@dataclass(frozen=True)
class Epilogue:
    """A function of single elements of one's own: for `activation=` of `matmul()`, and for `map()`.

    `wgsl` is an expression of x, a vec4f, such as "x * x", or a text that defines `fn activate(x: vec4f) -> vec4f`.
    `numpy` says what it means: it takes an array of float64 and returns one of the same shape. Both are the same where
    text and meaning are. Raises ProblemError where `numpy` is no such function.
    """

    wgsl: str
    numpy: Callable[[Floats], Floats] = field(compare=False)
    name: str = field(init=False, repr=False)  # what problems call it; it stands for both

    def __post_init__(self) -> None:
        try:
            meaning = self.reference(PROBED.copy())
        except Exception as error:
            raise ProblemError(f"numpy of the epilogue {self.wgsl!r} fails: {error}") from error
        if meaning.shape != PROBED.shape or meaning.dtype.kind not in "fiub":
            raise ProblemError(f"numpy of the epilogue {self.wgsl!r} must return numbers, as many as it takes")
        digest = hashlib.sha256(self.wgsl.encode() + meaning.astype(np.float64).tobytes()).hexdigest()
        object.__setattr__(self, "name", f"own_{digest[:12]}")
        OWN[self.name] = self

    @property
    def text(self) -> str:
        """The WGSL of `activate()`; with its name, so that a text that was proven has this very meaning."""
        function = f"fn activate(x: vec4f) -> vec4f {{\nreturn {self.wgsl};\n}}"
        return f"// {self.name}\n{self.wgsl if 'fn activate' in self.wgsl else function}\n"

    def reference(self, x: Floats) -> Floats:
        """Return what it makes of each element."""
        with np.errstate(all="ignore"):
            return np.asarray(self.numpy(x))


PROBED = np.arange(-32, 33) / 8.0  # where two functions of NumPy are compared
OWN: dict[str, Epilogue] = {}  # by name; they stay, as problems and shaders that are kept name them


def activation_name(activation: str | Epilogue | None) -> str:
    """Return the name of an activation, "" for none; raises ProblemError for an unknown one."""
    name = activation.name if isinstance(activation, Epilogue) else activation or ""
    if name and name not in ACTIVATIONS and name not in OWN:
        known = ", ".join(ACTIVATIONS)
        raise ProblemError(f"unknown activation {name!r}; choose from {known}, or write an Epilogue(wgsl=…, numpy=…)")
    return name


def activation_of(name: str) -> Activation | Epilogue:
    """Return the activation of that name, ours or one's own."""
    return ACTIVATIONS[name] if name in ACTIVATIONS else OWN[name]


def term(default: Any, doc: str = "", *, trial: float = 0.0, of_whole_sums: bool = False) -> Any:
    """Declare a term of the epilogue by the value with which it changes nothing, and the comment of a number in WGSL.

    `trial` is what the self-test sets a number to. A term `of_whole_sums` is applied once, to the sum over all of k.
    """
    return field(default=default, metadata={"doc": doc, "trial": trial, "of_whole_sums": of_whole_sums})


@dataclass(frozen=True, kw_only=True)
class EpilogueParams:
    """The numbers of an epilogue: members of the uniform."""

    alpha: F32 = term(1.0, "factor of A·B", trial=0.5)
    beta: F32 = term(0.0, "factor of what C holds before", trial=0.5)


@dataclass(frozen=True, kw_only=True)
class EpilogueSpecialisation:
    """The choices of a template for an epilogue."""

    terms: frozenset[str] = frozenset()  # the numbers that change anything
    bias: str = ""
    activation: str = ""


@dataclass(frozen=True, kw_only=True)
class Terms(EpilogueParams):
    """All of an epilogue: C ← activation(alpha·A·B + bias) + beta·C; bias is one of BIASES: what it lies along.

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
        """The numbers that change anything."""
        return frozenset(name for name, number in NUMBERS.items() if getattr(self, name) != number.default)

    @property
    def numbers(self) -> dict[str, Any]:
        """What goes into the uniform, by name."""
        return {name: getattr(self, name) for name in NUMBERS}

    @property
    def trial(self) -> dict[str, Any]:
        """What the self-test takes for the numbers: those that change anything then do so by exact arithmetic."""
        used = self.terms
        return {name: TRIALS[name] if name in used else number.default for name, number in NUMBERS.items()}

    @property
    def needs_whole_sum(self) -> bool:
        """Whether any of it is applied once, to the sum over all of k: parts of k then add up beside C."""
        return any(getattr(self, name) != default for name, default in OF_WHOLE_SUMS.items())

    def reference(self, product: Floats, c: Floats | float = 0.0, bias: Floats | float = 0.0) -> Floats:
        """Return what becomes of `product`, A·B, where C held `c`; `bias` broadcasts to it."""
        value = np.asarray(self.alpha * product + bias)
        if self.activation:
            value = activation_of(self.activation).reference(value)
        return np.asarray(value + self.beta * c)


NUMBERS = {number.name: number for number in fields(EpilogueParams)}
TRIALS: Mapping[str, Any] = {name: number.metadata["trial"] for name, number in NUMBERS.items()}
OF_WHOLE_SUMS: Mapping[str, Any] = {  # what to set for a part of k, by name
    each.name: each.default for each in fields(Terms) if each.metadata["of_whole_sums"]
}
