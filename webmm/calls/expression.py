"""Expressions of elements: the public calls, and the functions behind the arrays' operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from webmm import choose
from webmm.arguments.arrays import element_of
from webmm.arguments.elements import Block, blocks, expression_at, expression_for
from webmm.arguments.elements import shape_of as shape_of
from webmm.calls.devices import Devices
from webmm.calls.executor import Data, Labelled
from webmm.calls.operands import Operandish, opened, returned
from webmm.calls.pieces import in_pieces
from webmm.calls.planned import planned
from webmm.choose.limits import dispatch_limits
from webmm.dtypes import BOOL, COMPUTED, F32, I32, DType, dtype_of, names
from webmm.engine.device import Array, Device
from webmm.errors import ProblemError
from webmm.problems.expression import Expression
from webmm.wgsl import expressions
from webmm.wgsl.expressions import REAL, TRUTH, WHOLE, bits, compiled, renamed, scalar, shown

LETTERS = "abcdefghijklmnopqrstuvwxyz"
OF_KIND = {REAL: F32, WHOLE: I32, TRUTH: BOOL}


def kind_computed(dtype: DType) -> str:
    """Return the kind of expression that computes elements of `dtype`; raises ProblemError if there is none."""
    if dtype not in COMPUTED:
        raise ProblemError(f"dtype {dtype.name} is not supported by expressions; cast to one of {names(COMPUTED)}")
    return expressions.kind_of(dtype)


@planned
def elementwise(
    expression: str,
    *,
    out_dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    devices: Devices | None = None,
    **operands: Operandish,
) -> Any:
    """Return an expression of the elements of arrays, computed in one pass, with the operands' broadcast shape.

    Arguments:

    - `expression`: Python syntax with + - * / and comparisons, & | ~ of booleans, ``where(condition, x, y)``, and
      `webmm.wgsl.expressions.FUNCTIONS`: exp, log, sqrt, tanh, sigmoid, relu,
      gelu, gelu_tanh, silu, abs, maximum, minimum, isnan, float32, int32, bool.
    - `operands`: the values of its names: up to four arrays of float32, float16, bfloat16, int32 or bool, and up to
      four Python numbers, which take the kind of the arrays, float or int.
    - `out_dtype`: the dtype of the result, by default float32, int32 or bool, or the float dtype of the arrays if they
      have only one.
    - `device`: by default the device of the operands, or the most capable adapter.
    - `devices`: "all" or a list of Devices, among which a call on NumPy arrays is divided.

    Floats are computed in float32. Returns a NumPy array (a scalar if no axis is left), or an `Array` on the same
    device if an operand is one.

    Raises ProblemError for an invalid or too large expression, for numbers that do not fit their kind, and for kinds or
    shapes that cannot be combined; otherwise as `reduce()`.

    Example: ``webmm.elementwise("exp(x) * y + 1", x=x, y=y)``
    """
    numbers = {name: x.item() if isinstance(x, np.generic) else x for name, x in operands.items() if _is_number(x)}
    given = {name: x for name, x in operands.items() if name not in numbers}
    with opened("elementwise", device, *given.values(), devices=devices) as temporary:
        data = {name: temporary.data(x) for name, x in given.items()}
        shape = shape_of([x.shape for x in data.values()])
        make = Maker(expression, {name: element_of(x) for name, x in data.items()}, numbers, out_dtype)
        y = temporary.result(shape, make.out, *data.values())
        if y.size:
            fill(temporary.devices, make, list(data.values()), y)
        return returned(y)


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, np.bool_, np.integer, np.floating))


class Maker:
    """Makes the problems of one expression, for given dtypes and numbers and arrays of any shape."""

    def __init__(
        self, text: str, arrays: Mapping[str, DType], numbers: Mapping[str, Any], out_dtype: DTypeLike | None
    ) -> None:
        kinds = [kind_computed(dtype) for dtype in arrays.values()]
        real = REAL in kinds or any(isinstance(x, float) for x in numbers.values())
        if real and WHOLE in kinds and REAL not in kinds:
            raise ProblemError(
                f"expression {shown(text)}: a float and int32 cannot be combined; cast x.astype('float32')"
            )
        self._number_kind = REAL if real else WHOLE
        places = {
            **{name: (f"x{i}", kind) for i, (name, kind) in enumerate(zip(arrays, kinds, strict=True))},
            **{name: (f"s{i}", self._number_kind) for i, name in enumerate(numbers)},
        }
        self._numbers = tuple(_bits(name, x, self._number_kind) for name, x in numbers.items())
        # If all arrays are bool, True and False are converted to bool in the shader; uniforms hold only numbers.
        truths = {name for name, x in numbers.items() if {*kinds} == {TRUTH} and isinstance(x, (bool, np.bool_))}
        self._text, _ = renamed(
            text, {name: f"bool({new})" if name in truths else new for name, (new, _) in places.items()}
        )
        self._compiled = compiled(self._text, tuple(places.values()))
        natural = OF_KIND[self._compiled.kind]
        floats = [dtype for dtype in dict.fromkeys(arrays.values()) if kind_computed(dtype) == REAL]
        if natural == F32 and len(floats) == 1:
            natural = floats[0]
        self.out = natural if out_dtype is None else dtype_of(out_dtype)
        if kind_computed(self.out) != self._compiled.kind:
            raise ProblemError(
                f"expression {shown(text)} has dtype {natural.name}; cast to {self.out.name} within the expression"
            )

    def run(self, operands: Sequence[Array], y: Array) -> None:
        """Write the elements to `y`; all arrays have its shape, and no negative strides.

        It takes one dispatch, or several if an array exceeds a binding.
        """
        for block in blocks([*operands, y], dispatch_limits(y.device).binding):
            choose.run(self.problem(block, operands), y.device, *operands, y)

    def problem(self, block: Block, operands: Sequence[Array]) -> Expression:
        """Return the problem for elements of arrays, y not among them."""
        dtypes, found = [*(x.element for x in operands), self.out], self._compiled
        whole = expression_for(self._text, found.wgsl, found.kind, dtypes, self._numbers, self._number_kind)
        return expression_at(whole, block)


def _bits(name: str, x: Any, kind: str) -> int:
    try:
        return bits(scalar(x, kind))
    except ProblemError as error:
        raise ProblemError(f"{name} = {error}") from error


def fill(devices: list[Device], make: Maker, data: Sequence[Data], y: Data) -> None:
    """Fill `y` with the expression of arrays that broadcast to its shape."""
    letters = LETTERS[: y.ndim]
    operands = [_labelled(x, letters) for x in data]

    def compute(*arrays: Array) -> None:
        *xs, target = arrays
        axes = [tuple(slice(None) if letter in one.axes else None for letter in letters) for one in operands]
        make.run([x[each].broadcast_to(target.shape) for x, each in zip(xs, axes, strict=True)], target)

    in_pieces(devices, compute, operands, Labelled(y, letters), letters)


def _labelled(x: Data, letters: str) -> Labelled:
    """Return an operand with letters for its axes, without the axes of length 1, which broadcast."""
    kept = [i for i, length in enumerate(x.shape) if length != 1]
    index = tuple(slice(None) if i in kept else 0 for i in range(x.ndim))
    return Labelled(x[index], "".join(letters[len(letters) - x.ndim + i] for i in kept))


def where(condition: Operandish, x: Operandish, y: Operandish) -> Any:
    """Return the elements of `x` where `condition` is true, and those of `y` elsewhere, as NumPy's `where()`.

    The three operands broadcast; `condition` is bool. Dtypes, devices and errors as in `elementwise()`.
    """
    return elementwise("where(c, x, y)", c=condition, x=x, y=y)


def copied(x: Array) -> Array:
    """Return a dense copy of `x` on its device; it is made through the host for dtypes that expressions do not have."""
    copy: Array = elementwise("x", x=x) if x.element in COMPUTED else x.device.array(x.numpy())
    return copy


def astype(x: Operandish, dtype: DTypeLike) -> Any:
    """Return a copy of `x` converted to `dtype`, with NumPy's rules: floats are rounded towards zero for int32.

    Floats beyond the range of int32 become the nearest int32, and NaN becomes 0.

    `dtype` is float32, float16, bfloat16, int32 or bool. Devices and errors as in `elementwise()`.
    """
    target = dtype_of(dtype)
    if kind_computed(target) == REAL:
        return elementwise("float32(x)", x=x, out_dtype=target.name)
    return elementwise(f"{target.name}(x)", x=x)
