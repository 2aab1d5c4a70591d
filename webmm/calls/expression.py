"""Expressions of elements: the call, and the arrays' operators and functions, which are expressions, too."""

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
    """Return what elements of `dtype` are computed as; raises ProblemError where they are not."""
    if dtype not in COMPUTED:
        raise ProblemError(f"dtype {dtype.name} is not computed with; cast to one of {names(COMPUTED)}")
    return WHOLE if dtype == I32 else TRUTH if dtype == BOOL else REAL


@planned
def elementwise(
    expression: str, *, out_dtype: DTypeLike | None = None, device: Device | None = None, **operands: Operandish
) -> Any:
    """Return an expression of the elements of arrays that broadcast, computed in one pass: ``"exp(x) * y + 1", x=…``.

    It is Python's: + - * / and comparisons, & | ~ of truths, ``where(condition, x, y)``, and the functions of
    `webmm.expressions.FUNCTIONS`: exp, log, sqrt, tanh, abs, maximum, minimum, float32, int32, bool. Operands are up to
    four arrays, of float32, float16, bfloat16, int32 or bool, and Python's numbers, which take the arrays' kind.
    Floats are computed in float32; the result is of the longest type among them, int32 or bool, or `out_dtype`.

    NumPy arrays give a NumPy array, an `Array` among them one on its device. Raises ProblemError for what is no such
    expression, for kinds or shapes that do not go together, and as `reduce()` otherwise.
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
    """Return the common shape by NumPy's rules; raises ProblemError where there is none."""
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
    """An expression of arrays of some types and of some numbers: makes the problem for arrays of any shape."""

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
        # Beside truths only, True and False are truths; numbers come to a shader as they are.
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
            raise ProblemError(f"expression {text!r} is of {natural.name}; cast it to {self.out.name} within it")

    def problem(
        self,
        lengths: Sequence[int],
        strides: Sequence[Sequence[int]],
        offsets: Sequence[int],
        operands: Sequence[Array],
    ) -> Expression:
        """Return the problem of arrays that lie so, y last, over at most four axes."""
        lies = [
            Strided(dtype, _quad(steps, 0), offset)
            for dtype, steps, offset in zip((*(x.element for x in operands), self.out), strides, offsets, strict=True)
        ]
        found = self._compiled
        return Expression(
            *(self._text, found.wgsl, found.kind, _quad(lengths, 1), tuple(lies[:-1]), lies[-1]),
            numbers=self._numbers,
            number_kind=self._number_kind,
        )


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Return an expression with other names: equal ones then share a shader, whatever a program calls its arrays."""
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
    """Fill `y` with an expression of arrays that broadcast to its shape."""
    letters = LETTERS[: y.ndim]
    operands = [_labelled(x, letters) for x in data]

    def compute(*arrays: Array) -> None:
        *xs, target = arrays
        for x in dispatches(make, [(x, one.axes) for x, one in zip(xs, operands, strict=True)], target, letters):
            choose.run(x, device, *xs, target)

    in_pieces(device, compute, operands, Labelled(y, letters), letters)


def _labelled(x: Data, letters: str) -> Labelled:
    """Return an operand with letters for those of its axes along which it does not repeat."""
    kept = [i for i, length in enumerate(x.shape) if length != 1]
    index = tuple(slice(None) if i in kept else 0 for i in range(x.ndim))
    return Labelled(x[index], "".join(letters[len(letters) - x.ndim + i] for i in kept))


def dispatches(make: _Maker, operands: Sequence[tuple[Array, str]], y: Array, letters: str) -> list[Expression]:
    """Return the problems that compute `y`: one, but for arrays of more than four axes that cannot be merged."""
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
    """Return x where `condition`, of bool, holds, else y, as NumPy's `where()`; see `elementwise()`."""
    return elementwise("where(c, x, y)", c=condition, x=x, y=y)


def astype(x: Operandish, dtype: DTypeLike) -> Any:
    """Return `x` converted to `dtype`, as NumPy does, towards zero where to int32; raises as `elementwise()` does."""
    target = dtype_of(dtype)
    if kind_of(target) == REAL:
        return elementwise("float32(x)", x=x, out_dtype=target.name)
    return elementwise(f"{target.name}(x)", x=x)


