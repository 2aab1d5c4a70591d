"""Expressions of elements: the public calls, and the functions behind the arrays' operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from webmm.arguments.arrays import element_of
from webmm.arguments.elements import blocks, copy_of, expression_at, expression_for
from webmm.arguments.elements import shape_of as shape_of
from webmm.calls.devices import Devices
from webmm.calls.executor import Data, labelled
from webmm.calls.operands import Operandish, Temporaries, opened, returned
from webmm.calls.pieces import in_pieces
from webmm.calls.planned import planned
from webmm.calls.sides import binding_of, forward, spread
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
        out = None if out_dtype is None else dtype_of(out_dtype)
        problem = made(expression, {name: element_of(x) for name, x in data.items()}, numbers, out)
        return returned(expressed(temporary, problem, list(data.values())))


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, np.bool_, np.integer, np.floating))


def made(text: str, arrays: Mapping[str, DType], numbers: Mapping[str, Any], out: DType | None) -> Expression:
    """Return an expression of arrays of these dtypes and of numbers, for `expression_at()`.

    Its result has the dtype `out`, by default that of `elementwise()`.
    """
    kinds = [kind_computed(dtype) for dtype in arrays.values()]
    real = REAL in kinds or any(isinstance(x, float) for x in numbers.values())
    if real and WHOLE in kinds and REAL not in kinds:
        raise ProblemError(f"expression {shown(text)}: a float and int32 cannot be combined; cast x.astype('float32')")
    number_kind = REAL if real else WHOLE
    places = {
        **{name: (f"x{i}", kind) for i, (name, kind) in enumerate(zip(arrays, kinds, strict=True))},
        **{name: (f"s{i}", number_kind) for i, name in enumerate(numbers)},
    }
    stored = tuple(_bits(name, x, number_kind) for name, x in numbers.items())
    # If all arrays are bool, True and False are converted to bool in the shader; uniforms hold only numbers.
    truths = {name for name, x in numbers.items() if {*kinds} == {TRUTH} and isinstance(x, (bool, np.bool_))}
    general, _ = renamed(text, {name: f"bool({new})" if name in truths else new for name, (new, _) in places.items()})
    found = compiled(general, tuple(places.values()))
    natural = OF_KIND[found.kind]
    floats = [dtype for dtype, kind in dict(zip(arrays.values(), kinds, strict=True)).items() if kind == REAL]
    if natural == F32 and len(floats) == 1:
        natural = floats[0]
    out = out or natural
    if kind_computed(out) != found.kind:
        raise ProblemError(
            f"expression {shown(text)} has dtype {natural.name}; cast to {out.name} within the expression"
        )
    return expression_for(general, found.wgsl, found.kind, [*arrays.values(), out], stored, number_kind)


def _bits(name: str, x: Any, kind: str) -> int:
    try:
        return bits(scalar(x, kind))
    except ProblemError as error:
        raise ProblemError(f"{name} = {error}") from error


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


# The steps, in both languages


def expressed(call: Temporaries, problem: Expression, xs: Sequence[Data]) -> Data:
    """Return the elements of an expression of arrays, which broadcast."""
    y = call.result(shape_of([x.shape for x in xs]), problem.y.dtype, *xs)

    def compute(*arrays: Array) -> None:
        *xs, y = arrays
        evaluate(call, problem, xs, y)

    if y.size:
        in_pieces(call, compute, [labelled(x, LETTERS) for x in xs], labelled(y, LETTERS), LETTERS)
    return y


def evaluate(call: Temporaries, problem: Expression, xs: Sequence[Array], y: Array) -> None:
    """Write an expression of arrays without negative strides, which broadcast to `y`, to the elements of `y`.

    It takes one dispatch, or several if an array exceeds a binding.
    """
    operands: list[Any] = [spread(call, x, y.shape) for x in xs]
    for block in blocks([*operands, y], binding_of(call, y)):
        call.run(expression_at(problem, block), *operands, y)


def copy_into(call: Temporaries, x: Data, y: Array) -> None:
    """Copy `x` into `y`, a view of the same shape."""
    problem = copy_of(element_of(x), element_of(y))
    if y.size:
        evaluate(call, problem, [forward(call, x)], y)
