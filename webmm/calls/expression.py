"""Expressions of elements: the public calls, and the functions behind the arrays' operators."""

from __future__ import annotations

import ast
import itertools
import math
import operator
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from webmm import choose
from webmm.calls.operands import Operandish, Temporaries, opened, returned
from webmm.calls.parts import broadcast_shape
from webmm.calls.pieces import Data, Labelled, in_pieces
from webmm.calls.planned import planned
from webmm.dtypes import BOOL, COMPUTED, F32, I32, DType, dtype_of, names
from webmm.engine.array import Array, element_of
from webmm.engine.device import Device
from webmm.errors import ProblemError
from webmm.expressions import REAL, TRUTH, WHOLE, compiled
from webmm.problems.expression import AXES, Expression, Quad, Strided

LETTERS = "abcdefghijklmnopqrstuvwxyz"
OF_KIND = {REAL: F32, WHOLE: I32, TRUTH: BOOL}


def kind_of(dtype: DType) -> str:
    """Return the kind of expression that computes elements of `dtype`; raises ProblemError if there is none."""
    if dtype not in COMPUTED:
        raise ProblemError(f"dtype {dtype.name} is not supported by expressions; cast to one of {names(COMPUTED)}")
    return WHOLE if dtype == I32 else TRUTH if dtype == BOOL else REAL


@planned
def elementwise(
    expression: str, *, out_dtype: DTypeLike | None = None, device: Device | None = None, **operands: Operandish
) -> Any:
    """Return an expression of the elements of arrays, computed in one pass, with the operands' broadcast shape.

    Arguments:

    - `expression`: Python syntax with + - * / and comparisons, & | ~ of booleans, ``where(condition, x, y)``, and the
      functions in `webmm.expressions.FUNCTIONS`: exp, log, sqrt, tanh, abs, maximum, minimum, float32, int32, bool.
    - `operands`: the values of its names: up to four arrays of float32, float16, bfloat16, int32 or bool, and up to
      four Python numbers, which take the kind of the arrays, float or int.
    - `out_dtype`: the dtype of the result, by default float32, int32 or bool, or the float dtype of the arrays if they
      have only one.
    - `device`: by default the device of the operands, or the most capable adapter.

    Floats are computed in float32. Returns a NumPy array (a scalar if no axis is left), or an `Array` on the same
    device if an operand is one.

    Raises ProblemError for an invalid expression, and for kinds or shapes that cannot be combined; otherwise as
    `reduce()`.

    Example: ``webmm.elementwise("exp(x) * y + 1", x=x, y=y)``
    """
    numbers = {name: x.item() if isinstance(x, np.generic) else x for name, x in operands.items() if _is_number(x)}
    given = {name: x for name, x in operands.items() if name not in numbers}
    with opened("elementwise", device, *given.values()) as temporary:
        data = {name: temporary.data(x) for name, x in given.items()}
        shape = shape_of([x.shape for x in data.values()])
        make = _Maker(expression, {name: element_of(x) for name, x in data.items()}, numbers, out_dtype)
        y = temporary.result(shape, make.out, *data.values())
        if y.size:
            fill(temporary.device, make, list(data.values()), y)
        return returned(y)


def shape_of(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the broadcast shape by NumPy's rules; raises ProblemError if the shapes do not broadcast."""
    whole: tuple[int, ...] = ()
    for shape in shapes:
        common = broadcast_shape(whole, shape)
        if common is None:
            raise ProblemError(f"shapes {', '.join(map(str, shapes))} do not broadcast")
        whole = common
    return whole


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, np.bool_, np.integer, np.floating))


class _Maker:
    """Makes the problems of one expression, for given dtypes and numbers and arrays of any shape."""

    def __init__(
        self, text: str, arrays: Mapping[str, DType], numbers: Mapping[str, Any], out_dtype: DTypeLike | None
    ) -> None:
        kinds = [kind_of(dtype) for dtype in arrays.values()]
        real = REAL in kinds or any(isinstance(x, float) for x in numbers.values())
        if real and WHOLE in kinds and REAL not in kinds:
            raise ProblemError(f"expression {text!r}: a float and int32 cannot be combined; cast x.astype('float32')")
        self._number_kind = REAL if real else WHOLE
        renamed = {
            **{name: (f"x{i}", kind) for i, (name, kind) in enumerate(zip(arrays, kinds, strict=True))},
            **{name: (f"s{i}", self._number_kind) for i, name in enumerate(numbers)},
        }
        self._numbers = tuple(_bits(name, x, self._number_kind) for name, x in numbers.items())
        # If all arrays are bool, True and False are converted to bool in the shader; uniforms hold only numbers.
        truths = {name for name, x in numbers.items() if {*kinds} == {TRUTH} and isinstance(x, (bool, np.bool_))}
        self._text = _renamed(
            text, {name: f"bool({new})" if name in truths else new for name, (new, _) in renamed.items()}
        )
        self._compiled = compiled(self._text, tuple(renamed.values()))
        natural = OF_KIND[self._compiled.kind]
        floats = [dtype for dtype in dict.fromkeys(arrays.values()) if kind_of(dtype) == REAL]
        if natural == F32 and len(floats) == 1:
            natural = floats[0]
        self.out = natural if out_dtype is None else dtype_of(out_dtype)
        if kind_of(self.out) != self._compiled.kind:
            raise ProblemError(
                f"expression {text!r} has dtype {natural.name}; cast to {self.out.name} within the expression"
            )

    def problem(
        self,
        lengths: Sequence[int],
        strides: Sequence[Sequence[int]],
        offsets: Sequence[int],
        operands: Sequence[Array],
    ) -> Expression:
        """Return the problem for arrays with these strides and offsets, y last, over at most four axes."""
        arrays = [
            Strided(dtype, _quad(steps, 0), offset)
            for dtype, steps, offset in zip((*(x.element for x in operands), self.out), strides, offsets, strict=True)
        ]
        found = self._compiled
        return Expression(
            *(self._text, found.wgsl, found.kind, _quad(lengths, 1), tuple(arrays[:-1]), arrays[-1]),
            numbers=self._numbers,
            number_kind=self._number_kind,
        )


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Return an expression with its names replaced, so that expressions that differ only in names share a shader."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise ProblemError(f"{text!r} is not an expression: {error.msg}") from error
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and id(node) not in called:
            if node.id not in names:
                raise ProblemError(f"expression {text!r}: {node.id} was not given; the operands are {', '.join(names)}")
            node.id = names[node.id]
    return ast.unparse(tree)


