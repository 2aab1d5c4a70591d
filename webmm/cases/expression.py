"""Test cases of elementwise expressions, for the self-test and for validating shaders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from webmm.arguments.arrays import dense_strides
from webmm.cases.base import Trial, blank, ends
from webmm.cases.intervals import evaluate, exactly, stored
from webmm.dtypes import BF16, BOOL, F16, F32, I32, DType
from webmm.kernels.elementwise.fused import Fused
from webmm.problems.expression import Expression, Quad, Strided
from webmm.wgsl.expressions import NUMPY, REAL, WHOLE, bits, compiled, kind_of, scalar

LENGTHS: Quad = (2, 3, 2, 5)  # the shape of a small problem with arbitrary strides
TAKEN = 7  # elements to choose from in a gather
TEXTS = (
    ("-x0", F32, F32),
    ("x0 + x1", F32, F32),
    ("x0 / x1", F16, F16),
    ("abs(x0) * s0 - 1.5", BF16, BF16),
    ("exp(x0) + log(x1) * sqrt(x0)", F32, F32),
    ("silu(x0) * sigmoid(x1) + gelu_tanh(x0) - gelu(x1)", F32, F32),
    ("where(x0 < x1, tanh(x0), maximum(x0, x1))", F32, F16),
    ("where(x0 < x1, x1, x0) * where(x0 >= 0, 1.0, s0)", F32, F32),
    ("minimum(x0, x1) != x0", F16, BOOL),
    ("maximum(x0, x1) * s0 - abs(x0)", I32, I32),
    ("int32(x0)", F32, I32),
    ("float32(x0)", BOOL, F32),
    ("~x0 | x1 & (x0 == x1)", BOOL, BOOL),
    ("sin(x0) * cos(x1) + tan(x0) - atan2(x0, x1) + x0 // x1 - x0 % x1 + x1 ** x0", F32, F32),
    ("x0 // x1 + x0 % x1 - x0 ** x1 ^ x0 << x1 | x0 >> x1 & ~x0", I32, I32),
)


def expression(text: str, dtype: DType, out: DType, lengths: Quad, broadcast: bool = False) -> Expression:
    """Return the problem for dense arrays of `dtype`; with `broadcast`, x1 is repeated along two axes; s0 is 2."""
    kind = kind_of(dtype)
    number = WHOLE if kind == WHOLE else REAL
    names = [name for name in ("x0", "x1") if name in text]
    found = compiled(text, (*((name, kind) for name in names), ("s0", number)))
    a, b, c, d = dense_strides(lengths)
    x1 = (0, lengths[3], 0, 1) if broadcast else (a, b, c, d)
    operands = (Strided(dtype, (a, b, c, d)), Strided(dtype, x1))[: len(names)]
    numbers = (bits(scalar(2, number)),) if "s0" in text else ()
    return Expression(text, found.wgsl, found.kind, lengths, operands, Strided(out, (a, b, c, d)), numbers, number)


def examples() -> Iterator[tuple[str, Expression]]:
    """Yield expressions of every dtype, with vec4 and with scalar accesses."""
    for text, dtype, out in TEXTS:
        for lengths, broadcast in (((1, 1, 1, 1024), False), (LENGTHS, True)):
            words = f"{text} {dtype.name} {out.name} {'broadcast' if broadcast else 'dense'}"
            yield words, expression(text, dtype, out, lengths, broadcast)
    taken = expression("x0", F32, F32, LENGTHS)
    index = Strided(I32, (0, 0, 1, 0))
    yield "take", replace(taken, operands=(*taken.operands, index), taken=1, taken_length=TAKEN)
    put = replace(taken, operands=(*taken.operands, Strided(I32, (1, 0, 0, 0))), y=Strided(F32, spaced(LENGTHS)))
    yield "put", replace(put, taken=LENGTHS[3], taken_length=TAKEN, put=True)


def stand_ins(kernel: Fused, problem: Expression) -> Iterator[Expression]:
    """Yield a small problem that uses the same shader."""
    p = problem
    spec = kernel.specialise(p)
    lengths = (1, 1, 1, 4 * kernel.size + 8) if spec.vec else LENGTHS
    operands = tuple(Strided(x.dtype, _over(lengths, x.strides), x.offset % 4) for x in p.operands)
    small = replace(p, lengths=lengths, operands=operands, y=Strided(p.y.dtype, dense_quad(lengths), p.y.offset % 4))
    if p.taken:
        small = replace(small, taken=1, taken_length=TAKEN)
    if p.put:
        small = replace(small, taken=lengths[3], y=replace(small.y, strides=spaced(lengths)))
    yield small


def spaced(lengths: Quad) -> Quad:
    """Return the strides of an array of four axes with room for TAKEN places along the third."""
    a, b, c, d = lengths
    return dense_quad((a, b, c + TAKEN - 1, d))


def dense_quad(lengths: Quad) -> Quad:
    """Return the strides of a dense array of four axes."""
    a, b, c, d = dense_strides(lengths)
    return a, b, c, d


def _over(lengths: Quad, strides: Quad) -> Quad:
    """Return the strides of an array that is dense except for the axes where `strides` is 0, which it repeats."""
    a, b, c, d = dense_strides(tuple(n if stride else 1 for n, stride in zip(lengths, strides, strict=True)))
    kept = [step if stride else 0 for step, stride in zip((a, b, c, d), strides, strict=True)]
    return kept[0], kept[1], kept[2], kept[3]


def trial(problem: Expression) -> Trial:
    """Return floats from 1/4 to 2 in quarters, integers from 1 to 8, and booleans; integer results must be exact."""
    return _trial(problem, lambda dtype, count, _: _values(dtype, count))


def extremes(problem: Expression) -> Trial:
    """Return operands at the ends of their range; arithmetic with infinities and NaN may have any result."""
    return _trial(problem, lambda dtype, count, i: np.random.default_rng(i).choice(_ends(dtype), count))


def _trial(problem: Expression, values: Callable[[DType, int, int], NDArray[Any]]) -> Trial:
    """Return a trial with `values` of a dtype, a count and the position of an operand."""
    p = problem
    extents = [extent for extent in p.buffers() if not extent.written]
    buffers = {extent.name: values(extent.dtype, extent.end, i) for i, extent in enumerate(extents)}
    given = {f"x{i}": _strided(buffers[f"x{i}"], x, p.lengths) for i, x in enumerate(p.operands)}
    if p.taken and not p.put:
        x0 = p.operands[0]
        at = np.clip(given["x1"], 0, p.taken_length - 1) * p.taken
        places = _strided(np.arange(len(buffers["x0"])), x0, p.lengths) + at
        given["x0"] = buffers["x0"][places]
    numbers = np.array(p.numbers, np.uint32).view(NUMPY[p.number_kind])
    names = {name: exactly(x, p.operands[i].dtype) for i, (name, x) in enumerate(given.items())}
    names |= {f"s{i}": exactly(x) for i, x in enumerate(numbers)}
    kinds = (*((name, kind_of(x.dtype)) for name, x in zip(given, p.operands, strict=True)),)
    tree = compiled(p.text, (*kinds, *((f"s{i}", p.number_kind) for i in range(len(numbers)))))
    found = stored(evaluate(tree, names), p.y.dtype)
    low, high, nan = (np.broadcast_to(x, p.lengths).reshape(-1) for x in (found.low, found.high, found.nan))
    expected, allowed = _compared(low.astype(np.float64), high.astype(np.float64), nan)
    return Trial(buffers, *(_put(p, given["x1"], expected, allowed) if p.put else (expected, allowed)))


def _put(
    problem: Expression, indices: NDArray[Any], expected: NDArray[np.float64], allowed: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return these values in their places among those of y, of which the others keep theirs."""
    p, extent = problem, problem.buffers()[-1]
    numbers = np.arange(extent.end)
    at = np.clip(indices, 0, p.taken_length - 1) * p.taken
    places = (_strided(numbers, p.y, p.lengths) + at).reshape(-1)
    whole, none = blank(extent).astype(np.float64), np.zeros(extent.end)
    whole[places], none[places] = expected, allowed
    return whole[extent.start :], none[extent.start :]


