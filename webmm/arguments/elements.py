"""Arguments of elementwise expressions: shapes, and what each dispatch computes of strided arrays.

The module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from webmm.arguments.arrays import Layout, Shape, Shaped, Strided, broadcast_shape, element_of, merged_jointly
from webmm.dtypes import F32, DType
from webmm.errors import ProblemError
from webmm.kernels.base import INDEX_LIMIT
from webmm.problems.base import Extent, check_floats
from webmm.problems.expression import AXES, Expression, Quad
from webmm.problems.expression import Strided as Placed
from webmm.wgsl.compiler import REAL, kind_of
from webmm.wgsl.functions import Link

# The first and the second element x0 and x1 of each pair of `rotary()`, by the cosine x2 and the sine x3: in WGSL, too.
ROTATED = (
    ("x0 * x2 - x1 * x3", "((x0 * x2) - (x1 * x3))"),
    ("x1 * x2 + x0 * x3", "((x1 * x2) + (x0 * x3))"),
)


@dataclass(frozen=True)
class Block:
    """The elements that a dispatch computes: lengths of four axes; strides and first element of each array, y last."""

    lengths: Quad
    strides: tuple[Quad, ...]
    offsets: tuple[int, ...]


def blocks(arrays: Sequence[Strided], binding: int) -> Iterator[Block]:
    """Yield the blocks of arrays of one shape: one, unless an array exceeds a binding of that many bytes.

    Adjacent axes that one stride of each array covers are merged. More than four that remain take several blocks, too.
    """
    strides = [x.strides for x in arrays]
    axes = merged_jointly([(length, [each[i] for each in strides]) for i, length in enumerate(arrays[0].shape)])
    yield from _within(axes, [x.offset for x in arrays], [element_of(x) for x in arrays], binding)


def _within(
    axes: list[tuple[int, list[int]]], offsets: list[int], dtypes: list[DType], binding: int
) -> Iterator[Block]:
    reaches = [sum((length - 1) * strides[i] for length, strides in axes) for i, _ in enumerate(offsets)]
    extents = [
        Extent("", dtype, offset + reach + 1, start=offset)
        for dtype, offset, reach in zip(dtypes, offsets, reaches, strict=True)
    ]
    large = any(x.nbytes > binding or x.end - x.first > INDEX_LIMIT for x in extents)
    if axes and (large or len(axes) > AXES):
        along = [(length - 1) * max(strides) for length, strides in axes]
        at = along.index(max(along)) if large else 0  # the axis that reaches furthest, or the outermost
        length, strides = axes[at]
        counts = [length // 2, length - length // 2] if large else [1 for _ in range(length)]
        first = 0
        for count in counts:
            moved = [offset + first * stride for offset, stride in zip(offsets, strides, strict=True)]
            kept = [(count, strides)] if count > 1 else []
            yield from _within([*axes[:at], *kept, *axes[at + 1 :]], moved, dtypes, binding)
            first += count
    else:
        yield Block(
            _quad([length for length, _ in axes], 1),
            tuple([_quad([strides[i] for _, strides in axes], 0) for i, _ in enumerate(offsets)]),
            tuple(offsets),
        )


def _quad(values: Sequence[int], fill: int) -> Quad:
    a, b, c, d = [*[fill for _ in range(AXES - len(values))], *values]
    return a, b, c, d


def expression_for(
    text: str, wgsl: str, kind: str, dtypes: Sequence[DType], numbers: tuple[int, ...], number_kind: str
) -> Expression:
    """Return an expression of arrays of these dtypes, that of the result last, for `expression_at()`."""
    nowhere = (0, 0, 0, 0)
    placed = [Placed(dtype, nowhere) for dtype in dtypes]
    xs, y = tuple(placed[:-1]), placed[-1]
    return Expression(text, wgsl, kind, nowhere, xs, y, numbers=numbers, number_kind=number_kind)


def copy_of(x: DType, y: DType) -> Expression:
    """Return the expression that copies elements to those of another dtype, of the same kind, for `expression_at()`."""
    return expression_for("x0", "x0", kind_of(x), [x, y], (), REAL)


def link_of_arrays(link: Link, dtypes: Sequence[DType], numbers: Sequence[float]) -> Expression:
    """Return a function of one's own as an expression of arrays of these dtypes, for `expression_at()`.

    The dtype of its result is the last one. Its names x, y0, y1, … become x0, x1, x2, …
    """
    texts = []
    for text in (link.text, link.wgsl):
        for i in reversed(range(len(link.kinds))):
            text = re.sub(rf"\by{i}\b", f"x{i + 1}", text)
        texts.append(re.sub(r"\bx\b", "x0", text))
    stored = struct.unpack(f"<{len(numbers)}I", struct.pack(f"<{len(numbers)}f", *numbers))
    return expression_for(texts[0], texts[1], REAL, dtypes, tuple(stored), REAL)


def expression_at(problem: Expression, block: Block) -> Expression:
    """Return an expression, whose arrays have dtypes only, for the elements of a block."""
    dtypes = [x.dtype for x in (*problem.operands, problem.y)]
    placed = [
        Placed(dtype, strides, offset)
        for dtype, strides, offset in zip(dtypes, block.strides, block.offsets, strict=True)
    ]
    return Expression(
        *(problem.text, problem.wgsl, problem.kind, block.lengths, tuple(placed[:-1]), placed[-1]),
        numbers=problem.numbers,
        number_kind=problem.number_kind,
    )


def shape_of(shapes: Sequence[Shape]) -> Shape:
    """Return the broadcast shape by NumPy's rules; raises ProblemError if the shapes do not broadcast."""
    whole: Shape = ()
    for shape in shapes:
        common = broadcast_shape(whole, shape)
        if common is None:
            raise ProblemError(f"shapes {', '.join(map(str, shapes))} do not broadcast")
        whole = common
    return whole


def pairs_of(x: Strided, interleaved: bool) -> tuple[Layout, Layout]:
    """Return the first and the second elements of all pairs: neighbours if `interleaved`, else in both halves."""
    half, stride = x.shape[-1] // 2, x.strides[-1]
    shape, strides = (*x.shape[:-1], half), (*x.strides[:-1], 2 * stride if interleaved else stride)
    second = x.offset + (stride if interleaved else half * stride)
    return Layout(shape, strides, x.offset), Layout(shape, strides, second)


def check_rotary(x: Shaped, cos: Shaped, sin: Shaped) -> None:
    """Raise ProblemError unless the operands of `rotary()` fit."""
    dtype = element_of(x)
    check_floats("rotary()", dtype, dtype)
    if x.ndim < 2 or x.shape[-1] % 2:
        raise ProblemError(f"rotary() takes x of shape (…, tokens, width) with an even width, not {x.shape}")
    wanted = (*x.shape[:-1], x.shape[-1] // 2)
    for name, table in (("cos", cos), ("sin", sin)):
        if table.ndim < 1 or table.shape[-1] != wanted[-1] or broadcast_shape(table.shape, wanted) != wanted:
            raise ProblemError(f"{name} must broadcast to {wanted}, half the width of x, not have shape {table.shape}")
        if element_of(table) not in (dtype, F32):
            raise ProblemError(f"{name} must be {dtype.name}, as x is, or float32, not {element_of(table).name}")