def _bits(name: str, x: Any, kind: str) -> int:
    try:
        return int.from_bytes(struct.pack("<f" if kind == REAL else "<i", x), "little")
    except (struct.error, OverflowError) as error:
        raise ProblemError(f"{name} = {x} does not fit {OF_KIND[kind].name}") from error


def _quad(values: Sequence[int], fill: int) -> Quad:
    a, b, c, d = (*(fill,) * (AXES - len(values)), *values)
    return a, b, c, d


def fill(device: Device, make: _Maker, data: Sequence[Data], y: Data) -> None:
    """Fill `y` with the expression of arrays that broadcast to its shape."""
    letters = LETTERS[: y.ndim]
    operands = [_labelled(x, letters) for x in data]

    def compute(*arrays: Array) -> None:
        *xs, target = arrays
        for x in dispatches(make, [(x, one.axes) for x, one in zip(xs, operands, strict=True)], target, letters):
            choose.run(x, device, *xs, target)

    in_pieces(device, compute, operands, Labelled(y, letters), letters)


def _labelled(x: Data, letters: str) -> Labelled:
    """Return an operand with letters for its axes, without the axes of length 1, which broadcast."""
    kept = [i for i, length in enumerate(x.shape) if length != 1]
    index = tuple(slice(None) if i in kept else 0 for i in range(x.ndim))
    return Labelled(x[index], "".join(letters[len(letters) - x.ndim + i] for i in kept))


def dispatches(make: _Maker, operands: Sequence[tuple[Array, str]], y: Array, letters: str) -> list[Expression]:
    """Return the problems that compute `y`: one, unless more than four axes are left after merging adjacent ones."""
    everything = [dict(zip(axes, x.strides, strict=True)) for x, axes in (*operands, (y, letters))]
    axes: list[tuple[int, list[int]]] = []
    for letter, length in zip(letters, y.shape, strict=True):
        steps = [strides.get(letter, 0) for strides in everything]
        if length == 1:
            continue
        if axes and all(far == near * length for far, near in zip(axes[-1][1], steps, strict=True)):
            axes[-1] = (axes[-1][0] * length, steps)
        else:
            axes.append((length, steps))
    outer, inner = axes[: len(axes) - AXES] if len(axes) > AXES else [], axes[-AXES:]
    starts = [x.offset for x, _ in operands] + [y.offset]
    strides = [[steps[i] for _, steps in inner] for i in range(len(everything))]
    arrays = [x for x, _ in operands]
    found = []
    for indices in itertools.product(*(range(length) for length, _ in outer)):
        offsets = [
            start + sum(at * steps[i] for at, (_, steps) in zip(indices, outer, strict=True))
            for i, start in enumerate(starts)
        ]
        found.append(make.problem([length for length, _ in inner], strides, offsets, arrays))
    return found


def where(condition: Operandish, x: Operandish, y: Operandish) -> Any:
    """Return the elements of `x` where `condition` is true, and those of `y` elsewhere, as NumPy's `where()`.

    The three operands broadcast; `condition` is bool. Dtypes, devices and errors as in `elementwise()`.
    """
    return elementwise("where(c, x, y)", c=condition, x=x, y=y)


def astype(x: Operandish, dtype: DTypeLike) -> Any:
    """Return a copy of `x` converted to `dtype`, with NumPy's rules: floats are truncated towards zero for int32.

    `dtype` is float32, float16, bfloat16, int32 or bool. Devices and errors as in `elementwise()`.
    """
    target = dtype_of(dtype)
    if kind_of(target) == REAL:
        return elementwise("float32(x)", x=x, out_dtype=target.name)
    return elementwise(f"{target.name}(x)", x=x)


