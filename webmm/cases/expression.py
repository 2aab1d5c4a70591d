"""Test cases of elementwise expressions, for the self-test and for validating shaders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from webmm.cases.base import Trial
from webmm.dtypes import BF16, BOOL, F16, F32, I32, DType
from webmm.engine.array import dense_strides
from webmm.expressions import compiled, reference
from webmm.kernels.elementwise.fused import Fused
from webmm.problems.expression import Expression, Quad, Strided

LENGTHS: Quad = (2, 3, 2, 5)  # the shape of a small problem with arbitrary strides
ROUNDING = 2e-3  # largest error of a short chain of drivers' built-in functions, as a multiple of 1 + |y|
TAKEN = 7  # elements to choose from in a gather
TEXTS = (
    ("-x0", F32, F32),
    ("x0 + x1", F32, F32),
    ("x0 / x1", F16, F16),
    ("abs(x0) * s0 - 1.5", BF16, BF16),
    ("exp(x0) + log(x1) * sqrt(x0)", F32, F32),
    ("where(x0 < x1, tanh(x0), maximum(x0, x1))", F32, F16),
    ("minimum(x0, x1) != x0", F16, BOOL),
    ("maximum(x0, x1) * s0 - abs(x0)", I32, I32),
    ("int32(x0)", F32, I32),
    ("float32(x0)", BOOL, F32),
    ("~x0 | x1 & (x0 == x1)", BOOL, BOOL),
)


def expression(text: str, dtype: DType, out: DType, lengths: Quad, broadcast: bool = False) -> Expression:
    """Return the problem for dense arrays of `dtype`; with `broadcast`, x1 is repeated along two axes; s0 is 2."""
    kind = {"int32": "i32", "bool": "bool"}.get(dtype.name, "f32")
    number = "i32" if kind == "i32" else "f32"
    names = [name for name in ("x0", "x1") if name in text]
    found = compiled(text, (*((name, kind) for name in names), ("s0", number)))
    a, b, c, d = dense_strides(lengths)
    x1 = (0, lengths[3], 0, 1) if broadcast else (a, b, c, d)
    operands = (Strided(dtype, (a, b, c, d)), Strided(dtype, x1))[: len(names)]
    bits = int(np.float32(2).view(np.uint32)) if number == "f32" else 2
    numbers = (bits,) if "s0" in text else ()
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


def stand_ins(kernel: Fused, problem: Expression) -> Iterator[Expression]:
    """Yield a small problem that uses the same shader, if its results are finite."""
    p = problem
    spec = kernel.specialise(p)
    lengths = (1, 1, 1, 4 * kernel.size + 8) if spec.vec else LENGTHS
    operands = tuple(Strided(x.dtype, _over(lengths, x.strides), x.offset % 4) for x in p.operands)
    small = replace(p, lengths=lengths, operands=operands, y=Strided(p.y.dtype, dense_quad(lengths), p.y.offset % 4))
    if p.taken:
        small = replace(small, taken=1, taken_length=TAKEN)
    if np.isfinite(trial(small).expected).all():
        yield small


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
    p = problem
    buffers = {extent.name: _values(extent.dtype, extent.end) for extent in p.buffers() if not extent.written}
    values = {f"x{i}": _strided(buffers[f"x{i}"], x, p.lengths) for i, x in enumerate(p.operands)}
    if p.taken:
        x0 = p.operands[0]
        at = np.clip(values["x1"], 0, p.taken_length - 1) * p.taken
        places = _strided(np.arange(len(buffers["x0"])), x0, p.lengths) + at
        values["x0"] = buffers["x0"][places]
    bits = np.array(p.numbers, np.uint32)
    numbers = bits.view(np.float32 if p.number_kind == "f32" else np.int32)
    wide = {name: x if x.dtype.kind in "bi" else x.astype(np.float64) for name, x in values.items()}
    found = reference(p.text, {**wide, **{f"s{i}": x.item() for i, x in enumerate(numbers)}})
    expected = np.broadcast_to(np.asarray(found), p.lengths).astype(np.float64).reshape(-1)
    share = (ROUNDING if "_f32" in p.wgsl else 2.0**-21) + p.y.dtype.eps
    return Trial(buffers, expected, share * (1 + np.abs(expected)) if p.kind == "f32" else 0.0)


def _values(dtype: DType, count: int) -> NDArray[Any]:
    places = np.arange(count) * 5 % 8
    if dtype == BOOL:
        return np.asarray(places % 3 == 0)
    return np.asarray((places + 1) if dtype == I32 else (places + 1) / 4).astype(dtype.numpy)


def _strided(buffer: NDArray[Any], x: Strided, lengths: Quad) -> NDArray[Any]:
    """Return the view of `buffer` that `x` describes."""
    size = buffer.itemsize
    return as_strided(buffer[x.offset :], lengths, [stride * size for stride in x.strides], writeable=False)
