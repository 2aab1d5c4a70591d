"""Steps of sequences: elements and rows: expressions, reductions, norms, joined, selected and converted elements."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from live import BATCH, LARGEST, SMALL, TOLERANCE, Live, step

import webmm
from webmm.wgsl.epilogues import ACTIVATIONS

MOST = 8  # largest operand of an expression; its results are exact in every dtype
# Functions of x and y that mean the same for webmm's and for NumPy's arrays.
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "x + y": lambda x, y: x + y,
    "x * y - x": lambda x, y: x * y - x,
    "3 - x": lambda x, y: 3 - x,
    "abs(-x)": lambda x, y: abs(-x),
    "x < y": lambda x, y: x < y,
    "~(x == y)": lambda x, y: ~(x == y),
    "maximum": lambda x, y: np.maximum(x, y),
    "where": lambda x, y: np.where(x > y, x, y),
}
TEXTS = (  # of elementwise()
    *("x * y + s", "where(x > y, x - s, y)", "minimum(abs(x), y) * s", "x * x - y * y", "(x < s) | (y == x)"),
    *("int32(x) + int32(y)", "where(x != y, s, float32(x == s))", "bool(x) & (x <= y)"),
)
NAMES = {"where": np.where, "abs": np.abs, "maximum": np.maximum, "minimum": np.minimum}
NAMES |= {"int32": np.asarray, "float32": lambda x: np.asarray(x, np.float64), "bool": lambda x: np.asarray(x) != 0}


def broadcasting(s: Live, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape that broadcasts to `shape`."""
    return s.draw.pick("broadcast", (shape, shape, shape, shape[1:], (*shape[:-1], 1)))


@step(often=3)
def elementwise(s: Live) -> None:
    text, shape = s.draw.pick("expression", TEXTS), s.any_shape()
    (x, left), (y, right) = s.operand(shape, MOST), s.operand(broadcasting(s, shape), MOST)
    more = {"s": s.draw.pick("s", (-1, 2.0, 3, np.float32(-2)))} if re.search(r"\bs\b", text) else {}
    exact = eval(text, dict(NAMES), {"x": left, "y": right, **more})
    s.keep(webmm.elementwise(text, x=x, y=y, device=s.device, **more), np.broadcast_to(exact, shape))


@step(often=2)
def operators(s: Live) -> None:
    name, shape = s.draw.pick("operator", tuple(OPERATORS)), s.any_shape()
    (x, left), (y, right) = s.operand(shape, MOST), s.operand(broadcasting(s, shape), MOST)
    x, y = (s.device.array(each) if isinstance(each, np.ndarray) else each for each in (x, y))
    s.keep(OPERATORS[name](x, y), OPERATORS[name](left, right))


@step()
def integers(s: Live) -> None:
    """Elements of int32 arrays, which are also selected and converted elements."""
    shape = s.shape()
    (x, left), (y, right) = (s.operand(shape, 2**10, dtype="int32") for _ in range(2))
    text = s.draw.pick("expression", ("x + y * 2", "maximum(x, -y)", "x == y", "where(x > 0, x, y)"))
    s.keep(webmm.elementwise(text, x=x, y=y, device=s.device), eval(text, dict(NAMES), {"x": left, "y": right}))


@step()
def where(s: Live) -> None:
    shape = s.shape()
    (c, chosen), (x, left) = s.operand(shape, 1, dtype="bool"), s.operand(shape, LARGEST[s.dtype])
    y = s.draw.pick("y", (0.0, -1.0))
    c = c if isinstance(c, webmm.Array) else s.device.array(c)
    s.keep(webmm.where(c, x, y), np.where(chosen != 0, left, y))


@step()
def astype(s: Live) -> None:
    dtype = s.draw.pick("dtype", ("int32", "bool", *s.draw.floats()))
    x, values = s.operand(s.any_shape(), LARGEST[s.dtype], dtype=s.draw.pick("from", (s.dtype, "int32", "bool")))
    x = x if isinstance(x, webmm.Array) else s.device.array(x)
    s.keep(webmm.astype(x, dtype), values != 0 if dtype == "bool" else values)


@step(often=2)
def concatenate(s: Live) -> None:
    shape = s.any_shape()
    axis, join = s.draw.pick("axis", range(-1, len(shape))), s.draw.pick("join", ("concatenate", "stack"))
    pairs = [s.operand(shape, LARGEST[s.dtype]) for _ in range(s.draw.pick("count", (1, 2, 3)))]
    arrays = [x if isinstance(x, webmm.Array) else s.device.array(x) for x, _ in pairs]
    s.keep(getattr(webmm, join)(arrays, axis), getattr(np, join)([values for _, values in pairs], axis))