def concatenate(arrays: Sequence[Operandish], axis: int = 0) -> Array:
    """Return the arrays joined along `axis`, as NumPy's `concatenate()`.

    The arrays have one dtype, are on one device, and have equal shapes but for the length along `axis`. The result is
    an `Array`. Raises ProblemError if there is no array, or if shapes or dtypes differ; otherwise as `elementwise()`.
    """
    with opened("concatenate", None, *arrays) as temporary:
        if not arrays:
            raise ProblemError("concatenate() and stack() need at least one array")
        parts = [temporary.array(x) for x in arrays]
        first = parts[0]
        along = _axis(axis, first.ndim)
        rest = [x.shape[:along] + x.shape[along + 1 :] for x in parts]
        if len({*rest}) > 1 or len({x.ndim for x in parts}) > 1:
            raise ProblemError(f"shapes {', '.join(str(x.shape) for x in parts)} cannot be joined along axis {axis}")
        if len({x.element for x in parts}) > 1:
            raise ProblemError(f"dtypes {', '.join(x.element.name for x in parts)} must be equal; cast with astype()")
        length = sum(x.shape[along] for x in parts)
        shape = (*first.shape[:along], length, *first.shape[along + 1 :])
        y, start = temporary.device.empty(shape, first.element), 0
        for x in parts:
            stop = start + x.shape[along]
            _copy(temporary, x, y[(slice(None),) * along + (slice(start, stop),)])
            start = stop
        return y


def _copy(temporary: Temporaries, x: Array, y: Array) -> None:
    """Copy `x` into `y`, a view of the same shape."""
    if not x.size:
        return
    if any(stride < 0 for stride in x.strides):
        x = temporary.array(x.numpy())
    make = _Maker("x", {"x": x.element}, {}, None)
    letters = LETTERS[: y.ndim]
    for problem in dispatches(make, [(x, letters)], y, letters):
        choose.run(problem, y.device, x, y)


def stack(arrays: Sequence[Array], axis: int = 0) -> Array:
    """Return arrays of equal shapes joined along a new axis, as NumPy's `stack()`; raises as `concatenate()` does."""
    if len({x.shape for x in arrays}) > 1:
        raise ProblemError(
            f"arrays of shapes {', '.join(str(x.shape) for x in arrays)} cannot be stacked; they must be equal"
        )
    along = _axis(axis, arrays[0].ndim + 1) if arrays else 0
    return concatenate([x[(slice(None),) * along + (None,)] for x in arrays], along)


def take(x: Operandish, indices: Operandish, axis: int | None = None) -> Array:
    """Return the elements of `x` at `indices` along `axis`, as NumPy's `take()`; the result is an `Array`.

    - `x`: an array of any shape, of a dtype that `elementwise()` supports.
    - `indices`: a 1-D array of integers. In host memory, negative indices count from the end, and ProblemError is
      raised for an index out of range. In an `Array`, which must be int32, indices out of range are clamped.
    - `axis`: an integer; it may be omitted for a 1-D `x`.

    Raises ProblemError for an invalid axis, or indices of another shape or dtype; otherwise as `elementwise()`.
    """
    with opened("take", None, x, indices) as temporary:
        source = temporary.array(x)
        if axis is None and source.ndim != 1:
            raise ProblemError(f"take() needs axis= for an array of {source.ndim} axes")
        along = _axis(axis or 0, source.ndim)
        length = source.shape[along]
        at = temporary.array(indices if isinstance(indices, Array) else _checked(indices, length))
        if at.ndim != 1 or at.element != I32:
            raise ProblemError(f"indices must be a 1-D int32 array, not {at.element.name} of shape {at.shape}")
        y = temporary.device.empty((*source.shape[:along], at.size, *source.shape[along + 1 :]), source.element)
        if not y.size:
            return y
        if any(stride < 0 for stride in source.strides):
            source = temporary.array(source.numpy())
        make = _Maker("x", {"x": source.element, "i": I32}, {}, None)
        before, after = (math.prod(lengths) for lengths in (source.shape[:along], source.shape[along + 1 :]))
        dense = source if source.contiguous else concatenate([source])
        problem = make.problem(
            (before, at.size, after),
            [(length * after, 0, 1), (0, at.strides[0], 0), (at.size * after, after, 1)],
            (dense.offset, at.offset, 0),
            [dense, at],
        )
        choose.run(replace(problem, taken=after, taken_length=length), temporary.device, dense, at, y)
        return y


def _checked(indices: Any, length: int) -> Any:
    given = np.asarray(indices)
    if given.dtype.kind not in "iu" and given.size:
        raise ProblemError(f"indices must be integers, not {given.dtype}")
    if ((given < -length) | (given >= length)).any():
        raise ProblemError(f"an index is out of range for {length} elements")
    return np.where(given < 0, given + length, given).astype(np.int32)


def _axis(axis: int, ndim: int) -> int:
    try:
        at = operator.index(axis)
    except TypeError as error:
        raise ProblemError(f"an axis must be an integer, not {axis!r}") from error
    if not -ndim <= at < ndim:
        raise ProblemError(f"axis {axis} is out of range for {ndim} axes")
    return at % ndim