def concatenate(arrays: Sequence[Operandish], axis: int = 0) -> Array:
    """Return arrays joined along an axis, as NumPy's `concatenate()`; they are of one dtype, on one device.

    Raises ProblemError where they do not fit together; else as `elementwise()`.
    """
    with opened("concatenate", None, *arrays) as temporary:
        if not arrays:
            raise ProblemError("there is nothing to join")
        parts = [temporary.array(x) for x in arrays]
        first = parts[0]
        along = _axis(axis, first.ndim)
        rest = [x.shape[:along] + x.shape[along + 1 :] for x in parts]
        if len({*rest}) > 1 or len({x.ndim for x in parts}) > 1:
            raise ProblemError(f"shapes {', '.join(str(x.shape) for x in parts)} do not join along axis {axis}")
        if len({x.element for x in parts}) > 1:
            raise ProblemError(f"dtypes {', '.join(x.element.name for x in parts)} are to be one; cast with astype()")
        length = sum(x.shape[along] for x in parts)
        shape = (*first.shape[:along], length, *first.shape[along + 1 :])
        y, start = temporary.device.empty(shape, first.element), 0
        for x in parts:
            stop = start + x.shape[along]
            _copy(temporary, x, y[(slice(None),) * along + (slice(start, stop),)])
            start = stop
        return y


def _copy(temporary: Temporaries, x: Array, y: Array) -> None:
    """Fill a part of an array with another."""
    if not x.size:
        return
    if any(stride < 0 for stride in x.strides):
        x = temporary.array(x.numpy())
    make = _Maker("x", {"x": x.element}, {}, None)
    letters = LETTERS[: y.ndim]
    for problem in dispatches(make, [(x, letters)], y, letters):
        choose.run(problem, y.device, x, y)


def stack(arrays: Sequence[Array], axis: int = 0) -> Array:
    """Return arrays of one shape along a new axis, as NumPy's `stack()`; raises as `concatenate()` does."""
    if len({x.shape for x in arrays}) > 1:
        raise ProblemError(f"arrays of shapes {', '.join(str(x.shape) for x in arrays)} do not stack")
    along = _axis(axis, arrays[0].ndim + 1) if arrays else 0
    return concatenate([x[(slice(None),) * along + (None,)] for x in arrays], along)


def take(x: Operandish, indices: Operandish, axis: int | None = None) -> Array:
    """Return the elements of `x` that `indices`, one axis of whole numbers, name along `axis`, as NumPy's `take()`.

    Indices in host memory may count from the end, and ProblemError is raised for those out of range; of an `Array`,
    of int32, those out of range mean the first and the last.
    """
    with opened("take", None, x, indices) as temporary:
        source = temporary.array(x)
        if axis is None and source.ndim != 1:
            raise ProblemError(f"take() from an array of {source.ndim} axes says along which: axis=")
        along = _axis(axis or 0, source.ndim)
        length = source.shape[along]
        at = temporary.array(indices if isinstance(indices, Array) else _checked(indices, length))
        if at.ndim != 1 or at.element != I32:
            raise ProblemError(f"indices are int32, of one axis, not {at.element.name} of shape {at.shape}")
        y = temporary.device.empty((*source.shape[:along], at.size, *source.shape[along + 1 :]), source.element)
        if not y.size:
            return y
        if any(stride < 0 for stride in source.strides):
            source = temporary.array(source.numpy())
        make = _Maker("x", {"x": source.element, "i": I32}, {}, None)
        before, behind = (math.prod(lengths) for lengths in (source.shape[:along], source.shape[along + 1 :]))
        dense = source if source.contiguous else concatenate([source])
        problem = make.problem(
            (before, at.size, behind),
            [(length * behind, 0, 1), (0, at.strides[0], 0), (at.size * behind, behind, 1)],
            (dense.offset, at.offset, 0),
            [dense, at],
        )
        choose.run(replace(problem, taken=behind, taken_length=length), temporary.device, dense, at, y)
        return y


def _checked(indices: Any, length: int) -> Any:
    given = np.asarray(indices)
    if given.dtype.kind not in "iu" and given.size:
        raise ProblemError(f"indices are whole numbers, not {given.dtype}")
    if ((given < -length) | (given >= length)).any():
        raise ProblemError(f"an index is out of range of {length} elements")
    return np.where(given < 0, given + length, given).astype(np.int32)


def _axis(axis: int, ndim: int) -> int:
    try:
        at = operator.index(axis)
    except TypeError as error:
        raise ProblemError(f"an axis is a whole number, not {axis!r}") from error
    if not -ndim <= at < ndim:
        raise ProblemError(f"axis {axis} is out of range of {ndim} axes")
    return at % ndim