def _compared(
    low: NDArray[np.float64], high: NDArray[np.float64], nan: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the expected values, and the allowed errors, which are infinite where several special values are right."""
    with np.errstate(invalid="ignore"):
        exact, empty = low == high, low > high
        finite = np.isfinite(low) & np.isfinite(high) & ~nan
        expected = np.where(empty, np.nan, np.where(exact, low, (low + high) / 2))
        allowed = np.where(exact | empty, 0.0, (high - low) / 2 * (1 + F32.eps))
    return expected, np.where(finite | empty | (exact & ~nan), allowed, np.inf)


def _ends(dtype: DType) -> NDArray[Any]:
    if dtype == BOOL:
        return np.array([False, True])
    if dtype == I32:
        return np.array([0, 1, -1, 7, -(2**16), 2**31 - 1, -(2**31)], np.int32)
    return ends(dtype)


def _values(dtype: DType, count: int) -> NDArray[Any]:
    places = np.arange(count) * 5 % 8
    if dtype == BOOL:
        return np.asarray(places % 3 == 0)
    return np.asarray((places + 1) if dtype == I32 else (places + 1) / 4).astype(dtype.numpy)


def _strided(buffer: NDArray[Any], x: Strided, lengths: Quad) -> NDArray[Any]:
    """Return the view of `buffer` that `x` describes."""
    size = buffer.itemsize
    return as_strided(buffer[x.offset :], lengths, [stride * size for stride in x.strides], writeable=False)