@step(often=2)
def take(s: Live) -> None:
    shape = s.any_shape()
    axis = s.draw.pick("axis", range(-1, len(shape)))
    x, values = s.operand(shape, LARGEST[s.dtype])
    x = x if isinstance(x, webmm.Array) else s.device.array(x)
    at = [s.draw.pick("index", range(shape[axis])) for _ in range(4)]
    form = s.draw.pick("indices", ("list", "negative", "array", "device"))
    indices: Any = [i - shape[axis] for i in at] if form == "negative" else at
    if form in ("array", "device"):
        indices = np.array(at, np.int32)
        s.given.append(indices)
    got = webmm.take(x, s.device.array(indices) if form == "device" else indices, axis)
    s.keep(got, values.take(at, axis))


@step(often=3)
def reduce(s: Live) -> None:
    shape = s.any_shape()
    op = s.draw.pick("op", ("sum", "sum", "max", "min", "argmax", "argmin"))
    axes: tuple[Any, ...] = (None, *range(-1, len(shape)))
    axes += ((0, 1),) * (not op.startswith("arg")) + ((0, 2),) * (len(shape) == 3 and not op.startswith("arg"))
    axis, keepdims = s.draw.pick("axis", axes), s.draw.pick("keepdims", (False, True))
    x, values = s.operand(shape, LARGEST[s.dtype] // int(np.prod(shape)) if op == "sum" else LARGEST[s.dtype])
    got = webmm.reduce(x, op, axis, keepdims, device=s.device)
    s.keep(got, getattr(values, op)(axis, keepdims=keepdims))


@step(often=2)
def softmax(s: Live) -> None:
    shape = s.any_shape()
    axis = s.draw.pick("axis", range(-1, len(shape)))
    x, values = s.operand(shape, SMALL)
    e = np.exp(values - values.max(axis, keepdims=True))
    s.keep(webmm.softmax(x, axis, device=s.device), e / e.sum(axis, keepdims=True), TOLERANCE[s.dtype])


@step(often=2)
def norm(s: Live) -> None:
    shape, function = s.any_shape(), s.draw.pick("norm", ("layer_norm", "rms_norm"))
    (x, values), (weight, scales) = s.operand(shape, SMALL), s.operand(shape[-1:], SMALL)
    centred = values - values.mean(-1, keepdims=True) if function == "layer_norm" else values
    exact = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1) * scales
    s.keep(getattr(webmm, function)(x, weight, eps=1.0, device=s.device), exact, TOLERANCE[s.dtype])


@step(often=2)
def gelu(s: Live) -> None:
    x, values = s.operand(s.any_shape(), SMALL)
    s.keep(webmm.gelu(x, device=s.device), ACTIVATIONS["gelu"].reference(values), TOLERANCE[s.dtype])


@step()
def numpy_functions(s: Live) -> None:
    """NumPy's functions of arrays: as NumPy's result, or an error."""
    shape = s.draw.pick("shape", ((5, 8), (BATCH, 5, 8), ()))
    x, y = s.whole(shape, 2), s.whole((8, 5), 2)
    name = s.draw.pick("function", tuple(FUNCTIONS))
    try:
        exact = FUNCTIONS[name](x.astype(np.float64), y.astype(np.float64))
    except (ValueError, IndexError, TypeError):
        exact = None
    try:
        got = FUNCTIONS[name](s.device.array(x), s.device.array(y))
    except (webmm.WebmmError, ValueError, IndexError, TypeError):
        return
    if exact is None:
        raise AssertionError(f"{name} of {shape} was accepted")
    s.keep(got, exact)


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum, keepdims=1": lambda x, y: np.sum(x, axis=0, keepdims=1),
    "max": lambda x, y: np.max(x, axis=-1, keepdims=True),
    "zeros_like": lambda x, y: np.zeros_like(x, shape=(5, 5)),
    "dot": lambda x, y: np.dot(x, y),
    "dot with a number": lambda x, y: np.dot(x, 2.0),
    "tensordot": lambda x, y: np.tensordot(x, y, 1),
    "tensordot of pairs": lambda x, y: np.tensordot(x, y, ([-1, -2], [0, 1])),
    "tensordot out of range": lambda x, y: np.tensordot(x, y, ([5], [0])),
    "reshape": lambda x, y: np.reshape(np.swapaxes(y, 0, 1), (4, 10)),
    "expand": lambda x, y: np.concatenate([np.expand_dims(y, 0), np.broadcast_to(y, (2, 8, 5))]),
    "stack": lambda x, y: np.stack([y, y], axis=-1),
    "take": lambda x, y: np.take(x, [1, 0, -1], axis=-1),
    "squeeze": lambda x, y: np.squeeze(x[None]),
    "argmin": lambda x, y: np.argmin(x, axis=0),
}
