"""Epilogues: the operations on each element of A·B before it is stored, ``C ← activation(alpha·A·B + bias) + beta·C``.

An activation is a built-in one (`webmm.wgsl.activations`), or a function of a user's own, an `Epilogue`
(`webmm.wgsl.own`), which may have numbers and operands.
Each term is a field of `Terms` (of `EpilogueParams` if it is a number). Its reference is a line of `Terms.reference()`
and its WGSL is part of the macro `epilogue` in `shaders/common/matrix.wgsl`; the problem, the uniform and the self-test
are derived from the field.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.dtypes import DType
from webmm.errors import ProblemError
from webmm.wgsl.activations import ACTIVATIONS as ACTIVATIONS
from webmm.wgsl.functions import MAX_NUMBERS, MAX_OPERANDS
from webmm.wgsl.functions import OWN as OWN
from webmm.wgsl.functions import activation_name as activation_name
from webmm.wgsl.functions import activation_of as activation_of
from webmm.wgsl.params import F32, U32, Vec4F, Vec4U, member

BIASES = ("", "row", "column", "matrix")
Floats = NDArray[Any]


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
    operands: tuple[DType, ...] = ()  # the element types of the function's operands
    batched: bool = False  # whether an operand differs between the matrices of a batch
    vec_y: bool = False  # the operands are bound as vec4, if those for four adjacent elements of C are adjacent, too
    inlined: bool = False  # whether the function is statements instead of activate()


@dataclass(frozen=True)
class Spread:
    """The layout of an operand of a function, over the elements of C; strides are 0 along axes that it repeats."""

    dtype: DType
    offset: int = 0
    batch: int = 0  # strides between matrices, rows and columns
    row: int = 0
    column: int = 0

    def moved(self, axis: str, by: int) -> Spread:
        """Return the operand from place `by` on along an axis of a product."""
        step = {"batch": self.batch, "m": self.row, "n": self.column}.get(axis, 0)
        return replace(self, offset=self.offset + by * step)

    def end(self, rows: int, columns: int, batch: int) -> int:
        """Return the index after its last element, for that many matrices."""
        return self.offset + (batch - 1) * self.batch + (rows - 1) * self.row + (columns - 1) * self.column + 1

    @property
    def by_fours(self) -> bool:
        """Whether it can be accessed as vec4, if C can."""
        return self.column == 1 and all(each % 4 == 0 for each in (self.offset, self.batch, self.row))

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Its member of the uniform."""
        return self.offset, self.batch, self.row, self.column


@dataclass(frozen=True, kw_only=True)
class Applied:
    """The activation that is applied to the result: built-in, or a user's own function with numbers and operands.

    Raises ProblemError for an unknown activation, and for others than it takes.
    """

    activation: str = term("", of_whole_sums=True)
    values: tuple[float, ...] = term((), of_whole_sums=True)
    spreads: tuple[Spread, ...] = term((), of_whole_sums=True)

    def __post_init__(self) -> None:
        activation_name(self.activation)

    def check_function(self) -> None:
        """Raise ProblemError unless there are as many numbers and operands as the function takes."""
        own = OWN.get(self.activation)
        needed = (own.numbers, len(own.kinds)) if own is not None else (0, 0)
        if needed != (len(self.values), len(self.spreads)):
            raise ProblemError(
                f"activation {self.activation!r} takes {needed[0]} numbers and {needed[1]} operands, not "
                f"{len(self.values)} and {len(self.spreads)}"
            )

    @property
    def specialised(self) -> dict[str, Any]:
        """What specialises a template to the activation."""
        dtypes = tuple(spread.dtype for spread in self.spreads)
        return {
            "activation": self.activation,
            "operands": dtypes,
            "batched": any(x.batch for x in self.spreads),
            "inlined": in_uniform(self.activation),
        }

    @property
    def operand_places(self) -> dict[str, tuple[str, str]]:
        """The places of the operands' elements for C[row, column] of matrix z, and their numbers, as formulas."""
        return {
            y: (
                f"{y}.x + z * {y}.y + row * {y}.z + column * {y}.w",
                f"{y}.x + (batch - 1) * {y}.y + (m - 1) * {y}.z + (n - 1) * {y}.w + 1",
            )
            for y in (f"y{i}" for i in range(len(self.spreads)))
        }

    def applied(self, x: Floats, operands: Sequence[Any] = ()) -> Floats:
        """Return the activation of `x`, to which the operands broadcast."""
        own = OWN.get(self.activation)
        if own is not None:
            return own.reference(x, self.values, operands)
        return ACTIVATIONS[self.activation].reference(x) if self.activation else x


def in_uniform(activation: str) -> bool:
    """Tell whether a shader with an activation reads members of `FunctionParams`."""
    own = OWN.get(activation)
    return own is not None and not own.plain


@dataclass(frozen=True, kw_only=True)
class FunctionParams:
    """Further members of the uniform for an expression of a user's own: its numbers, and where its operands are."""

    numbers: Vec4F = member("of the epilogue's function")
    y0: Vec4U = member("its operands: first element, strides between matrices, rows and columns")
    y1: Vec4U = member("")
    y2: Vec4U = member("")
    zero: U32 = member("0, which compilers do not know")

    @classmethod
    def members(cls, p: Applied) -> dict[str, Any]:
        """Return the values of these members for the problem `p`."""
        none = (0, 0, 0, 0)
        y0, y1, y2 = (*(spread.strides for spread in p.spreads), *(none for _ in range(MAX_OPERANDS - len(p.spreads))))
        s0, s1, s2, s3 = (*p.values, *(0.0 for _ in range(MAX_NUMBERS - len(p.values))))
        return {"numbers": (s0, s1, s2, s3), "y0": y0, "y1": y1, "y2": y2, "zero": 0}


@dataclass(frozen=True, kw_only=True)
class Terms(Applied, EpilogueParams):
    """A complete epilogue: C ← activation(alpha·A·B + bias) + beta·C, with a kind of bias from BIASES.

    Raises ProblemError for an unknown kind of bias or activation.
    """

    bias: str = term("")

    def __post_init__(self) -> None:
        if self.bias not in BIASES:
            raise ProblemError(f"bias must be one of {BIASES}, not {self.bias!r}")
        super().__post_init__()

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

    def reference(
        self, product: Floats, c: Floats | float = 0.0, bias: Floats | float = 0.0, operands: Sequence[Any] = ()
    ) -> Floats:
        """Return the new C for the product A·B and the previous value `c` of C; bias and operands broadcast to it."""
        value = self.applied(np.asarray(self.alpha * product + bias), operands)
        return np.asarray(value + self.beta * c)


NUMBERS = {number.name: number for number in fields(EpilogueParams)}
TRIAL_VALUES = (0.5, 0.75, 1.25, 1.5)  # the numbers of a user's own function in the self-test
TRIALS: Mapping[str, Any] = {name: number.metadata["trial"] for name, number in NUMBERS.items()}
OF_WHOLE_SUMS: Mapping[str, Any] = {  # the neutral values to use for a part of k, by name
    each.name: each.default for each in fields(Terms) if each.metadata["of_whole_sums"]
}
